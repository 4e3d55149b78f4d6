package weighting

import (
	"math"
	"time"
)

// service is how many requests an endpoint executes, and how fast.
type service struct {
	executing     smoothed // mean requests executing, by the counter of busy time
	executingLong smoothed // the same over a longer time
	fullBusy      smoothed // the same, from readings that began with requests waiting
	fullKnown     bool     // fullBusy covers enough time
	ceiling       ceiling  // of the gauge of running requests
	taken         smoothed // part of the time in which that shows all slots taken
	pace          pace
	slots         float64 // as of the last step, configured or learned; 0 unknown
	unreported    float64 // slot-seconds that may have been executed and not reported yet, see executed
}

// observeTaken notes whether all slots are taken.
func (m *memory) observeTaken(did *served) {
	if did.running.dt > 0 && m.slots > 0 && !m.ceiling.showsNone(&m.server) {
		all := 0.0
		if m.server.Running.Value >= m.slots {
			all = 1
		}
		m.taken.add(all, did.running.dt, speedTau)
	}
}

// observeService learns slots and speed.
func (m *memory) observeService(did *served) {
	busy := did.busy.perSecond()
	executed := m.executed(busy, did.busy.dt)
	m.executing.add(executed, did.busy.dt, windowTau)
	m.executingLong.add(executed, did.busy.dt, speedTau)
	queue := &did.queue
	m.fullBusy.fade(queue.dt, slotsTau)
	// Completions empty queues: to ask for a queue at the end of the interval too would leave out the busiest ones. But
	// the queue must be one that lasts: a few of many short requests that wait show nothing about the following second.
	if queue.dt > 0 && queue.before > 0 && queue.before >= m.completions.or(0)*queue.dt.Seconds()/2 {
		m.fullBusy.add(busy, did.busy.dt, speedTau)
	}
	m.fullKnown = m.fullBusy.over(slotsLeast) || m.fullKnown && m.fullBusy.over(slotsKept)
	if math.IsNaN(busy) && did.running.dt > 0 {
		busy = did.running.before + did.running.by/2
	}
	if done := &did.completions; done.dt > 0 && !math.IsNaN(busy) {
		m.pace.add(done.at, done.by, busy*done.dt.Seconds(), done.dt)
	}
}

// executed is as much of the growth of the busy time, per second, as is possible: no more runs than there are slots. A
// request counts with all its time when it ends, so the time of the past may be reported at once: as much as three
// requests in each slot take on average.
func (m *memory) executed(busy float64, dt time.Duration) float64 {
	const requests = 3
	rate, ok := m.pace.known.rate()
	if !ok || m.slots == 0 || math.IsNaN(busy) {
		return busy
	}
	m.unreported = min(m.unreported+m.slots*dt.Seconds(), m.slots*requests/rate)
	counted := min(busy*dt.Seconds(), m.unreported)
	m.unreported -= counted
	return counted / dt.Seconds()
}
