package weighting

// Pairing the two signals of an endpoint
//
// Scrapes and in-flight counts are paired (pair): the difference is smoothed with a time constant of 2 s. A difference
// that jumps by more than the slots is no noise and counts at once. A count that falls by dozens between two readings
// was rewritten, and the scrape is used by itself until the two are paired again.
//
// A server that exports no gauge of running requests (Triton) is taken to run a full set of slots while any request
// waits. Otherwise its mean number executing over about a minute, from the differences of its counter of busy time,
// stands in. That mean cannot correct another count: while no request waits, an in-flight count is corrected only as
// far as is needed to lie between none and a full set. What runs on average, by the counter of busy time, is no more
// than the slots, plus three requests in each that ran before.

import (
	"math"
	"time"
)

// A pairing is how an endpoint's two signals compare.
type pairing struct {
	recent    [64]Reading // in-flight counts, to pair with scrapes; a ring, see remember
	next      int
	paired    time.Time // when the scrape was taken that was last paired
	unproxied smoothed  // scraped − in-flight, requests
}

func (m *memory) observeInFlight(seen Reading) {
	if !seen.At.After(m.inFlight.At) {
		return
	}
	rise := gauge(m.inFlight, seen)
	m.passed.inFlight = rise
	m.increments.add(max(0, rise.perSecond()), rise.dt, rateTau)
	if rise.by < -rewritten {
		// Requests do not end by the dozen in one moment: a count that leaked was corrected, and the difference learned
		// until now is wrong from here on.
		m.unproxied, m.paired = smoothed{}, time.Time{}
	}
	m.inFlight = seen
	m.remember(seen)
}

// remember keeps the newest count, and of those before it one in 10 ms. A scrape is paired with the count of its own
// moment, which is as old as an exchange may take, and counts can come with every step.
func (m *memory) remember(seen Reading) {
	const apart = 10 * time.Millisecond
	at := func(back int) *Reading { return &m.recent[(m.next-back)%len(m.recent)] }
	if m.next > 1 && at(1).At.Sub(at(2).At) < apart {
		m.next--
	}
	*at(0) = seen
	m.next++
}

// pair compares a new scrape with the in-flight count of the same moment. A count from more than half a second before
// or after shows nothing about it, and neither does half a load.
func (m *memory) pair(slots float64, from CapacitySource) {
	const nearEnough = 500 * time.Millisecond
	queue, running := m.queueGauge(), m.executes(slots)
	if !queue.Known() || !running.Known() || !m.measuresRunning(from) {
		return
	}
	if !queue.At.After(m.paired) || queue.At.Sub(running.At).Abs() > nearEnough {
		return
	}
	near, ok := m.inFlightNear(queue.At, nearEnough)
	if !ok {
		return
	}
	difference := queue.Value + running.Value - near
	if !m.server.Running.Known() && queue.Value == 0 {
		// Anything up to a full set of slots may be executing: the current estimate stands, as far as it is possible.
		difference = min(max(0, near+m.unproxied.or(0)), slots) - near
	}
	if math.Abs(difference-m.unproxied.or(difference)) > max(slots, fewestSlots) {
		m.unproxied = smoothed{} // no noise: the count was rewritten
	}
	m.unproxied.add(difference, queue.At.Sub(m.paired), unproxiedTau)
	m.paired = queue.At
}

// Bounds on what may be traffic or noise, in requests.
const (
	fewestSlots = 8  // a difference of the two signals up to this, or to the slots, is noise
	rewritten   = 64 // a fall of the in-flight count by more, between two readings, is no traffic
)

// inFlightNear is the in-flight count that was read nearest to that time. The newest come first, so the first one from
// before it ends the search.
func (m *memory) inFlightNear(at time.Time, within time.Duration) (requests float64, ok bool) {
	best := within
	for back := 1; back <= min(m.next, len(m.recent)); back++ {
		r := m.recent[(m.next-back)%len(m.recent)]
		apart := at.Sub(r.At)
		if apart.Abs() <= best {
			requests, best, ok = r.Value, apart.Abs(), true
		}
		if apart >= 0 {
			break
		}
	}
	return requests, ok
}

// executes is the number executing: the gauge. Without one it is a full set of slots while requests wait, and the usual
// number while none does, by the counter of busy time. That number is a long mean: a short one moves with each
// completion, and ranks the endpoints by noise.
func (m *memory) executes(slots float64) Reading {
	queue := m.server.Queue
	switch {
	case m.health.Stuck:
	case m.server.Running.Known():
		return m.server.Running
	case queue.Known() && queue.Value > 0:
		return Reading{Value: slots, At: queue.At}
	case queue.Known() && m.executingLong.over(0):
		return Reading{Value: min(m.executingLong.or(0), slots), At: earlier(queue.At, m.server.BusySeconds.At)}
	}
	return Reading{}
}

// measuresRunning reports whether executes is a measurement.
func (m *memory) measuresRunning(from CapacitySource) bool {
	return m.server.Running.Known() || from != CapacityAssumed
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
