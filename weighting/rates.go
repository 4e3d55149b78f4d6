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

import "time"

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

// observe learns the flows into and through the server; starved says that it gets nothing.
func (r *rates) observe(did *served, starved bool) {
	grown, done := did.grown(), &did.completions
	r.completions.add(done.perSecond(), done.dt, windowTau)
	r.rises.add(max(0, grown.perSecond()), grown.dt, rateTau)
	r.queueSeconds.add(did.waited.perSecond(), did.waited.dt, windowTau)
	if did.standsStill() && !starved {
		r.uncounted += done.dt
		return
	}
	if done.dt > 0 {
		dt := done.dt + r.uncounted
		r.arrivals.add((done.by+grown.by)/dt.Seconds(), dt, rateTau)
		r.uncounted = 0
	}
}

// restarted forgets what the process did that is gone.
func (r *rates) restarted() {
	r.completions, r.queueSeconds, r.uncounted = smoothed{}, smoothed{}, 0
}
