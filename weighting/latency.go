package weighting

// Least latency: another law for the shares
//
// The next request at an endpoint takes its latency times the requests that are there and itself. The fill evens out
// these costs instead of loads. An endpoint whose latency is above the threshold gets its floor.

import (
	"math"
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
	const some, most = 3, time.Hour
	gap := l.seconds
	if l.gap > 0 {
		gap = min(gap, l.gap)
	}
	return max(decay, time.Duration(min(some*gap, most.Seconds())*float64(time.Second)))
}

// usable reports whether the average is recent.
func (l *latency) usable(p *pool) bool {
	return !l.at.IsZero() && p.now.Sub(l.at) <= l.lasts(p.params.Decay)
}

// latencyVessel is a member as the policy least-latency sees it: the next request takes its latency times the requests
// that are there and itself, relative to the pool's median latency. An untried endpoint costs nothing until a request
// is on its way there, and one that has not answered for long counts as a median one.
//
// As a vessel it holds those requests and is as wide as it is fast, so the fill that evens out levels evens out costs.
func (p *pool) latencyVessel(m *member, typical float64) Vessel {
	if !m.latency.usable(p) || m.latency.seconds <= 0 {
		untried := m.latency.at.IsZero()
		if untried && m.load <= 0 {
			return Vessel{Load: 0, Slots: 1, Speed: 1}
		}
		return Vessel{Load: m.load + 1, Slots: 1, Speed: 1}
	}
	const widest = 1e3
	speed := min(max(typical/m.latency.seconds, 1/widest), widest)
	return Vessel{Load: m.load + 1, Slots: 1, Speed: speed * m.ramp}
}

// slow reports whether a member answers so late that it gets only its floor, as long as another does not.
func (p *pool) slow(m *member) bool {
	return p.params.LeastLatency.Enabled && m.latency.usable(p) &&
		m.latency.seconds > p.params.LeastLatency.Threshold.Seconds()
}

// vessels are the members as they are filled.
func (p *pool) vessels() []Vessel {
	out := make([]Vessel, len(p.members))
	typical := math.NaN()
	if p.params.LeastLatency.Enabled {
		typical = p.typicalLatency()
	}
	p.byLatency = !math.IsNaN(typical)
	for i := range p.members {
		m := &p.members[i]
		if math.IsNaN(typical) {
			out[i] = m.holding(m.workload)
		} else {
			out[i] = p.latencyVessel(m, typical)
		}
	}
	p.excludeSlow(out)
	p.excludeFromFill(out)
	return out
}

// typicalLatency is the median of those that answered recently; NaN where none did.
func (p *pool) typicalLatency() float64 {
	return p.median(func(m *member) (float64, bool) {
		return m.latency.seconds, m.latency.seconds > 0 && m.latency.usable(p)
	})
}

// excludeSlow fills up slow members, so that they get only their floor, unless all are slow.
func (p *pool) excludeSlow(vessels []Vessel) {
	all := true
	for i := range p.members {
		m := &p.members[i]
		m.slow = p.slow(m)
		all = all && m.slow
	}
	for i := range p.members {
		if m := &p.members[i]; all {
			m.slow = false
		} else if m.slow {
			vessels[i].Load = largestCount
		}
	}
}
