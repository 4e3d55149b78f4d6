package load

import (
	"math"
	"sync"
)

// meterWindow is how many of the latest waits a Meter remembers.
const meterWindow = 8192

// A Meter shows a run while it goes on. The zero value is ready; it may be
// shared by runs that follow each other.
type Meter struct {
	mu     sync.Mutex
	sent   int
	done   int
	errors int
	waits  []float64 // a ring once it has meterWindow entries
	next   int       // in the ring
}

// A Snapshot is a run so far.
type Snapshot struct {
	Sent, Done, Errors int
	Wait               Summary // seconds, of the latest 8192 answers
}

// Snapshot returns the current state.
func (m *Meter) Snapshot() Snapshot {
	m.mu.Lock()
	s := Snapshot{Sent: m.sent, Done: m.done, Errors: m.errors}
	waits := append([]float64(nil), m.waits...)
	m.mu.Unlock()
	s.Wait = Summarize(waits)
	return s
}

func (m *Meter) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sent++
}

func (m *Meter) end(s Sample) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.done++
	if s.Failed() {
		m.errors++
	}
	switch {
	case math.IsNaN(s.Wait):
	case len(m.waits) < meterWindow:
		m.waits = append(m.waits, s.Wait)
	default:
		m.waits[m.next] = s.Wait
		m.next = (m.next + 1) % meterWindow
	}
}
