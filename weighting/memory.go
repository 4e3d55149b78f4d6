package weighting

import (
	"math"
	"time"
)

// memory is what the law remembers of an endpoint between two steps.
type memory struct {
	firstSeen   time.Time
	lastSeen    time.Time
	established bool // there from the start: no blackout, no ramp

	server   ServerReport // the newest reading of each field
	inFlight Reading
	recent   [16]Reading // of inFlight, to pair with scrapes; a ring
	next     int

	paired        time.Time // when the scrape was taken that was last paired
	unproxied     smoothed  // scraped − in-flight, requests
	arrivals      smoothed  // requests per second, by completions and growth
	increments    smoothed  // requests per second, by rises of the in-flight count
	completions   smoothed  // requests per second
	queueSeconds  smoothed  // request-seconds per second
	executing     smoothed  // mean requests executing, by the counter of busy time
	fullExecuting smoothed  // the same, while requests waited from one report to the next
	running       smoothed  // gauge of running requests while others waited
	work          work

	overloaded bool
	flagReason string
	flagSince  time.Time // of the present state; zero before the first change
}

// work is what a server has done in about the last minute: both sums fade with
// the time constant speedTau, so their ratio weighs the recent past most.
type work struct {
	completions float64 // requests
	busy        float64 // slot-seconds
}

func (w *work) add(completions, busy float64, dt time.Duration) {
	keep := math.Exp(-dt.Seconds() / speedTau.Seconds())
	w.completions = w.completions*keep + completions
	w.busy = w.busy*keep + busy
}

// rate is completions per busy slot-second; false before it means anything.
func (w *work) rate() (float64, bool) {
	const fewest = 5 // completions
	if w.completions < fewest || w.busy <= 0 {
		return 0, false
	}
	return w.completions / w.busy, true
}

// observe takes in what is new in a report.
func (m *memory) observe(e *Endpoint, now time.Time) {
	m.lastSeen = now
	m.observeInFlight(usable(e.InFlight))
	seen := merge(m.server, e.Server)
	if p, moved := between(&m.server, &seen); moved {
		m.observeProgress(p, &m.server, &seen)
	}
	m.server = seen
}

func (m *memory) observeInFlight(seen Reading) {
	if !seen.Known() || !seen.At.After(m.inFlight.At) {
		return
	}
	if m.inFlight.Known() {
		dt := seen.At.Sub(m.inFlight.At)
		m.increments.add(max(0, seen.Value-m.inFlight.Value)/dt.Seconds(), dt, rateTau)
	}
	m.inFlight = seen
	m.recent[m.next%len(m.recent)] = seen
	m.next++
}

// observeProgress learns rates and speed from what happened between two reports.
func (m *memory) observeProgress(p progress, old, seen *ServerReport) {
	dt := p.elapsed
	perSecond := func(s *smoothed, amount float64, tau time.Duration) {
		if !math.IsNaN(amount) {
			s.add(amount/dt.Seconds(), dt, tau)
		}
	}
	waited := old.Queue.Known() && seen.Queue.Known() && old.Queue.Value > 0 && seen.Queue.Value > 0
	perSecond(&m.completions, p.completions, windowTau)
	perSecond(&m.queueSeconds, p.queueSeconds, windowTau)
	perSecond(&m.executing, p.busySeconds, windowTau)
	if waited {
		perSecond(&m.fullExecuting, p.busySeconds, speedTau)
		if seen.Running.Known() {
			m.running.add(seen.Running.Value, dt, speedTau/4)
		}
	}
	if !math.IsNaN(p.completions) {
		growth := known(seen.Queue) + known(seen.Running) - known(old.Queue) - known(old.Running)
		perSecond(&m.arrivals, p.completions+growth, rateTau)
		busy := p.busySeconds
		if math.IsNaN(busy) && seen.Running.Known() && old.Running.Known() {
			busy = (old.Running.Value + seen.Running.Value) / 2 * dt.Seconds()
		}
		if !math.IsNaN(busy) {
			m.work.add(p.completions, busy, dt)
		}
	}
}

// known is the value of a reading, and no contribution where there is none.
func known(r Reading) float64 {
	if r.Known() {
		return r.Value
	}
	return 0
}

// pair compares a scrape that is new with the in-flight count of the same
// moment. A count taken more than half a second away says nothing about it.
func (m *memory) pair(slots float64) {
	const nearEnough = 500 * time.Millisecond
	queue, running := m.server.Queue, m.executes(slots)
	at := later(queue.At, running.At)
	if !at.After(m.paired) {
		return
	}
	var best Reading
	for _, r := range m.recent {
		if r.Known() && (!best.Known() || r.At.Sub(at).Abs() < best.At.Sub(at).Abs()) {
			best = r
		}
	}
	if !best.Known() || best.At.Sub(at).Abs() > nearEnough {
		return
	}
	m.unproxied.add(known(queue)+known(running)-best.Value, at.Sub(m.paired), unproxiedTau)
	m.paired = at
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// fullLeast is how much time under a queue it takes to know how many requests a
// server executes at once by its counters, which move only at completions.
const fullLeast = 3 * time.Second

// executes is the number executing: the gauge; without one, a full set of slots
// while requests wait, or the mean number executing by the counter of busy time.
func (m *memory) executes(slots float64) Reading {
	queue := m.server.Queue
	switch {
	case m.server.Running.Known():
		return m.server.Running
	case queue.Known() && queue.Value > 0:
		return Reading{Value: slots, At: queue.At}
	case queue.Known() && m.executing.over(0):
		return Reading{Value: min(slots, m.executing.or(0)), At: queue.At}
	}
	return Reading{}
}

// arrivalRate is the better of two measures, in requests per second. Rises of
// the in-flight count miss what came and went between two readings; completions
// miss what has not completed on a server without gauges. Both only miss, so the
// larger is nearer.
func (m *memory) arrivalRate(p *pool) (perSecond float64, source RateSource) {
	source = RateUnknown
	if m.increments.over(0) && p.tells(m.inFlight) {
		perSecond, source = m.increments.or(0), RateIncrements
	}
	if m.arrivals.over(0) && p.tells(m.server.Completions) {
		perSecond, source = max(perSecond, m.arrivals.or(0)), RateCompletions
	}
	return perSecond, source
}
