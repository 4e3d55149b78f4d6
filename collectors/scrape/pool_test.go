package scrape

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// quick scrapes often; its timeout is as long as that allows.
func quick(address, url string) Target {
	t := target(url)
	t.Address = address
	return t
}

// of keeps the results of one endpoint.
func of(address string, all []Result) []Result {
	var some []Result
	for _, r := range all {
		if r.Address == address {
			some = append(some, r)
		}
	}
	return some
}

// good keeps the results without error.
func good(all []Result) []Result {
	var some []Result
	for _, r := range all {
		if r.Err == nil {
			some = append(some, r)
		}
	}
	return some
}

func TestOnlyTheBadEndpointFails(t *testing.T) {
	release := make(chan struct{})
	hanging := serve(t, func(http.ResponseWriter, *http.Request) { <-release })
	defer close(release)
	fine := serve(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, page(4)) })
	rec := newRecorder()
	p := New(rec.sink, slog.New(slog.DiscardHandler))
	p.SetTargets([]Target{quick("bad:1", hanging.URL), quick("good:1", fine.URL)})
	start(t, p)
	rec.await(t, "three timeouts of the one and three reports of the other", func(all []Result) bool {
		return len(of("bad:1", all)) >= 3 && len(good(of("good:1", all))) >= 3
	})
	for _, r := range of("bad:1", rec.all()) {
		if r.Err == nil || r.Cluster != "llama" {
			t.Errorf("result %+v of a server that hangs", r)
		}
	}
}

// A counting is a server whose counter can be set back, and which counts the
// connections made to it.
type counting struct {
	*httptest.Server
	completed   atomic.Int64
	connections atomic.Int64
}

func newCounting(t *testing.T) *counting {
	c := &counting{}
	c.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "vllm:request_success_total %d\n", c.completed.Load())
	}))
	c.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			c.connections.Add(1)
		}
	}
	c.Start()
	t.Cleanup(c.Close)
	return c
}

func TestAnUnchangedTargetKeepsConnectionAndCounters(t *testing.T) {
	a, b := newCounting(t), newCounting(t)
	a.completed.Store(100)
	b.completed.Store(100)
	rec := newRecorder()
	p := New(rec.sink, slog.New(slog.DiscardHandler))
	ta, tb := patient(a.URL), patient(b.URL)
	ta.Address, tb.Address = "a:1", "b:1"
	ta.Interval, tb.Interval = 100*time.Millisecond, 100*time.Millisecond
	ta.Timeout, tb.Timeout = ta.Interval, tb.Interval
	p.SetTargets([]Target{ta, tb})
	start(t, p)
	rec.await(t, "a report of both", func(all []Result) bool {
		return len(good(of("a:1", all))) > 0 && len(good(of("b:1", all))) > 0
	})

	a.completed.Store(5) // both servers restart, and b's target changes
	b.completed.Store(5)
	seesSum := func(address string, completions float64, restarts int) func([]Result) bool {
		return func(all []Result) bool {
			r := last(good(of(address, all))).Report
			return r.Completions.Value == completions && r.Restarts == restarts
		}
	}
	rec.await(t, "a's sum goes on", seesSum("a:1", 105, 1))
	rec.await(t, "b's sum goes on", seesSum("b:1", 105, 1))
	tb.BodyLimit++
	p.SetTargets([]Target{tb, ta})
	rec.await(t, "b's sum begins again", seesSum("b:1", 5, 0))
	n := len(good(of("a:1", rec.all())))
	rec.await(t, "a is scraped still", func(all []Result) bool { return len(good(of("a:1", all))) > n })
	rec.await(t, "a's sum is what it was", seesSum("a:1", 105, 1))

	results := of("a:1", rec.all())
	failed := len(results) - len(good(results)) // a timeout, on a busy machine, costs the connection
	if n := int(a.connections.Load()); n > 1+failed {
		t.Errorf("%d connections to a for %d scrapes of which %d failed, want 1", n, len(results), failed)
	}
}

func TestARemovedTargetIsSilentAtOnce(t *testing.T) {
	entered, release := make(chan struct{}, 100), make(chan struct{})
	hanging := serve(t, func(http.ResponseWriter, *http.Request) { entered <- struct{}{}; <-release })
	defer close(release)
	fine := serve(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, page(4)) })
	rec := newRecorder()
	p := New(rec.sink, slog.New(slog.DiscardHandler))
	gone := patient(hanging.URL)
	gone.Address = "gone:1"
	gone.Interval, gone.Timeout = time.Millisecond, time.Millisecond
	p.SetTargets([]Target{gone})
	start(t, p)
	<-entered
	p.SetTargets([]Target{quick("good:1", fine.URL)})
	all := rec.await(t, "the new target's report", func(all []Result) bool { return len(good(of("good:1", all))) > 0 })
	before := len(of("gone:1", all))
	rec.await(t, "three more of them", func(all []Result) bool { return len(good(of("good:1", all))) > 3 })
	if after := len(of("gone:1", rec.all())); after != before {
		t.Errorf("%d results of a target that is gone, %d when its successor began", after, before)
	}
}

func TestStoppingDoesNotWaitForTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		entered := make(chan struct{})
		network := newPipeNet(t, func(_ http.ResponseWriter, r *http.Request) {
			close(entered)
			<-r.Context().Done()
		})
		rec := newRecorder()
		p := New(rec.sink, slog.New(slog.DiscardHandler))
		p.shared.network.dial = network.dial
		p.SetTargets([]Target{everySecond("http://server/metrics")})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }()
		<-entered
		cancelled := time.Now()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if waited := time.Since(cancelled); waited > 0 {
			t.Errorf("Run has ended %v after it was to", waited)
		}
		if all := rec.all(); len(all) != 0 {
			t.Errorf("stopping was reported as %+v", all)
		}
	})
}

func TestRunWaitsForTheSink(t *testing.T) {
	fine := serve(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, page(4)) })
	entered, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	var returned atomic.Bool
	p := New(func(Result) {
		once.Do(func() { close(entered) })
		<-release
		returned.Store(true)
	}, slog.New(slog.DiscardHandler))
	p.SetTargets([]Target{quick("a:1", fine.URL)})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	<-entered
	cancel()
	close(release)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if !returned.Load() {
		t.Error("Run ended while the sink was at work")
	}
}

// work counts the pieces of work that have begun and not ended.
type work struct{ atomic.Int32 }

func (w *work) Begin() { w.Add(1) }
func (w *work) End()   { w.Add(-1) }

func TestALoopThatDoesNotEndIsSeenAsWorkOfThePool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w work
		release := make(chan struct{})
		p := New(func(Result) { <-release }, slog.New(slog.DiscardHandler))
		p.Progress = &w
		p.SetTargets([]Target{{Address: "a:1"}}) // can never be scraped, and says so without a network
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }()
		synctest.Wait()
		if n := w.Load(); n != 0 {
			t.Errorf("%d pieces of work while a loop is at its sink, want none", n)
		}
		p.SetTargets(nil)
		synctest.Wait()
		if n := w.Load(); n != 1 {
			t.Errorf("%d pieces of work while the pool waits for a loop that does not end, want 1", n)
		}
		close(release)
		synctest.Wait()
		if n := w.Load(); n != 0 {
			t.Errorf("%d pieces of work afterwards, want none", n)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestRunWaitsForTheLoopsThatSetTargetsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		atWork := 0
		p := New(func(Result) { atWork++; <-release; atWork-- }, slog.New(slog.DiscardHandler))
		p.SetTargets([]Target{{Address: "a:1"}}) // can never be scraped, and fails without a network
		ctx, cancel := context.WithCancel(t.Context())
		ended := false
		go func() {
			if err := p.Run(ctx); err != nil {
				t.Error(err)
			}
			ended = true
		}()
		synctest.Wait()
		if atWork != 1 {
			t.Fatalf("%d loops are at their sink, want 1", atWork)
		}
		p.SetTargets(nil)
		synctest.Wait() // the loop is stopped
		cancel()
		synctest.Wait()
		if ended {
			t.Error("Run ended while a loop that was stopped before was at its sink")
		}
		close(release)
		synctest.Wait()
		if !ended || atWork != 0 {
			t.Errorf("ended %v with %d loops at their sink, want an end with none", ended, atWork)
		}
	})
}
