package weighting

import (
	"math"
	"time"

	"steelyard/weighting/lag"
)

// arrivals measures the horizon and the requests to expect within it.
func (l *Law) arrivals(p *pool, d *Decision, s Snapshot) {
	d.ArrivalRate, d.ArrivalRateSource = p.arrivalRate()
	l.rate, l.counted = d.ArrivalRate, rateRank(d.ArrivalRateSource) > rateRank(RateIncrements)
	p.counted = p.counted || p.mostlyCounted()
	limited := p.limited()
	limits := limited >= 0.5
	late := l.late(p, limits)
	d.Horizon = p.horizon(s, late, limits)
	p.unseen = d.Horizon
	together := 0.0
	if p.counted || p.byWork {
		l.bursts.observe(p.now, l.arrived, len(p.members), d.Horizon)
		together = l.bursts.together()
	}
	d.Horizon = p.untilSeen(d.Horizon, d.ArrivalRate, late, limited)
	d.Arrivals = d.ArrivalRate * d.Horizon.Seconds()
	if d.ArrivalRateSource == RateUnknown {
		d.Arrivals = float64(len(p.members))
	}
	d.Arrivals = min(max(1, d.Arrivals, together), largestSum)
}

// late is how late the reports are, as far as what arrived since the step before shows it (package lag).
func (l *Law) late(p *pool, limits bool) time.Duration {
	pool := l.scratch.lagged[:0]
	for i := range p.members {
		m := &p.members[i]
		e := lag.Endpoint{History: &m.history, Share: m.share, Requests: m.came.requests, ReadAt: m.came.at}
		if m.shareFlagged {
			e.Share = 0
		}
		pool = append(pool, e)
	}
	l.lag.Step(p.now, pool, limits)
	clear(pool) // histories are the members'
	l.scratch.lagged = pool
	return l.lag.Late
}

// horizon is for how long a decision has to be good: until what follows from it is seen and answered by the next one.
// Endpoints are read at different times, so half of the interval between two readings is, on average, still to pass;
// where changes are reported as they happen it is 0. Then the next decision is pushed. Reports may be later than their
// time by a lag.
//
// Counts of the proxies are of the time at which they were read, and so are scrapes where the endpoints execute no more
// than their slots. Where they batch continuously, and scrapes are all there is, what began at an endpoint since is
// expected in its load.
func (p *pool) horizon(s Snapshot, late time.Duration, limits bool) time.Duration {
	limited := func(d time.Duration) time.Duration { return min(max(0, d), longest) }
	next := late + limited(s.PushDelay) + limited(s.PushPeriod)
	half := limited(s.ScrapeInterval) / 2
	if p.counted {
		half = limited(s.CountInterval) / 2
	}
	switch {
	case !limits && !p.counted:
		return next + 4*half
	case !math.IsNaN(p.age) && (p.counted || !p.byWork):
		return next + half + limited(time.Duration(p.age*float64(time.Second)))
	}
	return next + half
}

const longest = time.Hour

// limited is how far requests wait for slots, 0..1: those of some endpoints are known, and all of them are taken at
// times, as far as gauges show it. Configured ones may be more than an engine that batches continuously ever runs, and
// one that reaches its limit now and then is no set of slots yet: between a tenth and two fifths of the time, the
// horizons of both are mixed. Were there one threshold, uneven shares would fill an engine, which would show that slots
// are taken, which would make the shares more uneven. With the policy least latency it is 1.
func (p *pool) limited() float64 {
	const hardly, often = 0.1, 0.4 // of the time
	if p.params.LeastLatency.Enabled {
		return 1
	}
	var taken, known float64
	for i := range p.members {
		m := &p.members[i]
		if m.slotsSource != CapacityConfigured && m.slotsSource != CapacityLearned {
			continue
		}
		known++
		taken += m.taken.or(1)
	}
	if known == 0 {
		return 0
	}
	return min(1, max(0, (taken/known-hardly)/(often-hardly)))
}

// untilSeen is a horizon that is longer where nothing limits what endpoints execute at once, so that a request does not
// wait for those that run, but for the prompts that began just before. While a decision is in force for fewer arrivals
// than two fifths of the endpoints, the loads show most of these. With four fifths and more they show none, and the
// requests that they do show are no reason to hurry: they are evened out over the time in which they end. Where the
// loads are the prompts that proxies report, those that are shown keep a request waiting for longer than it takes three
// times as many to arrive.
func (p *pool) untilSeen(horizon time.Duration, perSecond float64, late time.Duration, limited float64) time.Duration {
	some, all := 0.4, 0.8 // of an arrival for each endpoint
	if p.byWork && p.counted {
		some, all = 3*some, 3*all
	}
	unseen := perSecond * horizon.Seconds() / float64(len(p.members))
	part := min((unseen-some)/(all-some), 1) * (1 - limited)
	if !(part > 0) {
		return horizon
	}
	stays := 2.0 // mean times that a request stays: hardly any of those that are shown is left after that
	switch {
	case p.counted || late > 0:
	case p.byWork:
		stays = 0.2 // the counters of tokens show the prompts of the interval before
	default:
		stays = 1 // scrapes are all that brings endpoints back that have drifted apart
	}
	var load float64
	for i := range p.members {
		load += p.members[i].load
	}
	longer := max(0, stays*load/perSecond-horizon.Seconds())
	return horizon + time.Duration(part*min(longer, longest.Seconds())*float64(time.Second))
}

// mostlyCounted reports whether most loads are made of what proxies count.
func (p *pool) mostlyCounted() bool {
	return p.most(func(m *member) bool { return m.loadSource == LoadInFlight || m.loadSource == LoadFused })
}
