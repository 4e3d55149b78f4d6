package weighting

// Trials: no state without a way back
//
// What keeps requests away from an endpoint may end only by what they would show: a gauge that is wrong until the next
// request comes, an error that went away. So whatever the reason (a flag, an ejection, a load above the level), an
// endpoint that was given less than one request in half a minute, and by its part of the capacity would have got one,
// is tried: it has no flag, and a share that brings it one request in five seconds, until that has come or was due, or
// for half a minute. One that the proxies do not use has such a share all the time (use.go).
// Where nothing counts requests, the moves of the gauges miss most of them. Then time alone decides: one that had less
// than half of its part of the capacity for half a minute, and showed no rise, is tried for five seconds at most. Of
// its part it has half at most, so that a scrape shows the first request before there are many.
// Where that changes nothing, it is tried each minute. One that an operator keeps empty is not tried, nor is one that
// sleeps.
//
// A trial does not take the flag away where less than a tenth of the pool has none: the proxies send requests to
// flagged endpoints then, and all of them would go to one without a flag.
//
// # Reports that stand still
//
// An engine whose requests were all aborted can show its last gauges until it gets a request
// (github.com/vllm-project/vllm/issues/29928 and 22545). A report is doubted that claims requests or a full KV cache,
// of an endpoint that gets no requests and has none of the proxies in flight, once neither gauges nor counters have
// changed for Decay, and for twice as long as they did not in the last minutes before they did. The doubt is shown; it
// changes no share. An engine that hangs looks the same, and so does one that counts requests at their end, in long
// ones: a request shows which it is. When an access log has an answer without an error, and the report still stands
// still, it counts as stuck until it changes. Load reports count a 4xx as a success, which shows nothing.

import "time"

// trial is when an endpoint was given a request, and is given the next to see what it does.
type trial struct {
	at    time.Time     // of the last step
	on    bool          // it is tried
	since time.Time     // the trial began; or else, the last request was given
	delay time.Duration // from then to the next trial
	given float64       // requests since then, by the decisions
	part  float64       // the same, by its part of the capacity
}

// within is the time in which a trial gives a request.
const within = 5 * time.Second

// step takes in the share that was in force since the last step, the part of the capacity, the requests that arrived at
// the pool, and whether one came. Where those are not counted, half of its part for the first delay counts as one.
func (t *trial) step(share, part, arrivals float64, counted, came bool, p *pool) {
	first, most := p.trialDelays()
	given, lasts := share*arrivals, first
	if !counted {
		given, lasts = max(given, 2*share/part*p.now.Sub(t.at).Seconds()/first.Seconds()), within
	}
	t.given, t.part = t.given+given, t.part+part*arrivals
	waited := p.now.Sub(t.since)
	switch {
	case t.since.IsZero() || !t.on && t.given >= 1:
		*t = trial{since: p.now, delay: first}
	case !t.on && came || p.now.Sub(t.at) > unobserved:
		*t = trial{since: p.now, delay: t.delay}
	case t.on && (came || t.given >= 1 || waited >= lasts):
		t.on, t.given, t.part = false, 0, 0
	case !t.on && (t.part >= 1 || !counted) && waited >= t.delay:
		*t = trial{on: true, since: p.now, delay: min(2*t.delay, most)}
	}
	t.at = p.now
}

// trialDelays are the shortest and the longest time from one request to the next trial: no flag is shorter than the
// dwell.
func (p *pool) trialDelays() (first, most time.Duration) {
	const least, usual = 30 * time.Second, time.Minute
	dwell := min(p.params.Overload.MinDwell, time.Hour)
	return max(least, dwell), max(usual, dwell)
}

// try begins and ends trials, and doubts reports.
func (l *Law) try(p *pool) {
	var capacity float64
	unflagged := 0
	for i := range p.members {
		m := &p.members[i]
		capacity += m.holding(0).capacity()
		if !m.shareFlagged {
			unflagged++
		}
	}
	spared := p.flaggedGetNothing(unflagged)
	whole := 0.0
	for i := range p.members {
		whole += p.members[i].inUse(spared)
	}
	for i := range p.members {
		m := &p.members[i]
		t := &m.trial
		arrivals := l.rate * max(0, p.now.Sub(t.at).Seconds())
		part := m.holding(0).capacity() / capacity
		t.step(m.inUse(spared)/max(whole, 1e-9), part, arrivals, l.counted, m.came.any, p)
		if m.Override != (Override{}) || m.asleep() {
			*t = trial{at: p.now, since: p.now, delay: t.delay}
		}
		if t.on {
			if !l.counted {
				part /= 2
			}
			m.tried = min(part, 1/(within.Seconds()*l.rate))
		}
		m.doubt.update(m, p)
	}
}

// flaggedGetNothing reports whether the proxies send nothing to flagged members, where so many have no flag.
func (p *pool) flaggedGetNothing(unflagged int) bool {
	const tenth = 10
	return unflagged > 0 && unflagged*tenth >= len(p.members)
}

// inUse is the share of the member in force, as the proxies use it; spared says that they send nothing to flagged ones.
func (m *member) inUse(spared bool) float64 {
	if m.shareFlagged && spared {
		return 0
	}
	return m.share
}

// giveTrials gives the members that are tried their share of what those get that proxies send requests to.
func (p *pool) giveTrials(d *Decision) {
	others, tried := 0.0, 0.0
	spared := p.flaggedGetNothing(p.unflagged)
	for i := range p.members {
		if m := &p.members[i]; m.tried > 0 {
			tried += m.tried
		} else if !m.flagged || !spared {
			others += d.Endpoints[i].Share
		}
	}
	if tried == 0 || others == 0 {
		return
	}
	whole := 0.0
	for i := range p.members {
		if m := &p.members[i]; m.tried > 0 {
			d.Endpoints[i].Share = m.tried * others
		}
		whole += d.Endpoints[i].Share
	}
	for i := range d.Endpoints {
		d.Endpoints[i].Share /= whole
	}
}

// doubt is whether a report stands still.
type doubt struct {
	since, until time.Time // of the first and the last report that show the same
	longest      highest   // seconds for which reports that claimed requests showed the same
	on, refuted  bool
}

// observe takes in what a server did, and the time of its report.
func (d *doubt) observe(did *served, at time.Time) {
	if !did.changed && !d.since.IsZero() {
		d.until = at
		return
	}
	if did.queue.before+did.running.before >= 1 && !d.since.IsZero() {
		d.longest.note(at.Sub(d.since).Seconds(), at, slotsTau)
	}
	*d = doubt{since: at, until: at, longest: d.longest}
}

func (r ServerReport) withoutTimes() ServerReport {
	for _, gauge := range r.gauges() {
		gauge.At = time.Time{}
	}
	for _, sum := range r.sums() {
		sum.At = time.Time{}
	}
	r.Tokens.At = time.Time{}
	return r
}

// at is the time of the newest gauge.
func (r *ServerReport) at() time.Time {
	return newer(newer(r.Queue.At, r.Running.At), r.Utilization.At)
}

// update begins the doubt. It ends with the next report that shows something new.
func (d *doubt) update(m *member, p *pool) {
	const twice = 2
	r, in := &m.server, &m.seen.inFlight
	claims := r.Queue.Value+r.Running.Value >= 1 || r.Utilization.Value >= p.params.Overload.UtilizationEnter
	still := d.until.Sub(d.since)
	starved := m.trial.part >= 1 && p.now.Sub(m.trial.since) >= p.params.Decay
	if claims && starved && still >= p.params.Decay && still.Seconds() >= twice*d.longest.most() &&
		!(trusted(in.state) && in.Value >= 1) {
		d.on = true
	}
}

// refute takes the report for stuck once the proxies got an answer from the endpoint.
func (m *memory) refute() {
	if m.doubt.on && !m.doubt.refuted {
		m.doubt.refuted = true
		m.unproxied, m.paired = smoothed{}, time.Time{} // by that report
	}
}
