package inflight

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// loopOf makes a Poller whose polls are counted by read instead of done.
func loopOf(t *testing.T, sink func([]Result), log *slog.Logger) *Poller {
	t.Helper()
	p, err := New(Options{Addresses: []string{"127.0.0.1:1"}, Interval: 100 * time.Millisecond}, sink, log)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestLoopPollsOnceAnInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var at []time.Duration
		p := loopOf(t, func([]Result) { at = append(at, time.Since(begin)) }, nil)
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
		p := loopOf(t, func([]Result) { t.Error("sink called") }, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_ = p.loop(ctx, func(context.Context, []Key) []Result { t.Error("polled"); return nil })
	})
}

func TestLoopTakesNewKeysAtTheNextPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got [][]Key
		p := loopOf(t, func([]Result) {}, nil)
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
		p := loopOf(t, func([]Result) { t.Error("sink called") }, nil)
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
		h.note(results)
	}
	want := `level=INFO msg="in-flight counts are being read" keys=2
level=WARN msg="in-flight counts cannot be read" failed=1 keys=2 error=refused
level=INFO msg="in-flight counts are being read" keys=2
level=WARN msg="in-flight key is faulty" cluster=a key=k error="wrong type"
level=WARN msg="in-flight counts cannot be read" failed=1 keys=2 error=refused
level=INFO msg="in-flight counts are being read" keys=2
level=INFO msg="in-flight key is sound again" cluster=a key=k
`
	if d := cmp.Diff(want, out.String()); d != "" {
		t.Errorf("log (-want +got):\n%s", d)
	}
}
