package weighting

// Least latency: another law for the shares
//
// The next request at an endpoint takes its latency times the requests that are there and itself. The fill evens out
// these costs instead of loads. An endpoint whose latency is above the threshold gets its floor.

import (
	"math"
	"slices"
	"time"
)

// latency is a moving average of the time to the last byte, by answers and not by time: each new answer counts for
// alpha, as in routers that see them one by one.
type latency struct {
	seconds float64
	gap     float64   // mean seconds between two reports with answers; 0: there was but one
	at      time.Time // of the newest answer; zero: untried
}

// answered counts n answers that took mean seconds each.
func (l *latency) answered(n, mean, alpha float64, at time.Time) {
	alpha = min(max(alpha, 0), 1)
	keep := math.Pow(1-alpha, n)
	switch {
	case l.at.IsZero():
		keep = 0
	case l.gap == 0:
		l.gap = at.Sub(l.at).Seconds()
	default:
		l.gap += alpha * (at.Sub(l.at).Seconds() - l.gap)
	}
	l.seconds = l.seconds*keep + mean*(1-keep)
	l.at = at
}

// lasts is how long the average is usable: until answers are missing that should have come, which is some gaps after
// the last one. Where gaps are that long because little is sent there, it is some latencies.
func (l *latency) lasts(decay time.Duration) time.Duration {
	const some, most = 3, time.Hour // gaps; a bound
	gap := l.seconds
	if l.gap > 0 {
		gap = min(gap, l.gap)
	}
	return max(decay, time.Duration(min(some*gap, most.Seconds())*float64(time.Second)))
}

// recent is the average in seconds, while it is usable; NaN otherwise.
func (l *latency) recent(now time.Time, decay time.Duration) float64 {
	if l.at.IsZero() || now.Sub(l.at) > l.lasts(decay) || l.seconds <= 0 {
		return math.NaN()
	}
	return l.seconds
}

// A timed endpoint is one as least latency sees it.
type timed struct {
	requests float64 // that are there
	seconds  float64 // that an answer takes; NaN unknown
	untried  bool
	ramp     float64
}

// vessels are the endpoints as the policy fills them, and which of them are above the threshold, unless all are; none
// while no latency is known. The next request takes an endpoint's latency times the requests that are there and itself,
// relative to the pool's median latency. An untried endpoint costs nothing until a request is on its way there, and one
// that has not answered for long counts as a median one.
//
// As a vessel an endpoint holds those requests and is as wide as it is fast, so the fill that evens out levels evens
// out costs.
func (o *LeastLatency) vessels(pool []timed) (vessels []Vessel, slow []bool) {
	const widest = 1e3 // bound on a ratio of two latencies
	known := make([]float64, 0, len(pool))
	for _, e := range pool {
		if e.seconds > 0 {
			known = append(known, e.seconds)
		}
	}
	if len(known) == 0 {
		return nil, nil
	}
	typical, most := median(known), o.Threshold.Seconds()
	some := slices.ContainsFunc(pool, func(e timed) bool { return !(e.seconds > most) })
	for _, e := range pool {
		v := Vessel{Load: e.requests + 1, Slots: 1, Speed: e.ramp}
		late := some && e.seconds > most
		switch {
		case late:
			v.Load = largestCount
		case e.untried && e.requests <= 0:
			v.Load = 0
		}
		if e.seconds > 0 {
			v.Speed = min(max(typical/e.seconds, 1/widest), widest) * e.ramp
		}
		vessels, slow = append(vessels, v), append(slow, late)
	}
	return vessels, slow
}
