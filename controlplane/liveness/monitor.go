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
)

const (
	interval = time.Second
	patience = 30 // looks, for one that waits alone
	queue    = 10 // that wait at a time are worth one look more
)

// A Beat tells what a loop is at. The zero value is of a loop that rests.
type Beat struct{ turns atomic.Uint64 } // odd while at work

// Begin says that a piece of work begins, End that it has ended.
func (b *Beat) Begin() { b.turns.Add(1) }
func (b *Beat) End()   { b.turns.Add(1) }

// A Stuck is a loop or a lock that does not move.
type Stuck struct {
	Name string
	For  time.Duration // at least
}

func (s Stuck) String() string { return fmt.Sprintf("%s: no progress for %s", s.Name, s.For) }

// A Monitor watches beats. Its methods can be called from any goroutine.
type Monitor struct {
	log *slog.Logger

	mu      sync.Mutex
	watched map[*watched]struct{}
}

type watched struct {
	name  string
	beat  *Beat
	turns uint64 // at the last look
	looks int    // in a row that found the same work under way
	stuck bool
}

// New makes a Monitor that watches nothing. What gets stuck, and what moves again, is logged.
func New(log *slog.Logger) *Monitor {
	return &Monitor{log: log, watched: make(map[*watched]struct{})}
}

// Watch looks after a beat until the function that it returns is called.
func (m *Monitor) Watch(name string, b *Beat) (forget func()) {
	w := &watched{name: name, beat: b}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watched[w] = struct{}{}
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.watched, w)
	}
}

// Probe calls a function once a second until ctx is done, and watches that it returns.
func (m *Monitor) Probe(ctx context.Context, name string, probe func()) {
	var beat Beat
	defer m.Watch(name, &beat)()
	each(ctx, func() {
		beat.Begin()
		probe()
		beat.End()
	})
}

// Run looks at all beats once a second until ctx is done.
func (m *Monitor) Run(ctx context.Context) { each(ctx, m.Look) }

func each(ctx context.Context, f func()) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			f()
		}
	}
}

// Look takes one look at all beats.
func (m *Monitor) Look() {
	stopped, moving := m.look()
	for _, name := range stopped {
		m.log.Error("no progress: /healthz fails until there is", "what", name)
	}
	for _, name := range moving {
		m.log.Info("there is progress again", "what", name)
	}
}

// look returns what is stuck since this look, and what is no longer.
func (m *Monitor) look() (stopped, moving []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	waiting := 0
	for w := range m.watched {
		turns := w.beat.turns.Load()
		if turns == w.turns && turns%2 == 1 {
			w.looks++
			waiting++
		} else {
			w.turns, w.looks = turns, 0
		}
	}
	for w := range m.watched {
		was := w.stuck
		switch w.stuck = w.looks >= patience+waiting/queue; {
		case w.stuck && !was:
			stopped = append(stopped, w.name)
		case was && !w.stuck:
			moving = append(moving, w.name)
		}
	}
	return stopped, moving
}

// Stuck is what does not move, the longest first.
func (m *Monitor) Stuck() []Stuck {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Stuck
	for w := range m.watched {
		if w.stuck {
			out = append(out, Stuck{Name: w.name, For: time.Duration(w.looks) * interval})
		}
	}
	slices.SortFunc(out, func(a, b Stuck) int {
		return cmp.Or(cmp.Compare(b.For, a.For), cmp.Compare(a.Name, b.Name))
	})
	return out
}
