package weighting

import (
	"time"

	"steelyard/weighting/shed"
)

// shed determines the share of requests to refuse, and the expected wait (package shed); unflagged is how many
// endpoints have no flag.
func (l *Law) shed(p *pool, members []filled, f *forecast, u *unit, unflagged int, s *Snapshot) (wait, drop float64) {
	if u.byWork != l.byWork {
		l.byWork, l.shedder = u.byWork, shed.Controller{} // its rates are for each slot
	}
	pool := shed.Pool{
		Horizon: f.unseen, PushDelay: s.PushDelay, ArrivalRate: f.perSecond, Endpoints: len(members),
		Used: l.scratch.used.take(len(members))[:0],
	}
	for i := range members {
		m := &members[i]
		pool.Slots += m.slotCount
		if m.out() || m.unused() || m.inEffect.Drained {
			m.free = time.Time{} // a slot that gets no requests shows nothing of the pool's load
			continue
		}
		all, pair, change := m.passages(p)
		waiting := m.waiting()
		free := m.openSlots(waiting, unflagged)
		pool.Used = append(pool.Used, shed.Endpoint{
			Slots: m.slotCount, Waiting: waiting, Free: free,
			FreeFor: m.idle(free > 0, p.now) - m.loadAge - m.blind(),
			All:     all, Pair: pair, Change: change,
		})
	}
	o := &l.params.Shedding
	return l.shedder.Step(p.now, &pool, o.Enabled, shed.Params{TargetWait: o.TargetWait, MaxDrop: o.MaxDrop})
}

// passages are what was reported since the last step: all completions; arrivals and ends by one source; and, without
// such a source, changes of the load. A pair of one source misses the same requests on both sides, so their ratio is
// right.
func (m *member) passages(p *pool) (all, pair, change shed.Flow) {
	server, proxies := p.usable(m.server.Completions), p.usable(m.proxies.Issued) && p.usable(m.proxies.Ended)
	switch {
	case server && proxies:
		return m.passed.server.flow(), m.passed.proxies.flow(), change
	case server:
		all = m.passed.server.flow()
		return all, all, change
	case proxies:
		all = m.passed.proxies.flow()
		return all, all, change
	}
	return all, pair, m.change()
}

// idle is how long a slot has been free at each step.
func (m *memory) idle(free bool, now time.Time) time.Duration {
	switch {
	case !free:
		m.free = time.Time{}
		return 0
	case m.free.IsZero():
		m.free = now
	}
	return now.Sub(m.free)
}

// blind is how long an endpoint that does not report what it executes may be full though nothing waits there: until
// what it executes has ended.
func (m *laden) blind() time.Duration {
	const longest = 10.0 // seconds; a bound
	if m.seen.running.usable() || m.inFlightLeads() {
		return 0
	}
	rate, _ := m.pace.known.rate()
	return time.Duration(min(1/rate, longest) * float64(time.Second))
}

// openSlots are the free slots of a member that requests are sent to for as long as it has any. One that is flagged
// or slow gets none for its free slots, and a new one as many as it is trusted with: nothing that is refused would have
// come to the others.
func (m *filled) openSlots(waiting float64, unflagged int) float64 {
	const half = 0.5 // of a request
	free := m.freeSlots(waiting)
	switch {
	case m.flagged && unflagged > 0, m.slow:
		return 0
	case m.ramp < 1:
		if free = min(free, m.slotCount*m.ramp-m.workload); free < half {
			return 0
		}
	}
	return free
}

// freeSlots are those in which requests could start now. Where slots are only assumed, an empty queue shows that there
// are some.
func (m *judged) freeSlots(waiting float64) float64 {
	const half = 0.5 // of a request: loads are made of two signals
	switch {
	case !trusted(m.loadState) || m.loadSource == LoadMedian || waiting > 0:
		return 0
	case m.slotsSource == CapacityWork:
		return m.slotCount
	case m.slotsSource == CapacityAssumed && waiting == 0:
		return max(1, m.slotCount-m.load)
	case m.atOnce()-m.load >= half:
		return min(m.slotCount, m.atOnce()-m.load)
	}
	return 0
}

// waiting is how many requests wait for a slot; NaN while unknown. Counts of requests in flight show it earlier than
// the server.
func (m *candidate) waiting() float64 {
	if m.inFlightLeads() && m.slotsSource != CapacityWork && trusted(m.loadState) && m.slotsSource != CapacityAssumed {
		return max(0, m.load-m.atOnce())
	}
	return m.queued * m.slotCount
}
