package weighting

// Outliers: endpoints that stall (stall.go), or fail (streak.go)
//
// An endpoint that takes requests and answers none, or answers each at once with an error, looks idle and attracts what
// the others would have served. Its own report does not show that. The proxies' counts do, where they are exact.
//
// An ejected endpoint is flagged and gets its floor, for MinDwell at least. An answer without an error ends the
// ejection. Where proxies send load reports only, which count a 4xx as a success, the server must also have completed
// something, and an endpoint that is probed gets a trickle until then. Once nothing is in flight that could be answered,
// the endpoint is probed after the dwell: it is trusted as little as a new one. While old requests are still in flight
// it is probed when it is tried (trial.go), and they do not count again. If it is ejected again at once, it is probed
// twice as late the next time.
//
// While more than half of a pool seems to be outliers, the fault is more likely in the reports or in the requests, so
// no endpoint is ejected; nor while none is healthy. An outlier is then also one that fails no more than the others.
// This panic mode lasts for MinDwell at least.

import (
	"cmp"
	"math"
	"time"
)

const (
	// improbable is −ln 1e-4: what is less probable by chance is significant.
	improbable = 9.2
	rounding   = 1e-6 // of differences of sums
)

// health of an endpoint, by how it treats the requests that it has.
type health int

const (
	healthy health = iota
	ejected        // it stalls or fails: flagged, and its share is the floor
	probing        // it was ejected, and nothing shows whether it recovered: trusted as little as a new one
)

// outlier is the state of outlier detection at one endpoint: how it treats the requests that the proxies sent it.
type outlier struct {
	sample observation
	stall  stall
	streak streak // of errors

	state       health
	since       time.Time // of the state
	reason      string    // of the ejection
	began       time.Time // of the trouble: since then the endpoint has not been healthy
	ejections   int       // in a row, without recovery between them
	recovered   bool      // since the last change of the state
	proof       proof     // of recovery, where that takes two
	reportsOnly bool      // the proxies report errors by load reports only, which count a 4xx as a success
}

// ejected reports whether the endpoint stalls or fails.
func (m *member) ejected() bool { return m.outlier.state == ejected }

// asleep reports whether the engine sleeps, and so takes no requests. A late report of that is not trusted: an engine
// that is awake again must not wait for its page.
func (m *member) asleep() bool { return trusted(m.seen.awake.state) && m.seen.awake.Value == 0 }

// out reports whether requests to the endpoint would fail or wait for ever, as far as is known.
func (m *member) out() bool { return m.ejected() || m.asleep() }

// rank is 1 for an ejected endpoint.
func (o *outlier) rank() int {
	if o.state == ejected {
		return 1
	}
	return 0
}

// excludedLevel is far above that of members that are filled.
const excludedLevel = 1e6

// excludeFromFill fills up the members that are ejected or asleep, so that they get only their floor, and those that
// get a fixed share instead of a fill.
func (p *pool) excludeFromFill(vessels []Vessel) {
	for i := range p.members {
		if v, m := &vessels[i], &p.members[i]; m.out() || m.fixed(p) > 0 || m.tried > 0 || m.overridden() {
			v.Load = max(v.Load, v.holds(excludedLevel))
		}
	}
}

// Fixed returns the share that the endpoint with this index gets whatever its load; 0 where that follows from the load,
// and for an endpoint that stalls or fails. It is a part of what endpoints without a flag get.
func (d *Decision) Fixed(i int) float64 {
	e := &d.Endpoints[i]
	if e.Failing || e.Overloaded || d.vessels[i].level() < excludedLevel/2 {
		return 0
	}
	flagged := 0.0
	for k := range d.Endpoints {
		if d.Endpoints[k].Overloaded {
			flagged += d.Endpoints[k].Share
		}
	}
	return e.Share / max(e.Share, 1-flagged)
}

// trouble is why an endpoint seems to be an outlier, and since when; zero where it does not.
type trouble struct {
	reason string
	since  time.Time
}

// detectOutliers finds the members that stall or fail. While that is more than half of a pool, the fault is more likely
// in the reports or in the requests. If no healthy member is left, outliers are as good as any other.
func (l *Law) detectOutliers(p *pool) {
	longest, outliers, healthyMembers, awake := 0.0, 0, 0, 0
	pause := p.typicalPause()
	var all ends
	for i := range p.members {
		m := &p.members[i]
		m.outlier.observe(m, p)
		all = all.plus(m.outlier.sample.Ended, 1)
		longest = max(longest, m.outlier.stall.answers.longest.most())
	}
	found := make([]trouble, len(p.members))
	for i := range p.members {
		o := &p.members[i].outlier
		if p.members[i].asleep() {
			o.excuse(p.now)
			continue
		}
		awake++
		in := &o.sample
		o.streak.extend(in.Ended, all, l.ends, p.members[i].share, in.InFlight)
		stalled, since := o.stall.finding(p.now, in, p.params.Overload.StalledAfter, longest, pause)
		if stalled != "" {
			stalled = "stalled since " + o.clocks(since) + ": " + stalled
		} else {
			since = p.now
		}
		failure := o.streak.finding(o.state, in.InFlight)
		switch {
		case stalled != "" || failure != "" || o.streak.fails():
			outliers++
		case o.state == healthy:
			healthyMembers++
		}
		found[i] = trouble{cmp.Or(stalled, failure), since}
	}
	const window = 200 // requests
	l.ends = l.ends.plus(all, math.Exp(-all.requests()/window))
	panicking := l.panicMode.update(len(p.members) > 1 && (2*outliers > awake || healthyMembers == 0), p)
	for i := range p.members {
		m := &p.members[i]
		if panicking {
			found[i] = trouble{}
			m.outlier.endEjection(p.now)
		}
		m.outlier.transition(found[i], &m.trial, p)
		if m.outlier.state == probing && !panicking {
			m.ramp, m.probed = min(m.ramp, leastRamp), m.outlier.reason
		}
	}
}

// panicMode is on while most of the pool seems to be outliers, so that no endpoint is ejected. It stays on, and off,
// for as long as a flag does: all flags depend on it, and it may depend on the next request of one endpoint that fails
// every other one.
type panicMode struct {
	on    bool
	since time.Time
}

// update follows what the state of the pool suggests, and returns whether the mode is on.
func (a *panicMode) update(on bool, p *pool) bool {
	if on != a.on && (a.since.IsZero() || p.now.Sub(a.since) >= p.params.Overload.MinDwell) {
		a.on, a.since = on, p.now
	}
	return a.on
}

// observe takes in what the proxies and the server report of the endpoint's requests.
func (o *outlier) observe(m *member, p *pool) {
	o.sample = m.sample(p)
	o.reportsOnly = m.proxies.Errors.Known() && !m.proxies.Answered.Known()
	if o.sample.Ended.answered > rounding && !o.reportsOnly {
		m.refute()
	}
	o.recovered = o.recovered || o.showsRecovery(m, p)
	o.stall.observe(p.now, &o.sample, max(unobserved, p.params.Overload.StalledAfter), p.params.Hold)
}

// unobserved is a time between two steps that is no wait for reports: the loop steps several times a second.
const unobserved = 2 * time.Second

// typicalPause is the median of the longest times without progress of endpoints that count tokens, in seconds: one that
// stood still and went on is no reason to wait longer for the others.
func (p *pool) typicalPause() float64 {
	return orZero(p.median(func(m *member) (float64, bool) {
		longest := m.outlier.stall.reports.longest.most()
		return longest, longest > 0
	}))
}

// clocks is since when the endpoint stalls: where it was tried again meanwhile, both times.
func (o *outlier) clocks(since time.Time) string {
	if o.state == healthy {
		return clock(since)
	}
	return clock(since) + ", and not healthy since " + clock(o.began)
}

// proof is the evidence of recovery where the proxies send load reports only.
type proof struct{ succeeded, completed bool }

// showsRecovery reports whether the requests since the last step show that the endpoint is healthy. Load reports count
// an answer with a 404 or 429 as a success; the server completes nothing then. Servers also count requests that fail
// otherwise, and load reports count those as errors. What ended since the last step is in the access log only if there
// was one then: the last load report may come with the change.
func (o *outlier) showsRecovery(m *member, p *pool) bool {
	ended := &o.sample.Ended
	switch {
	case !m.proxies.Succeeded.Known():
		return o.sample.Alive && o.sample.Done > rounding
	case m.passed.proxies.logged:
		return ended.answered > ended.wrong()+rounding
	}
	o.proof.succeeded = o.proof.succeeded || ended.answered > ended.wrong()+rounding
	o.proof.completed = o.proof.completed || m.passed.server.completions.by > 0 ||
		!p.usable(m.server.Completions)
	return o.proof.succeeded && o.proof.completed
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05Z") }

// transition moves the endpoint between the states. An ejected endpoint gets no requests, so whether it recovered shows
// only once it is probed; each time it is ejected again soon, the next probe comes later.
func (o *outlier) transition(found trouble, t *trial, p *pool) {
	const (
		forgetAfter = time.Minute // in the healthy state
		doublings   = 5
	)
	held := p.now.Sub(o.since)
	switch {
	case o.state == ejected && t.on && t.since.Equal(p.now):
		o.probe(p.now)
	case t.on && t.since.Equal(o.since): // found before it got the request of this trial
	case o.state != ejected && found.reason != "":
		if o.state == healthy {
			o.began = found.since
			if held > forgetAfter {
				o.ejections = 0
			}
		}
		o.ejections = min(o.ejections+1, doublings)
		o.enterState(ejected, p.now)
		o.reason = found.reason
	case o.state == ejected && held < min(p.params.Overload.MinDwell, time.Hour)<<(o.ejections-1):
	case o.state == ejected && found.reason == "" && o.recovered:
		o.enterState(healthy, p.now)
	case o.state == ejected && o.sample.InFlight < 1:
		o.probe(p.now)
	case o.state == probing && o.recovered:
		o.enterState(healthy, p.now)
	}
}

// probe ends the ejection, to see how the endpoint behaves now.
func (o *outlier) probe(now time.Time) {
	o.enterState(probing, now)
	o.stall.forgive(now)
	o.streak = streak{}
}

// excuse forgets what the endpoint did not answer and failed, because it sleeps.
func (o *outlier) excuse(now time.Time) {
	o.probe(now)
	o.enterState(healthy, now)
	o.ejections = 0
}

// endEjection ends an ejection at once and forgets it, because the fault was not the endpoint's. The evidence stays
// until an answer refutes it: else the pool would seem healthy a moment later, and the same endpoints would be flagged
// again and again.
func (o *outlier) endEjection(now time.Time) {
	o.ejections = 0
	if o.state == ejected {
		o.enterState(probing, now)
	}
}

// unproven reports whether the endpoint is probed where nothing shows that it answers with errors that may be the
// requests' own.
func (o *outlier) unproven() bool { return o.state == probing && o.reportsOnly }

func (o *outlier) enterState(s health, now time.Time) {
	o.state, o.since, o.recovered, o.proof = s, now, false, proof{}
}
