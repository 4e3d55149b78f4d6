package weighting

// The horizon, and the requests to expect within it

import (
	"math"
	"slices"
	"time"

	"steelyard/weighting/lag"
)

// A forecast is what comes until a decision is answered by the next one.
type forecast struct {
	perSecond float64 // requests
	source    RateSource
	horizon   time.Duration
	unseen    time.Duration // from a request's beginning until a decision answers it
	arrivals  float64       // requests, within the horizon
	counted   bool          // the proxies report the requests that begin
}

// forecast measures the horizon and the requests to expect within it.
func (l *Law) forecast(p *pool, members []weighed, u *unit, age float64, s *Snapshot) forecast {
	f := forecast{counted: u.counted || most(members, (*weighed).inFlightLeads)}
	f.perSecond, f.source = p.arrivalRate()
	l.rate, l.counted = f.perSecond, rateRank(f.source) > rateRank(RateIncrements)
	full := p.limited(members)
	limits := full >= 0.5
	late := l.late(p, limits)
	f.unseen = f.until(s, late, age, u.byWork, limits)
	together := 0.0
	for i := range p.members {
		l.arrived += p.members[i].came.requests
	}
	if f.counted || u.byWork {
		l.bursts.observe(p.now, l.arrived, len(p.members), f.unseen)
		together = l.bursts.together()
	}
	f.horizon = f.untilSeen(members, u.byWork, late, full)
	f.arrivals = f.perSecond * f.horizon.Seconds()
	if f.source == RateUnknown {
		f.arrivals = float64(len(p.members))
	}
	f.arrivals = min(max(1, f.arrivals, together), largestSum)
	return f
}

// late is how late the reports are, as far as what arrived since the step before shows it (package lag).
func (l *Law) late(p *pool, limits bool) time.Duration {
	pool := l.scratch.lagged.take(len(p.members))
	for i := range p.members {
		m := &p.members[i]
		e := lag.Endpoint{History: &m.history, Share: m.inForce.share, Requests: m.came.requests, ReadAt: m.came.at}
		if m.inForce.flagged {
			e.Share = 0
		}
		pool[i] = e
	}
	l.lag.Step(p.now, pool, limits)
	return l.lag.Late
}

// until is for how long a decision has to be good: until what follows from it is seen and answered by the next one.
// Endpoints are read at different times, so half of the interval between two readings is, on average, still to pass;
// where changes are reported as they happen it is 0. Then the next decision is pushed. Reports may be later than their
// time by a lag.
//
// Counts of the proxies are of the time at which they were read, and so are scrapes where the endpoints execute no more
// than their slots. Where they batch continuously, and scrapes are all there is, it is two intervals at least; and if
// work is the unit no more, because what began at an endpoint since is expected in its load.
func (f *forecast) until(s *Snapshot, late time.Duration, age float64, byWork, limits bool) time.Duration {
	limited := func(d time.Duration) time.Duration { return min(max(0, d), longest) }
	next := late + limited(s.PushDelay) + limited(s.PushPeriod)
	half := limited(s.ScrapeInterval) / 2
	if f.counted {
		half = limited(s.CountInterval) / 2
	}
	ago := half
	if !math.IsNaN(age) && (f.counted || !byWork) {
		ago += limited(time.Duration(age * float64(time.Second)))
	}
	if !limits && !f.counted {
		ago = max(ago, 4*half)
	}
	return next + ago
}

const longest = time.Hour // bound on all delays

// limited is how far requests wait for slots, 0..1: those of some endpoints are known, and all of them are taken at
// times, as far as gauges show it. Configured ones may be more than an engine that batches continuously ever runs, and
// one that reaches its limit now and then is no set of slots yet: between a tenth and two fifths of the time, the
// horizons of both are mixed. Were there one threshold, uneven shares would fill an engine, which would show that slots
// are taken, which would make the shares more uneven: engines that compute prompts first had 10.9 times the p99 of
// least request with one threshold, and have 1.2 at most with two. With the policy least latency it is 1.
func (p *pool) limited(members []weighed) float64 {
	const hardly, often = 0.1, 0.4 // of the time
	if p.params.LeastLatency.Enabled {
		return 1
	}
	var taken, known float64
	for i := range members {
		m := &members[i]
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
// requests that they do show are no reason to hurry: they are evened out over the time in which they end. (With a half
// and one, short KV caches had 1.29 of least request; with a quarter and a half, load reports lost: 0.95 instead of
// 0.86.) Where the loads are the prompts that proxies report, those that are shown keep a request waiting for longer
// than it takes three times as many to arrive.
func (f *forecast) untilSeen(members []weighed, byWork bool, late time.Duration, limited float64) time.Duration {
	some, all := 0.4, 0.8 // of an arrival for each endpoint
	if byWork && f.counted {
		some, all = 3*some, 3*all
	}
	unseen := f.perSecond * f.unseen.Seconds() / float64(len(members))
	part := min((unseen-some)/(all-some), 1) * (1 - limited)
	if !(part > 0) {
		return f.unseen
	}
	// Mean times that a request stays: hardly any of those that are shown is left after two. Without this, pages that
	// are late by 2 s have a p99 of 3.05 s instead of 1.23, and engines without counts of tokens 1.42 instead of 1.21.
	stays := 2.0
	switch {
	case f.counted || late > 0:
	case byWork:
		stays = 0.2 // the counters of tokens show the prompts of the interval before
	default:
		stays = 1 // scrapes are all that brings endpoints back that have drifted apart
	}
	var load float64
	for i := range members {
		load += members[i].load
	}
	longer := max(0, stays*load/f.perSecond-f.unseen.Seconds())
	return f.unseen + time.Duration(part*min(longer, longest.Seconds())*float64(time.Second))
}

// arrivalRate is in requests per second. It follows from what the server completed, and from what the proxies sent: the
// larger, because proxies count only their own requests, and a server only those that it has seen. Otherwise it is the
// larger of the rises of the gauges and of the in-flight count, because both only miss what came and went between two
// readings.
func (m *member) arrivalRate(p *pool) (perSecond float64, source RateSource) {
	source = RateUnknown
	if m.arrivals.over(0) && p.usable(m.server.Completions) {
		perSecond, source = m.arrivals.or(0), RateCompletions
		if rises := m.rises.or(0); m.completions.or(0) == 0 && rises > max(0, perSecond) {
			// Nothing completes, or the counter stands still, as that of a model in an ensemble of Triton does
			// (github.com/triton-inference-server/tensorrtllm_backend/issues/49).
			perSecond, source = rises, RateIncrements
		}
	}
	if m.issued.over(0) && p.usable(m.proxies.Issued) && (source == RateUnknown || m.issued.or(0) > perSecond) {
		perSecond, source = m.issued.or(0), RateIssued
	}
	if source != RateUnknown {
		return perSecond, source
	}
	if m.increments.over(0) && p.usable(m.inFlight) {
		perSecond, source = m.increments.or(0), RateIncrements
	}
	if m.rises.over(0) && p.usable(newest(m.server.Queue, m.server.Running)) {
		perSecond, source = max(perSecond, m.rises.or(0)), RateIncrements
	}
	return perSecond, source
}

// arrivalRate sums the members' rates. A member without a rate counts as their mean, and one that is gone gets nothing.
func (p *pool) arrivalRate() (perSecond float64, source RateSource) {
	var sum float64
	var n int
	source = RateUnknown
	for i := range p.members {
		if p.members[i].gone {
			n++
			continue
		}
		rate, from := p.members[i].arrivalRate(p)
		if from == RateUnknown {
			continue
		}
		sum += rate
		n++
		if rateRank(from) > rateRank(source) {
			source = from
		}
	}
	return max(0, sum) / float64(max(1, n)) * float64(len(p.members)), source
}

// rateRank orders the sources of a rate by how complete they are.
func rateRank(s RateSource) int {
	return slices.Index([]RateSource{RateUnknown, RateIncrements, RateIssued, RateCompletions}, s)
}
