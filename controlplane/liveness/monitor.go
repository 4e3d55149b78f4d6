package liveness

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"steelyard/internal/loops"
)

const (
	interval = time.Second
	patience = 30 // checks, when one loop is waiting
	queue    = 10 // waiting loops that raise patience by one check
)

// An Activity marks when a loop works and when it is idle. The zero value is idle.
type Activity struct{ transitions atomic.Uint64 } // odd while at work

// Begin marks the start of a piece of work, and End its end.
func (b *Activity) Begin() { b.transitions.Add(1) }
func (b *Activity) End()   { b.transitions.Add(1) }

// A Stuck is a loop or a lock that makes no progress.
type Stuck struct {
	Name string
	For  time.Duration // at least
}

func (s Stuck) String() string { return fmt.Sprintf("%s: no progress for %s", s.Name, s.For) }

// A Monitor watches activities. Its methods can be called from any goroutine.
type Monitor struct {
	log *slog.Logger

	mu      sync.Mutex
	watched map[*watched]struct{}
}

type watched struct {
	name        string
	activity    *Activity
	transitions uint64 // at the last check
	checks      int    // in a row that found the same work under way
	stuck       bool
}

// New makes a Monitor that watches nothing yet. It logs each loop or lock that becomes stuck, or is no longer.
func New(log *slog.Logger) *Monitor {
	return &Monitor{log: log, watched: make(map[*watched]struct{})}
}

// Watch watches an activity until the caller calls forget.
func (m *Monitor) Watch(name string, b *Activity) (forget func()) {
	w := &watched{name: name, activity: b}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watched[w] = struct{}{}
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.watched, w)
	}
}

// Probe calls probe once a second until ctx is done, and watches that it returns.
func (m *Monitor) Probe(ctx context.Context, name string, probe func()) {
	var activity Activity
	defer m.Watch(name, &activity)()
	loops.Every(ctx, interval, func(time.Time) {
		activity.Begin()
		probe()
		activity.End()
	})
}

// Run checks all activities once a second until ctx is done.
func (m *Monitor) Run(ctx context.Context) {
	loops.Every(ctx, interval, func(time.Time) { m.Check() })
}

// Check checks all activities once.
func (m *Monitor) Check() {
	stopped, moving := m.check()
	for _, name := range stopped {
		m.log.Error("no progress: /healthz fails until there is", "what", name)
	}
	for _, name := range moving {
		m.log.Info("there is progress again", "what", name)
	}
}

// check returns the names of what has become stuck with this check, and of what no longer is.
func (m *Monitor) check() (stopped, moving []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	waiting := 0
	for w := range m.watched {
		transitions := w.activity.transitions.Load()
		if transitions == w.transitions && transitions%2 == 1 {
			w.checks++
			waiting++
		} else {
			w.transitions, w.checks = transitions, 0
		}
	}
	for w := range m.watched {
		was := w.stuck
		switch w.stuck = w.checks >= patience+waiting/queue; {
		case w.stuck && !was:
			stopped = append(stopped, w.name)
		case was && !w.stuck:
			moving = append(moving, w.name)
		}
	}
	return stopped, moving
}

// Stuck returns what makes no progress, the longest first.
func (m *Monitor) Stuck() []Stuck {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Stuck
	for w := range m.watched {
		if w.stuck {
			out = append(out, Stuck{Name: w.name, For: time.Duration(w.checks) * interval})
		}
	}
	slices.SortFunc(out, func(a, b Stuck) int {
		return cmp.Or(cmp.Compare(b.For, a.For), cmp.Compare(a.Name, b.Name))
	})
	return out
}
