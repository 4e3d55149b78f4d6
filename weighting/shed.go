package weighting

import (
	"math"
	"time"
)

// shedder keeps the wait of a saturated pool near its target (package comment).
type shedder struct {
	full        bool          // whether nearly all slots were taken at the last step
	lastReading time.Time     // when the rates were last told anything
	delay       time.Duration // of a push
	steps       dropQuantizer // share refused
	rates       flows
	settled     bool    // the wait has been near the aim since the load last turned
	long        float64 // seconds in which a wait off the aim is to go, once settled
}

// backlog is what shedding sees of a pool.
type backlog struct {
	slots      float64       // of all members that serve
	knownSlots float64       // slots, of those whose queue is known
	waiting    float64       // requests, at those
	free       float64       // slots
	idle       time.Duration // for which a slot has been free, the longest
}

// shed settles the share of requests to refuse.
func (l *Law) shed(p *pool, d *Decision, snapshot Snapshot) {
	s, o := &l.shedder, &l.params.Shedding
	s.delay = min(max(0, snapshot.PushDelay), time.Second)
	s.count(p)
	q := p.queued()
	d.ExpectedWait = q.waiting / (s.rates.capacity() * q.knownSlots)
	most := min(max(0, o.MaxDrop), 1)
	if !o.Enabled || q.slots == 0 || q.idle > d.Horizon+p.takes(d) {
		s.leave(p.now)
	} else {
		s.steps.update(min(s.target(d, &q, o.TargetWait.Seconds()), most), most/fallFor.Seconds(), p.now)
	}
	s.full = q.free <= q.slots*spare
	d.DropFraction = min(s.steps.last().drop, most)
}

// leave ends all refusing. What was offered before counts as far as it is of late, for
// a slot may have been left alone by chance.
func (s *shedder) leave(now time.Time) {
	if s.steps.last().drop > 0 {
		s.steps.step(0, now)
		s.rates.relearnOffered()
	}
}

// fallFor is how long the largest share takes to fall to none.
const fallFor = 10 * time.Second

// spare is the part of the slots that may be free in a pool that counts as full:
// single ones are always just being given to the next request.
const spare = 0.05

// target is the share that brings the wait to where it should be: what is offered
// above what is served, and what the queues hold too much.
func (s *shedder) target(d *Decision, q *backlog, wait float64) float64 {
	const (
		horizons = 4    // in which what a queue has too much is to go, at least
		near     = 0.25 // of the aim
	)
	if !(wait > 0) || math.IsNaN(d.ExpectedWait) {
		return 0
	}
	horizon := d.Horizon.Seconds()
	aim := s.aim(wait, horizon, q.slots, float64(len(d.Endpoints)))
	begins := s.steps.last().drop == 0
	if begins && d.ExpectedWait < max(aim/2, min(aim, wait/2)) {
		return 0
	}
	s.settled = math.Abs(d.ExpectedWait-aim) < near*aim || s.settled && !begins && !s.rates.changed()
	within := aim
	if s.settled {
		within = s.long
	}
	x := s.rates.excess() + (d.ExpectedWait-aim)/max(within, horizons*horizon)
	return -math.Expm1(-max(0, x))
}

// aim is the expected wait that keeps the wait of all but few requests within twice
// the wanted one, as far as the slots stay busy with it (package comment).
func (s *shedder) aim(wanted, horizon, slots, endpoints float64) float64 {
	const (
		few    = 2.5  // standard deviations: all but 0.6 %
		sigmas = 2    // of what comes and goes at an endpoint in a horizon
		calm   = 800  // requests in which a wait off the aim is to go
		times  = 8    // the aim, in which it is to go at the longest
		wander = 0.25 // of the aim, squared: the variance that this may cause
	)
	pool := s.rates.capacity() * slots // per second
	each := endpoints / pool           // seconds between two requests that an endpoint takes from its queue
	spread := (2*wanted+2*horizon)*each + s.long/pool
	longest := 2*wanted - few*math.Sqrt(spread) + (few*few-1)/6*each
	aim := max(min(wanted, longest), math.Hypot(each, sigmas*math.Sqrt(2*horizon*each)))
	s.long = max(aim, min(calm/pool, times*aim, wander*pool*aim*aim))
	return aim
}

// queued looks at queues and free slots.
func (p *pool) queued() (q backlog) {
	for i := range p.members {
		m := &p.members[i]
		if m.ejected() || m.unused {
			continue
		}
		q.slots += m.slotCount
		waiting := m.waiting()
		if !math.IsNaN(waiting) {
			q.knownSlots += m.slotCount
			q.waiting += waiting
		}
		free := p.openSlots(m, waiting)
		q.free += free
		q.idle = max(q.idle, m.tally.idle(free > 0, p.now)-m.loadAge-m.blind())
	}
	return q
}

// takes is how long a slot that was seen free may stay so by chance: until as many
// requests have arrived as the pool has slots, and a few; and for longer while others
// wait, for then it is not that there is nobody to fill it.
func (p *pool) takes(d *Decision) time.Duration {
	const few, most, longer = 5.0, 0.5, 2 // requests, seconds, times
	some := few
	for i := range p.members {
		some += p.members[i].slotCount
	}
	takes := time.Duration(min(some/d.ArrivalRate, most) * float64(time.Second))
	if d.ExpectedWait >= p.params.Shedding.TargetWait.Seconds()/4 {
		takes *= longer
	}
	return takes
}

// blind is for how long an endpoint that does not tell what it executes may be full
// though nothing waits there: until what it executes has ended.
func (m *member) blind() time.Duration {
	const longest = 10.0 // seconds
	if m.seen.running.usable() || m.loadSource == LoadInFlight || m.loadSource == LoadFused {
		return 0
	}
	rate, _ := m.pace.known.rate()
	return time.Duration(min(1/rate, longest) * float64(time.Second))
}

// openSlots are the free slots of a member that requests are sent to for as long as it has
// any. Who is flagged, slow or kept to a trickle gets none for its free slots, and who is new
// as many as it is trusted with: nothing that is refused would have come to the others.
func (p *pool) openSlots(m *member, waiting float64) float64 {
	const half = 0.5 // of a request
	free := m.freeSlots(waiting)
	switch {
	case m.flagged && p.spared, m.lifted && m.strained(p), m.slow:
		return 0
	case m.ramp < 1:
		if free = min(free, m.slotCount*m.ramp-m.todo); free < half {
			return 0
		}
	}
	return free
}

// freeSlots are those in which requests could start now. Where slots are only
// assumed, an empty queue tells that there are some.
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

// atOnce is how many requests it executes at once, though its capacity may be configured as
// less: one at least, and those that it says it does.
func (m *member) atOnce() float64 {
	least := max(1, m.slotCount)
	if trusted(m.seen.running.state) {
		least = max(least, m.seen.running.Value)
	}
	return least
}

// waiting is how many requests wait for a slot; NaN where nothing tells. Counts of
// requests in flight tell it earlier than the server.
func (m *member) waiting() float64 {
	early := m.loadSource == LoadFused || m.loadSource == LoadInFlight
	if early && m.slotsSource != CapacityWork && trusted(m.loadState) && m.slotsSource != CapacityAssumed {
		return max(0, m.load-m.atOnce())
	}
	return m.queued * m.slotCount
}
