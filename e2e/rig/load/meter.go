package load

import (
	"math"
	"net/http"
	"sync"
	"time"
)

// meterWindow is how many of the latest waits a Meter remembers.
const meterWindow = 8192

// A Meter shows a run while it goes on. The zero value is ready; it may be
// shared by runs that follow each other.
type Meter struct {
	mu      sync.Mutex
	counts  Snapshot      // without Wait and Latency
	latency time.Duration // sum over the requests that were answered
	waits   []float64     // a ring once it has meterWindow entries
	next    int           // in the ring
}

// A Snapshot is a run so far.
type Snapshot struct {
	Sent, Done, Errors int
	Refused            int           // of the errors, those answered 503 or 429
	Latency            time.Duration // mean of the requests that were answered without an error
	Wait               Summary       // seconds, of the latest 8192 answers
}

// Answered returns the number of requests that were answered without an error.
func (s Snapshot) Answered() int { return s.Done - s.Errors }

// Snapshot returns the current state.
func (m *Meter) Snapshot() Snapshot {
	m.mu.Lock()
	s := m.counts
	s.Latency = m.latency / time.Duration(max(1, s.Answered()))
	waits := append([]float64(nil), m.waits...)
	m.mu.Unlock()
	s.Wait = Summarize(waits)
	return s
}

func (m *Meter) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counts.Sent++
}

func (m *Meter) end(s Sample) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counts.Done++
	switch {
	case s.Status == http.StatusServiceUnavailable, s.Status == http.StatusTooManyRequests:
		m.counts.Errors, m.counts.Refused = m.counts.Errors+1, m.counts.Refused+1
	case s.Failed():
		m.counts.Errors++
	default:
		m.latency += s.Latency
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
