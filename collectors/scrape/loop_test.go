package scrape

import (
	"context"
	"fmt"
	"github.com/google/go-cmp/cmp"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A pipeNet is a network without sockets, for use in a synctest bubble: every
// address leads to the handler.
type pipeNet struct {
	conns  chan net.Conn
	closed chan struct{}
	server *http.Server
}

func newPipeNet(t *testing.T, h http.HandlerFunc) *pipeNet {
	t.Helper()
	p := &pipeNet{conns: make(chan net.Conn), closed: make(chan struct{}), server: &http.Server{Handler: h}}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = p.server.Serve(p) // ends with ErrServerClosed
	}()
	t.Cleanup(func() {
		_ = p.server.Close()
		<-served
	})
	return p
}

func (p *pipeNet) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return ours, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipeNet) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipeNet) Close() error   { close(p.closed); return nil }
func (p *pipeNet) Addr() net.Addr { return &net.TCPAddr{} }

// bubble runs a pool in a synctest bubble for some (false) time and returns
// its results and when, since its start, each request came in.
func bubble(t *testing.T, h http.HandlerFunc, targets []Target, d time.Duration) (results []Result,
	asked []time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var mu sync.Mutex
		network := newPipeNet(t, func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			asked = append(asked, time.Since(began))
			mu.Unlock()
			h(w, r)
		})
		rec := newRecorder()
		p := New(rec.sink, slog.New(slog.DiscardHandler))
		p.shared.network.dial = network.dial
		p.SetTargets(targets)
		ctx, cancel := context.WithTimeout(t.Context(), d)
		defer cancel()
		if err := p.Run(ctx); err != nil {
			t.Error(err)
		}
		results = rec.all()
	})
	return results, asked
}

func everySecond(url string) Target {
	tgt := target(url)
	tgt.Interval, tgt.Timeout = time.Second, time.Second
	return tgt
}

func TestBeginsAtTheOffsetAndKeepsTheBeat(t *testing.T) {
	tgt := everySecond("http://server/metrics")
	const latency = 300 * time.Millisecond
	results, asked := bubble(t, func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(latency) // of the bubble's clock: what a slow page costs must not shift the beat
		io.WriteString(w, page(1))
	}, []Target{tgt}, 10*time.Second)
	if tgt.offset() == 0 {
		t.Fatal("this target's offset shows nothing: take another")
	}
	var want []time.Duration
	for at := tgt.offset(); at < 10*time.Second; at += time.Second {
		want = append(want, at)
	}
	if !slices.Equal(asked, want) {
		t.Errorf("asked at %v\nwant     %v", asked, want)
	}
	for _, r := range results {
		if r.Err != nil || r.Duration != latency {
			t.Errorf("result %+v, want one after %v", r, latency)
		}
	}
	if between := results[1].At.Sub(results[0].At); between != time.Second {
		t.Errorf("reports are true %v apart, want 1s", between)
	}
}

func TestALoadWasTrueInTheMiddleOfTheExchange(t *testing.T) {
	tgt := everySecond("http://server/metrics")
	const latency = 300 * time.Millisecond
	before := make(chan time.Time, 1)
	results, asked := bubble(t, func(w http.ResponseWriter, r *http.Request) {
		before <- time.Now() // a pipe costs no time: this is when the exchange began
		time.Sleep(latency)
		io.WriteString(w, page(1))
	}, []Target{tgt}, tgt.offset()+tgt.Interval/2)
	if len(results) != 1 || len(asked) != 1 {
		t.Fatalf("%d results of %d requests, want one", len(results), len(asked))
	}
	r, want := results[0], (<-before).Add(latency/2)
	if r.Err != nil || !r.At.Equal(want) || !r.Report.Queue.At.Equal(want) {
		t.Errorf("result at %v, queue at %v, error %v; want %v", r.At, r.Report.Queue.At, r.Err, want)
	}
}

func TestScrapesOfATargetNeverOverlap(t *testing.T) {
	tgt := everySecond("http://server/metrics")
	tgt.Timeout = 900 * time.Millisecond // the rest is for the server to see that we hung up
	var mu sync.Mutex
	inside, most := 0, 0
	results, asked := bubble(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		inside++
		most = max(most, inside)
		mu.Unlock()
		<-r.Context().Done() // hangs until we hang up
		mu.Lock()
		inside--
		mu.Unlock()
	}, []Target{tgt}, 10*time.Second)
	if most != 1 {
		t.Errorf("%d scrapes at once", most)
	}
	if len(asked) != 10 {
		t.Errorf("asked %d times in 10 s, want each second: %v", len(asked), asked)
	}
	for _, r := range results {
		if Kind(r.Err) != KindTimeout || r.Duration != tgt.Timeout {
			t.Errorf("result %+v, want a timeout after %v", r, tgt.Timeout)
		}
	}
}

func TestMissedStartsAreSkipped(t *testing.T) {
	const interval = 250 * time.Millisecond
	t0 := time.Date(2026, 8, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name string
		took time.Duration
		want time.Duration // after the planned start
	}{
		{"in time", 100 * time.Millisecond, interval},
		{"at the last moment", interval, interval},
		{"a little late: at once", interval + 20*time.Millisecond, interval},
		{"half an interval late: at once", interval + interval/2, interval},
		{"later: the next of the beat", interval + interval/2 + 1, 2 * interval},
		{"just before the next", 2*interval - 1, 2 * interval},
		{"just after it", 2*interval + 1, 3 * interval},
		{"a machine that stood still for a minute", time.Minute + 1, time.Minute + interval},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := nextStart(t0, t0.Add(c.took), interval).Sub(t0); got != c.want {
				t.Errorf("next start after %v, want %v", got, c.want)
			}
		})
	}
}

func TestOffsetsSpreadOverTheInterval(t *testing.T) {
	const targets, slices = 1000, 10
	var count [slices]int
	for i := range targets {
		tgt := everySecond("")
		tgt.Address = fmt.Sprintf("10.0.%d.%d:8000", i/256, i%256)
		tgt.URL = "http://" + tgt.Address + "/metrics"
		o := tgt.offset()
		if o < 0 || o >= tgt.Interval || o != tgt.offset() {
			t.Fatalf("offset %v of an interval of %v", o, tgt.Interval)
		}
		count[int(o)*slices/int(tgt.Interval)]++
	}
	for i, n := range count {
		if n < targets/slices/2 || n > targets/slices*2 {
			t.Errorf("%d targets in tenth %d of the interval, want about %d: %v", n, i, targets/slices, count)
		}
	}
}

// TestTargetsAreScrapedTogether: many begin at one moment, so that the process wakes up once
// for them, also those that come later; and yet a short interval has moments enough.
func TestTargetsAreScrapedTogether(t *testing.T) {
	for _, c := range []struct{ interval, beat time.Duration }{
		{50 * time.Millisecond, 5 * time.Millisecond},
		{250 * time.Millisecond, 25 * time.Millisecond},
		{time.Second, 25 * time.Millisecond},
	} {
		t.Run(c.interval.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { scrapedTogether(t, c.interval, c.beat) })
		})
	}
}

func scrapedTogether(t *testing.T, interval, beat time.Duration) {
	moments := make(chan time.Duration, 2000)
	began := time.Now()
	network := newPipeNet(t, func(w http.ResponseWriter, r *http.Request) {
		moments <- time.Since(began)
		io.WriteString(w, page(1))
	})
	p := New(func(Result) {}, slog.New(slog.DiscardHandler))
	p.shared.network.dial = network.dial
	start(t, p)
	var targets []Target
	for i := range 800 {
		tgt := everySecond(fmt.Sprintf("http://10.0.0.%d/metrics", i))
		tgt.Interval, tgt.Timeout = interval, interval
		targets = append(targets, tgt)
	}
	late := beat + beat/3
	p.SetTargets(targets[:400])
	time.Sleep(late)
	p.SetTargets(targets)
	time.Sleep(interval - 1) // each once; of the first 400, those of the first moments again
	count := make(map[time.Duration]int)
	for range len(moments) {
		count[<-moments]++
	}
	if want := int((interval+late-1)/beat) + 1; len(count) != want {
		t.Errorf("%d different moments, want one for each beat, %d", len(count), want)
	}
	for at := range count {
		if at%beat != 0 {
			t.Errorf("scrapes begin at %v, which is no beat", at)
		}
	}
}

func TestATargetThatCanNeverBeScrapedReportsThatOnce(t *testing.T) {
	for name, change := range map[string]func(*Target){
		"timeout above interval": func(t *Target) { t.Timeout = 2 * t.Interval },
		"no interval":            func(t *Target) { t.Interval = 0 },
		"no body limit":          func(t *Target) { t.BodyLimit = 0 },
		"other scheme":           func(t *Target) { t.URL = "ftp://server/metrics" },
		"no URL":                 func(t *Target) { t.URL = "" },
		"unknown engine":         func(t *Target) { t.Engine = "abacus" },
	} {
		t.Run(name, func(t *testing.T) {
			tgt := everySecond("http://server/metrics")
			change(&tgt)
			results, asked := bubble(t, func(http.ResponseWriter, *http.Request) {}, []Target{tgt}, 10*time.Second)
			if len(results) != 1 || len(asked) != 0 {
				t.Fatalf("%d results and %d requests, want one result", len(results), len(asked))
			}
			wantFailure(t, results[0], KindConfig, "target "+tgt.URL)
			if results[0].Address != tgt.Address || results[0].At.IsZero() {
				t.Errorf("result %+v has no address or time", results[0])
			}
		})
	}
}

func TestAPageThatComesAndGoesIsOneLineEachWayAndACount(t *testing.T) {
	var log strings.Builder
	l := newLoop(target("http://server"), newShared(), func(Result) {},
		slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelInfo})))
	start := time.Unix(1_700_000_000, 0)
	for second := range 140 {
		var err error
		if second%2 == 1 && second < 90 {
			err = failure(KindTimeout, "too late")
		}
		l.deliver(Result{At: start.Add(time.Duration(second) * time.Second), Err: err})
	}
	var got []string
	for entry := range strings.Lines(log.String()) {
		_, message, _ := strings.Cut(entry, "msg=")
		got = append(got,
			strings.TrimSpace(strings.NewReplacer(" cluster=llama endpoint=10.0.0.1:8000", "").Replace(message)))
	}
	want := []string{
		`"endpoint's metrics cannot be read" kind=timeout error="too late"`,
		`"endpoint's metrics are back" after=timeout`,
		`"endpoint's metrics came and went" changes=59 within=1m0s now=timeout`,
		`"endpoint's metrics are back" after=timeout`,
		`"endpoint's metrics cannot be read" kind=timeout error="too late"`,
		`"endpoint's metrics came and went" changes=27 within=1m0s now=ok`,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("lines (-want +got):\n%s", d)
	}
}

func TestTheLogHasChangesNotRepetitions(t *testing.T) {
	var log strings.Builder
	handler := slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})
	tgt := target("http://server")
	l := newLoop(tgt, newShared(), func(Result) {}, slog.New(handler))
	refused, garbage := failure(KindRefused, "one"), failure(KindParse, "two")
	for _, err := range []error{nil, nil, refused, refused, refused, garbage, nil, nil} {
		l.deliver(Result{Err: err})
	}
	var levels []string
	for entry := range strings.Lines(log.String()) {
		fields := strings.Fields(entry)
		levels = append(levels, fields[1])
		if !strings.Contains(entry, "cluster=llama endpoint=10.0.0.1:8000") {
			t.Errorf("no cluster or endpoint in %q", entry)
		}
	}
	want := []string{"level=INFO", "level=DEBUG", "level=DEBUG", "level=INFO", "level=INFO"}
	if !slices.Equal(levels, want) {
		t.Errorf("levels %v, want %v:\n%s", levels, want, log.String())
	}
}
