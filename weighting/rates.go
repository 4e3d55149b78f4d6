package weighting

// Arrival rate, requests per second
//
// The requests that arrived at an endpoint between two scrapes are completions plus the growth of queue + running,
// exactly. Without a counter of completions they are the rises of queue + running, or those of the in-flight count.
// Both only miss requests, so the larger counts: too high a rate spreads the traffic more than needed, too low a rate
// bunches it. The rate is smoothed with a time constant of 3 s and summed over the endpoints; endpoints without a rate
// count as the mean of the others. While no endpoint has a rate, one request per endpoint is taken for the arrivals of
// the horizon: a guess by slots would be a flood where they are many, and would spread what a restart should leave as
// it is.

import (
	"slices"
	"time"
)

// rates are the flows into and through an endpoint.
type rates struct {
	arrivals     smoothed      // requests per second, by completions and growth
	uncounted    time.Duration // for which an engine has stood still: what arrived then is counted later
	rises        smoothed      // requests per second, by rises of queue + running
	increments   smoothed      // requests per second, by rises of the in-flight count
	issued       smoothed      // requests per second, as the proxies sent them
	completions  smoothed      // requests per second
	queueSeconds smoothed      // request-seconds per second
}

// observeRates learns the flows into and through the server.
func (m *memory) observeRates(did *served) {
	grown, done := did.grown(), &did.completions
	m.completions.add(done.perSecond(), done.dt, windowTau)
	m.rises.add(max(0, grown.perSecond()), grown.dt, rateTau)
	m.queueSeconds.add(did.waited.perSecond(), did.waited.dt, windowTau)
	if did.standsStill() && !m.shareFlagged && m.health.Doubted.IsZero() { // those get nothing
		m.uncounted += done.dt
		return
	}
	if done.dt > 0 {
		dt := done.dt + m.uncounted
		m.arrivals.add((done.by+grown.by)/dt.Seconds(), dt, rateTau)
	}
	m.uncounted = 0
}

// arrivalRate is in requests per second. It follows from what the server completed, and from what the proxies sent: the
// larger, because proxies count only their own requests, and a server only those that it has seen. Otherwise it is the
// larger of the rises of the gauges and of the in-flight count, because both only miss what came and went between two
// readings.
func (m *memory) arrivalRate(p *pool) (perSecond float64, source RateSource) {
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
