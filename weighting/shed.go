package weighting

// Shedding: a saturated pool refuses some requests, to keep the wait of the others at a target
//
// Requests that wait for longer than their clients want the answer cost capacity and help nobody. The target, the queue
// delay by Little's law from queue and departure rate, and the allowance for bursts (nothing is refused before half of
// the target is reached) are those of PIE (RFC 8033); that one must distinguish a queue that stands from one that
// serves a burst is the point of CoDel (RFC 8289). Unlike a router, the law may go by what is offered, because it knows
// what it refused:
//
//	w   expected wait, seconds    Q / μ (Little): requests waiting in the pool over its
//	                              completions per second while no slot is free
//	λ   offered, per second       arrivals / seconds of the share that was accepted then
//	w*  aim, seconds              below: TargetWait where there is room for it
//	T   time constant, seconds    max(w*, 4·H), and once settled min(800/μ, 8·w*, μ·w*²/4) if
//	                              that is longer
//	x   = max(0, ln(λ/μ) + (w − w*) / T)
//	    share to refuse           min(1 − exp(−x), MaxDrop)
//
// ln(λ/μ) is the feed-forward: that share by itself would keep the queue as it is. The second term fills or drains the
// queue within T. While the pool is saturated w grows by (accepted/μ − 1) a second, so the loop is w' = −(w − w*)/T
// near the aim whatever λ and μ are: of first order, without overshoot while T is well above the delay in it, which is
// H. There is no integral that could wind up: λ is estimated from what still arrives at the share refused now, and
// therein lies the integration (a rate that is reported too high by a tenth, or proxies that do not obey, are made up
// for, because a share that leaves the queue growing shows a larger λ).
//
// # How short an aim the spread asks for
//
// The mean is controlled; clients notice the wait of single requests. At most one in a hundred of the accepted should
// wait for longer than t, twice the target. An endpoint takes a request from its queue each 1/μ_i seconds. Where
// services are exponential, or the slots are several, the number that it takes within t is Poisson, of mean m = t·μ_i,
// and request number k waits for longer than t if fewer than k are taken (the duality of Erlang's distribution and
// Poisson's). So k may be
//
//	k = m − z·√m + (z² − 1)/6
//
// the quantile of that number by its first three cumulants, which are all m (Cornish and Fisher, 1938). z is 2.5, one
// in 160, because what is controlled is an estimate. To the variance comes what moves the queue itself: arrivals and
// ends at the endpoint, unseen for a horizon, and the wandering of the pool's mean (below). In seconds:
//
//	t   = 2·TargetWait
//	w*  = min(TargetWait, t − z·√((t + 2·H)/μ_i + T/μ) + (z² − 1)/(6·μ_i))
//	    no less than √(1/μ_i² + 8·H/μ_i)
//
// The least is one request waiting at each endpoint, and what outlasts, by two standard deviations, what comes and goes
// there within a horizon. With less, slots would be idle, unseen, while requests are refused: goodput is more important
// than the wait. There is room for both where TargetWait is four times 1/μ_i and the loads are fresh: four services in
// front of one slot, one service in front of four. From about a dozen on w* is the target itself.
//
// # Why the drop fraction hardly moves
//
// Arrivals and ends are random, and w follows them as a random walk whose variance grows by 2/μ a second. To hold it,
// the mean of (w − w*)·x must be 1/μ; so a law that holds w to a standard deviation of d moves x by 1/(μ·d) at least
// (Cauchy and Schwarz), and the linear one does not move it by more: √(T/μ) is that of w, and 1/√(μ·T) that of x. A
// short T costs unrest. T is what 800 requests take, which moves x by 0.035, unless w would then wander by more than
// half of w*. After a change, and until w is within a quarter of w*, T is short. flows.go has the rates, quantizer.go
// the steps.
//
// # When nothing is refused
//
// Nothing is refused while a slot is free: not for the moment until the next request takes it, but if it stays free for
// a horizon and the time in which as many requests arrive as there are slots, at most half a second; twice that if
// others wait. What is offered is then learned from the last hundred requests on. (Of a server that does not report
// what it executes: if nothing has waited there for the time of a service.) Slots of endpoints that stall or fail, or
// that the proxies do not use, are no capacity. Those of an endpoint that is flagged while others are not, is slow or
// gets a trickle are not free, because nothing is sent there to take them; of a new one, as many are as it is trusted
// with.

import (
	"math"
	"time"
)

// shedder keeps the wait of a saturated pool near its target.
type shedder struct {
	full        bool          // whether nearly all slots were taken at the last step
	lastReading time.Time     // that the rates took in
	delay       time.Duration // of a push
	steps       dropQuantizer // share refused
	rates       flows
	settled     bool    // the wait has been near the aim since the load last changed
	long        float64 // T once settled: seconds within which the wait returns to the aim
}

// backlog is the queues and free slots of a pool.
type backlog struct {
	slots      float64       // of all members in use
	knownSlots float64       // slots of the members whose queue is known
	waiting    float64       // requests at those
	free       float64       // slots
	idle       time.Duration // for which a slot has been free, the longest
}

// shed determines the share of requests to refuse.
func (l *Law) shed(p *pool, d *Decision, snapshot Snapshot) {
	s, o := &l.shedder, &l.params.Shedding
	s.delay = min(max(0, snapshot.PushDelay), time.Second)
	s.count(p)
	q := p.queued()
	d.ExpectedWait = q.waiting / (s.rates.capacity() * q.knownSlots)
	most := min(max(0, o.MaxDrop), 1)
	if !o.Enabled || q.slots == 0 || q.idle > p.unseen+p.timeToFill(d) {
		s.stop(p.now)
	} else {
		s.steps.update(min(s.target(d, &q, p.unseen, o.TargetWait.Seconds()), most), most/fallFor.Seconds(), p.now)
	}
	s.full = q.free <= q.slots*spare
	d.DropFraction = min(s.steps.last().drop, most)
}

// stop ends all refusing. What was offered before counts only as far as it is recent, because a slot may have stayed
// free by chance.
func (s *shedder) stop(now time.Time) {
	if s.steps.last().drop > 0 {
		s.steps.step(0, now)
		s.rates.relearnOffered()
	}
}

// fallFor is how long the largest share takes to fall to none.
const fallFor = 10 * time.Second

// spare is the part of the slots that may be free in a pool that counts as full: single ones are always about to be
// taken by the next request.
const spare = 0.05

// target is the share that brings the wait to the aim: what is offered above what is served, and what the queues hold
// too much.
func (s *shedder) target(d *Decision, q *backlog, unseen time.Duration, wait float64) float64 {
	const (
		horizons = 4    // the least time in which a queue returns to the aim
		near     = 0.25 // of the aim
	)
	if !(wait > 0) || math.IsNaN(d.ExpectedWait) {
		return 0
	}
	horizon := unseen.Seconds()
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

// aim is the expected wait that keeps the wait of all but few requests within twice the wanted one, as far as the slots
// stay busy with it.
func (s *shedder) aim(wanted, horizon, slots, endpoints float64) float64 {
	const (
		few    = 2.5  // standard deviations: all but 0.6 %
		sigmas = 2    // of what comes and goes at an endpoint in a horizon
		calm   = 800  // requests in which the wait returns to the aim
		times  = 8    // the aim: the longest time in which it returns
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

// queued adds up queues and free slots.
func (p *pool) queued() (q backlog) {
	for i := range p.members {
		m := &p.members[i]
		if m.ejected() || m.unused || m.inEffect.Drained {
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

// timeToFill is how long a free slot may stay so by chance: until as many requests have arrived as the pool has slots,
// and a few; and longer while others wait, because then there are requests to fill it.
func (p *pool) timeToFill(d *Decision) time.Duration {
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

// openSlots are the free slots of a member that requests are sent to for as long as it has any. One that is flagged,
// slow or limited to a trickle gets none for its free slots, and a new one as many as it is trusted with: nothing that
// is refused would have come to the others.
func (p *pool) openSlots(m *member, waiting float64) float64 {
	const half = 0.5 // of a request
	free := m.freeSlots(waiting)
	switch {
	case m.flagged && p.someUnflagged, m.lifted && m.strained(p), m.slow:
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
