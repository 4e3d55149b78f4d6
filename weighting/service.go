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

// observeGauges learns from what the gauges show.
func (s *service) observeGauges(did *served, seen *ServerReport) {
	s.ceiling.observe(did, seen)
	if did.running.dt > 0 && s.slots > 0 && !s.ceiling.showsNone(seen) {
		all := 0.0
		if seen.Running.Value >= s.slots {
			all = 1
		}
		s.taken.add(all, did.running.dt, speedTau)
	}
}

// restarted forgets what the process did that is gone, and keeps what was learned of the machine.
func (s *service) restarted() {
	s.executing = smoothed{}
	if !s.ceiling.limits {
		s.ceiling = ceiling{}
	}
}

// observe learns slots and speed of a server that completes so many requests per second.
func (s *service) observe(did *served, perSecond float64) {
	busy := did.busy.perSecond()
	executed := s.executed(busy, did.busy.dt)
	s.executing.add(executed, did.busy.dt, windowTau)
	s.executingLong.add(executed, did.busy.dt, speedTau)
	queue := &did.queue
	s.fullBusy.fade(queue.dt, slotsTau)
	// Completions empty queues: to ask for a queue at the end of the interval too would leave out the busiest ones. But
	// the queue must be one that lasts: a few of many short requests that wait show nothing about the following second.
	if queue.dt > 0 && queue.before > 0 && queue.before >= perSecond*queue.dt.Seconds()/2 {
		s.fullBusy.add(busy, did.busy.dt, speedTau)
	}
	s.fullKnown = s.fullBusy.over(slotsLeast) || s.fullKnown && s.fullBusy.over(slotsKept)
	if math.IsNaN(busy) && did.running.dt > 0 {
		busy = did.running.before + did.running.by/2
	}
	if done := &did.completions; done.dt > 0 && !math.IsNaN(busy) {
		s.pace.add(done.at, done.by, busy*done.dt.Seconds(), done.dt)
	}
}

// executed is as much of the growth of the busy time, per second, as is possible: no more runs than there are slots. A
// request counts with all its time when it ends, so the time of the past may be reported at once: as much as three
// requests in each slot take on average.
func (s *service) executed(busy float64, dt time.Duration) float64 {
	const requests = 3 // a bound
	rate, ok := s.pace.known.rate()
	if !ok || s.slots == 0 || math.IsNaN(busy) {
		return busy
	}
	s.unreported = min(s.unreported+s.slots*dt.Seconds(), s.slots*requests/rate)
	counted := min(busy*dt.Seconds(), s.unreported)
	s.unreported -= counted
	return counted / dt.Seconds()
}
