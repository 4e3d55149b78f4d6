package liveness

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWorkThatDoesNotEndIsStuckAfterThirtyChecks(t *testing.T) {
	var log bytes.Buffer
	m := New(slog.New(slog.NewTextHandler(&log, nil)))
	var stuck, resting, busy Activity
	for name, b := range map[string]*Activity{"stuck": &stuck, "resting": &resting, "busy": &busy} {
		defer m.Watch(name, b)()
	}
	stuck.Begin()
	for range patience + 1 { // the first check sees that the work has begun
		if s := m.Stuck(); len(s) > 0 {
			t.Fatalf("%v, too soon", s)
		}
		busy.Begin()
		m.Check()
		busy.End()
	}
	m.Check()
	if got := m.Stuck(); len(got) != 1 || got[0].String() != "stuck: no progress for 31s" {
		t.Errorf("%v, want the stuck one, and for how long", got)
	}
	stuck.End()
	stuck.Begin()
	m.Check()
	if got := m.Stuck(); len(got) != 0 {
		t.Errorf("%v, want nothing: the loop is at its next piece of work", got)
	}
	if n := strings.Count(log.String(), "what=stuck"); n != 2 {
		t.Errorf("%d lines, want one when it becomes stuck, and one when it makes progress:\n%s", n, log.String())
	}
}

func TestTheThresholdRisesWithTheNumberOfWaitingLoops(t *testing.T) {
	m := New(slog.New(slog.DiscardHandler))
	activities := make([]Activity, 100)
	for i := range activities {
		defer m.Watch("loop", &activities[i])()
		activities[i].Begin()
	}
	for range patience + len(activities)/queue {
		m.Check()
	}
	if got := m.Stuck(); len(got) != 0 {
		t.Errorf("%d are stuck, too soon", len(got))
	}
	m.Check()
	if got := m.Stuck(); len(got) != len(activities) {
		t.Errorf("%d are stuck, want all", len(got))
	}
}

func TestStuckIsSortedByDurationAndLeavesOutForgottenBeats(t *testing.T) {
	m := New(slog.New(slog.DiscardHandler))
	var activity Activity
	activity.Begin()
	check := func(n int) {
		for range n {
			m.Check()
		}
	}
	forgetB := m.Watch("b", &activity)
	check(5)
	forgetA, forgetC := m.Watch("a", &activity), m.Watch("c", &activity)
	check(patience + 1)
	names := func() (out []string) {
		for _, s := range m.Stuck() {
			out = append(out, s.Name)
		}
		return out
	}
	if got := names(); !slices.Equal(got, []string{"b", "a", "c"}) {
		t.Errorf("stuck are %v, want b, a, c", got)
	}
	forgetA()
	forgetB()
	forgetC()
	if got := names(); len(got) != 0 || len(m.watched) != 0 {
		t.Errorf("stuck are %v of %d", got, len(m.watched))
	}
}

func TestTimeWithoutChecksMakesNothingStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(slog.New(slog.DiscardHandler))
		var activity Activity
		defer m.Watch("suspended", &activity)()
		activity.Begin()
		m.Check()
		time.Sleep(time.Hour)
		m.Check()
		if got := m.Stuck(); len(got) != 0 {
			t.Errorf("%v, want nothing: there were two checks", got)
		}
	})
}

func TestALockThatIsNeverReleasedIsStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		// A channel stands in for the lock: the time of a synctest bubble stops while a goroutine waits for a mutex.
		gate := make(chan struct{})
		var all sync.WaitGroup
		all.Go(func() { m.Run(ctx) })
		all.Go(func() { m.Probe(ctx, "free", func() {}) })
		all.Go(func() { m.Probe(ctx, "held", func() { <-gate }) })
		time.Sleep((patience + 3) * time.Second)
		if got := m.Stuck(); len(got) != 1 || got[0].Name != "held" {
			t.Errorf("%v, want the lock that is held", got)
		}
		close(gate)
		time.Sleep(2 * time.Second)
		if got := m.Stuck(); len(got) != 0 {
			t.Errorf("%v, want nothing: the lock was released", got)
		}
		cancel()
		all.Wait()
		if len(m.watched) != 0 {
			t.Errorf("%d probes are still watched", len(m.watched))
		}
	})
}
