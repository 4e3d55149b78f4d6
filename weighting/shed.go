package weighting

import (
	"time"

	"steelyard/weighting/shed"
)

// shed determines the share of requests to refuse (package shed).
func (l *Law) shed(p *pool, d *Decision, s Snapshot) {
	pool := shed.Pool{
		Horizon: p.unseen, PushDelay: s.PushDelay, ArrivalRate: d.ArrivalRate, Endpoints: len(p.members),
		Used: l.scratch.used[:0],
	}
	for i := range p.members {
		m := &p.members[i]
		pool.Slots += m.slotCount
		all, pair, change := m.passages(p)
		if m.out() || m.unused() || m.inEffect.Drained {
			continue
		}
		waiting := m.waiting()
		free := p.openSlots(m, waiting)
		pool.Used = append(pool.Used, shed.Endpoint{
			Slots: m.slotCount, Waiting: waiting, Free: free,
			FreeFor: m.idle(free > 0, p.now) - m.loadAge - m.blind(),
			All:     all, Pair: pair, Change: change,
		})
	}
	l.scratch.used = pool.Used
	o := &l.params.Shedding
	d.ExpectedWait, d.DropFraction = l.shedder.Step(p.now, &pool, o.Enabled, shed.Params{
		TargetWait: o.TargetWait, MaxDrop: o.MaxDrop})
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
func (m *member) blind() time.Duration {
	const longest = 10.0 // seconds
	if m.seen.running.usable() || m.loadSource == LoadInFlight || m.loadSource == LoadFused {
		return 0
	}
	rate, _ := m.pace.known.rate()
	return time.Duration(min(1/rate, longest) * float64(time.Second))
}

// openSlots are the free slots of a member that requests are sent to for as long as it has any. One that is flagged
// or slow gets none for its free slots, and a new one as many as it is trusted with: nothing that is refused would have
// come to the others.
func (p *pool) openSlots(m *member, waiting float64) float64 {
	const half = 0.5 // of a request
	free := m.freeSlots(waiting)
	switch {
	case m.flagged && p.unflagged > 0, m.slow:
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
func (m *member) freeSlots(waiting float64) float64 {
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

// atOnce is how many requests the endpoint executes at once, though its capacity may be configured as less: at least
// one, and at least those that it reports.
func (m *member) atOnce() float64 {
	least := max(1, m.slotCount)
	if trusted(m.seen.running.state) {
		least = max(least, m.seen.running.Value)
	}
	return least
}

// waiting is how many requests wait for a slot; NaN while unknown. Counts of requests in flight show it earlier than
// the server.
func (m *member) waiting() float64 {
	early := m.loadSource == LoadFused || m.loadSource == LoadInFlight
	if early && m.slotsSource != CapacityWork && trusted(m.loadState) && m.slotsSource != CapacityAssumed {
		return max(0, m.load-m.atOnce())
	}
	return m.queued * m.slotCount
}
