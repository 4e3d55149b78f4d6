package inflight

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// loopOf makes a Poller whose polls are counted by read instead of done.
func loopOf(t *testing.T, sink func([]Result)) *Poller {
	t.Helper()
	p, err := New(Options{Addresses: []string{"127.0.0.1:1"}, Interval: 100 * time.Millisecond,
		Timeout: 40 * time.Millisecond}, sink, quiet)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestLoopPollsOnceAnInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var at []time.Duration
		p := loopOf(t, func([]Result) { at = append(at, time.Since(begin)) })
		p.SetKeys([]Key{{"a", "k"}})
		ctx, cancel := context.WithTimeout(t.Context(), 350*time.Millisecond)
		defer cancel()
		err := p.loop(ctx, func(ctx context.Context, keys []Key) []Result { return make([]Result, len(keys)) })
		if err != nil {
			t.Errorf("loop returned %v", err)
		}
		want := []time.Duration{0, 100 * time.Millisecond, 200 * time.Millisecond, 300 * time.Millisecond}
		if d := cmp.Diff(want, at); d != "" {
			t.Errorf("polls (-want +got):\n%s", d)
		}
	})
}

func TestLoopSendsRedisNothingWithoutKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := loopOf(t, func([]Result) { t.Error("sink called") })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_ = p.loop(ctx, func(context.Context, []Key) []Result { t.Error("polled"); return nil })
	})
}

// work counts the pieces of work that have begun and not ended.
type work struct{ atomic.Int32 }

func (w *work) Begin() { w.Add(1) }
func (w *work) End()   { w.Add(-1) }

// TestAPollIsWatchedFromItsTimeoutOn: until then it waits for Redis, whose silence is no fault of the process.
func TestAPollIsWatchedFromItsTimeoutOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w work
		release := make(chan struct{})
		o := Options{Addresses: []string{"127.0.0.1:1"}, Interval: time.Minute, Timeout: time.Minute, Progress: &w}
		p, err := New(o, func([]Result) {}, quiet)
		if err != nil {
			t.Fatal(err)
		}
		p.SetKeys([]Key{{"a", "k"}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- p.loop(ctx, func(_ context.Context, keys []Key) []Result { // deaf to its context
				<-release
				return make([]Result, len(keys))
			})
		}()
		for _, at := range []struct {
			after time.Duration
			want  int32
		}{{59 * time.Second, 0}, {2 * time.Second, 1}} {
			time.Sleep(at.after)
			synctest.Wait()
			if n := w.Load(); n != at.want {
				t.Errorf("%d pieces of work, want %d", n, at.want)
			}
		}
		close(release)
		synctest.Wait()
		if n := w.Load(); n != 0 {
			t.Errorf("%d pieces of work after the poll, want none", n)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestASinkThatDoesNotReturnIsSeenAsWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w work
		release := make(chan struct{})
		p := loopOf(t, func([]Result) { <-release })
		p.o.Progress = &w
		p.SetKeys([]Key{{"a", "k"}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- p.loop(ctx, func(_ context.Context, keys []Key) []Result { return make([]Result, len(keys)) })
		}()
		synctest.Wait()
		if n := w.Load(); n != 1 {
			t.Errorf("%d pieces of work, want 1", n)
		}
		close(release)
		synctest.Wait()
		cancel()
		if err := <-done; err != nil || w.Load() != 0 {
			t.Errorf("%v, %d pieces of work at the end", err, w.Load())
		}
	})
}

func TestLoopTakesNewKeysAtTheNextPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got [][]Key
		p := loopOf(t, func([]Result) {})
		keys := []Key{{"a", "k"}}
		p.SetKeys(keys)
		keys[0].Key = "written over by its owner"
		ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
		defer cancel()
		_ = p.loop(ctx, func(_ context.Context, keys []Key) []Result {
			got = append(got, keys)
			p.SetKeys([]Key{{"b", "l"}, {"c", "m"}})
			return nil
		})
		want := [][]Key{{{"a", "k"}}, {{"b", "l"}, {"c", "m"}}}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("keys of the polls (-want +got):\n%s", d)
		}
	})
}

func TestPollCutShortByTheEndIsNotReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := loopOf(t, func([]Result) { t.Error("sink called") })
		p.SetKeys([]Key{{"a", "k"}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_ = p.loop(ctx, func(ctx context.Context, keys []Key) []Result {
			<-ctx.Done()
			return []Result{{Err: sourceError{ctx.Err()}}}
		})
	})
}

func TestOnlyChangesAreLogged(t *testing.T) {
	var out strings.Builder
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{
		Level: slog.LevelInfo,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
	h := health{log: log}
	good := Result{Cluster: "a", Key: "k"}
	away := Result{Cluster: "a", Key: "k", Err: sourceError{errors.New("refused")}}
	faulty := Result{Cluster: "a", Key: "k", Err: errors.New("wrong type")}
	other := Result{Cluster: "b", Key: "l"}
	for _, results := range [][]Result{
		{good, other}, {good, other},
		{away, other}, {away, other},
		{good, other},
		{faulty, other}, {faulty, other},
		{away, other}, {faulty, other}, // Redis away in between is no news of the key
		{good, other}, {good, other},
	} {
		h.update(results)
	}
	want := `level=INFO msg="in-flight counts are being read" keys=2
level=WARN msg="in-flight counts cannot be read" failed=1 keys=2 error=refused
level=INFO msg="in-flight counts are being read" keys=2
level=WARN msg="in-flight key is faulty" cluster=a key=k error="wrong type"
level=WARN msg="in-flight counts cannot be read" failed=1 keys=2 error=refused
level=INFO msg="in-flight counts are being read" keys=2
level=INFO msg="in-flight key is valid again" cluster=a key=k
`
	if d := cmp.Diff(want, out.String()); d != "" {
		t.Errorf("log (-want +got):\n%s", d)
	}
}
