package shed

import (
	"math"
	"time"
)

// Params are the target and the bound.
type Params struct {
	TargetWait time.Duration // in the pool's queues
	MaxDrop    float64       // the largest share refused, 0..1
}

// A Pool is what a step shows of the pool.
type Pool struct {
	Horizon     time.Duration // until a decision is answered by the next one
	PushDelay   time.Duration // from a decision to its effect in the proxies
	ArrivalRate float64       // requests per second
	Slots       float64       // of all endpoints
	Endpoints   int           // all of them
	Used        []Endpoint    // those that the proxies send requests to, for as long as a slot there is free
}

// An Endpoint is one that is used.
type Endpoint struct {
	Slots   float64       // requests executed at once
	Waiting float64       // requests; NaN unknown
	Free    float64       // slots that the next requests would take
	FreeFor time.Duration // since when one has been free, less what the reports may be late
	// All are the completions and Pair arrivals and ends by one source, since the last step; Change is of the load,
	// where no source counts requests.
	All, Pair, Change Flow
}

// A Flow is what came to an endpoint and left it between two readings. The zero Flow is none.
type Flow struct {
	Arrived, Left float64 // requests
	From, To      time.Time
}

// Seconds is the time between the readings.
func (f *Flow) Seconds() float64 { return f.To.Sub(f.From).Seconds() }

// A Controller keeps the wait of a saturated pool near its target.
type Controller struct {
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
	slots      float64       // of all endpoints in use
	knownSlots float64       // of those whose queue is known
	waiting    float64       // requests at those
	free       float64       // slots
	idle       time.Duration // for which a slot has been free, the longest
}

// Step returns the expected wait in seconds, NaN while unknown, and the share of requests to refuse, which is 0 unless
// shedding is on.
func (c *Controller) Step(now time.Time, p *Pool, on bool, o Params) (wait, share float64) {
	c.delay = min(max(0, p.PushDelay), time.Second)
	c.count(now, p)
	q := p.backlog()
	wait = q.waiting / (c.rates.capacity() * q.knownSlots)
	most := min(max(0, o.MaxDrop), 1)
	if !on || q.slots == 0 || q.idle > p.Horizon+p.timeToFill(wait, o.TargetWait) {
		c.stop(now)
	} else {
		want := min(c.target(p, &q, wait, o.TargetWait.Seconds()), most)
		c.steps.update(want, most/fallFor.Seconds(), now)
	}
	c.full = q.free <= q.slots*spare
	return wait, min(c.steps.last().drop, most)
}

// stop ends all refusing. What was offered before counts only as far as it is recent, because a slot may have stayed
// free by chance.
func (c *Controller) stop(now time.Time) {
	if c.steps.last().drop > 0 {
		c.steps.step(0, now)
		c.rates.relearnOffered()
	}
}

// fallFor is how long the largest share takes to fall to none.
const fallFor = 10 * time.Second

// spare is the part of the slots that may be free in a pool that counts as full: single ones are always about to be
// taken by the next request.
const spare = 0.05

// target is the share that brings the wait to the aim: what is offered above what is served, and what the queues hold
// too much.
func (c *Controller) target(p *Pool, q *backlog, expected, wanted float64) float64 {
	const (
		horizons = 4    // the least time in which a queue returns to the aim
		near     = 0.25 // of the aim
	)
	if !(wanted > 0) || math.IsNaN(expected) {
		return 0
	}
	horizon := p.Horizon.Seconds()
	aim := c.aim(wanted, horizon, q.slots, float64(p.Endpoints))
	begins := c.steps.last().drop == 0
	if begins && expected < max(aim/2, min(aim, wanted/2)) {
		return 0
	}
	c.settled = math.Abs(expected-aim) < near*aim || c.settled && !begins && !c.rates.changed()
	within := aim
	if c.settled {
		within = c.long
	}
	x := c.rates.excess() + (expected-aim)/max(within, horizons*horizon)
	return -math.Expm1(-max(0, x))
}

// aim is the expected wait that keeps the wait of all but few requests within twice the wanted one, as far as the slots
// stay busy with it.
func (c *Controller) aim(wanted, horizon, slots, endpoints float64) float64 {
	const (
		few    = 2.5  // standard deviations: all but 0.6 %
		sigmas = 2    // of what comes and goes at an endpoint in a horizon
		calm   = 800  // requests in which the wait returns to the aim
		times  = 8    // the aim: the longest time in which it returns
		wander = 0.25 // of the aim, squared: the variance that this may cause
	)
	pool := c.rates.capacity() * slots // per second
	each := endpoints / pool           // seconds between two requests that an endpoint takes from its queue
	spread := (2*wanted+2*horizon)*each + c.long/pool
	longest := 2*wanted - few*math.Sqrt(spread) + (few*few-1)/6*each
	aim := max(min(wanted, longest), math.Hypot(each, sigmas*math.Sqrt(2*horizon*each)))
	c.long = max(aim, min(calm/pool, times*aim, wander*pool*aim*aim))
	return aim
}

// backlog adds up queues and free slots.
func (p *Pool) backlog() (q backlog) {
	for i := range p.Used {
		e := &p.Used[i]
		q.slots += e.Slots
		if !math.IsNaN(e.Waiting) {
			q.knownSlots += e.Slots
			q.waiting += e.Waiting
		}
		q.free += e.Free
		q.idle = max(q.idle, e.FreeFor)
	}
	return q
}

// timeToFill is how long a free slot may stay so by chance: until as many requests have arrived as the pool has slots,
// and a few; and longer while others wait, because then there are requests to fill it.
func (p *Pool) timeToFill(wait float64, target time.Duration) time.Duration {
	const few, most, longer = 5.0, 0.5, 2 // requests, seconds, times
	takes := time.Duration(min((few+p.Slots)/p.ArrivalRate, most) * float64(time.Second))
	if wait >= target.Seconds()/4 {
		takes *= longer
	}
	return takes
}

// count takes in what came and went since the last step. Completions show the capacity only while hardly a slot is
// free.
func (c *Controller) count(now time.Time, p *Pool) {
	for i := range p.Used {
		e := &p.Used[i]
		all, pair, change := &e.All, &e.Pair, e.Change
		if all.Seconds()+pair.Seconds()+change.Seconds() > 0 {
			c.forget(now, p.Slots)
		}
		c.offered(e.Slots, pair)
		if c.full {
			c.rates.done.add(pair.Left, pair.Seconds()*e.Slots)
			c.rates.served.add(all.Left, all.Seconds()*e.Slots)
			c.rates.changes.add(change.Arrived-change.Left, change.Seconds()*e.Slots)
			change.Arrived += c.rates.changes.departures()*change.Seconds()*e.Slots - change.Left
			c.offered(e.Slots, &change)
		}
	}
}

// forget fades the rates by the time since the last reading. While there is no reading they stay: arrivals are
// forgotten sooner than completions, so a silence would look like a flood.
func (c *Controller) forget(now time.Time, slots float64) {
	if !c.lastReading.IsZero() && now.After(c.lastReading) {
		c.rates.fade(now.Sub(c.lastReading).Seconds(), slots, accepting(c.steps.last().drop), c.full)
	}
	c.lastReading = now
}

// offered counts what arrived together with what was refused meanwhile. A drop fraction takes effect about a push later
// than it was decided: fine-grained readings right after that still reflect the old drop fraction, and would look like
// a flood.
func (c *Controller) offered(slots float64, f *Flow) {
	const unsure = 100 * time.Millisecond
	inEffect := c.steps.last().since.Add(c.delay)
	if f.Seconds() > 0 && !(f.To.After(inEffect) && f.To.Before(inEffect.Add(unsure)) && f.To.Sub(f.From) < unsure) {
		accepted := c.steps.accepted(f.From.Add(-c.delay), f.To.Add(-c.delay))
		c.rates.sent.add(f.Arrived, f.Seconds()*slots*accepted)
	}
}
