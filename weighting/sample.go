package weighting

// What health is shown of each endpoint (package health), and what follows

import (
	"time"

	"steelyard/weighting/health"
)

const (
	rounding = 1e-6 // of differences of sums

	longestIteration = health.LongestIteration
)

// health moves the states of the members by what happened since the last step.
func (l *Law) health(p *pool, s *Snapshot) {
	pool := l.scratch.patients[:0]
	capacity, whole, unflagged := 0.0, 0.0, 0
	for i := range p.members {
		capacity += p.members[i].holding(0).capacity()
		if !p.members[i].shareFlagged {
			unflagged++
		}
	}
	spared := p.flaggedGetNothing(unflagged)
	for i := range p.members {
		whole += p.members[i].inUse(spared)
	}
	for i := range p.members {
		m := &p.members[i]
		in := m.sample(p)
		in.Part, in.Share = m.holding(0).capacity()/capacity, m.inUse(spared)/max(whole, 1e-9)
		pool = append(pool, health.Endpoint{Tracker: &m.health, Sample: in})
	}
	o := &p.params.Overload
	l.healths.Step(p.now,
		health.Params{StalledAfter: o.StalledAfter, Dwell: o.MinDwell, Hold: p.params.Hold, Decay: p.params.Decay},
		health.Traffic{PerSecond: l.rate, Counted: l.counted,
			InForce: max(time.Second, 2*(s.PushDelay+s.PushPeriod)+s.ScrapeInterval)}, pool)
	for i := range p.members {
		m := &p.members[i]
		m.ramp = min(m.ramp, m.health.Trust)
		if m.health.Stuck {
			m.unproxied, m.paired = smoothed{}, time.Time{} // by that report
		}
	}
	clear(pool) // trackers are the members'
	l.scratch.patients = pool
}

// ejected reports whether the endpoint stalls or fails.
func (m *member) ejected() bool { return m.health.State == health.Ejected }

// asleep reports whether the engine sleeps, and so takes no requests. A late report of that is not trusted: an engine
// that is awake again must not wait for its page.
func (m *member) asleep() bool { return trusted(m.seen.awake.state) && m.seen.awake.Value == 0 }

// out reports whether requests to the endpoint would fail or wait for ever, as far as is known.
func (m *member) out() bool { return m.ejected() || m.asleep() }

// probed is why it was ejected, while it is tried with few requests.
func (m *member) probed() string {
	if m.health.Trust < 1 {
		return m.health.Reason
	}
	return ""
}

// sample is what the proxies and the server report of the endpoint's requests since the last step. Only an exact count
// shows that requests are still in flight.
func (m *member) sample(p *pool) health.Sample {
	did, seen := &m.passed.proxies, &m.proxies
	in := health.Sample{Asleep: m.asleep(), Absent: m.blackout || m.gone, Kept: m.Override != Override{}}
	in.Report = health.Report{
		ReadAt: m.server.at(), Changed: m.passed.server.changed,
		Begins:   m.passed.server.restarted && !m.reversals.often(p.now), // else by several servers
		Claims:   m.claims(p),
		Progress: m.passed.server.showsProgress(&m.server), Steps: !m.server.Tokens.At.IsZero(),
	}
	in.Requests = health.Requests{
		Ended:  health.Ends{Failed: did.failed.by, Errors: did.errors.by, Answered: did.succeeded.by},
		Logged: seen.Answered.Known() || !seen.Errors.Known(),
		Sent:   did.sent.requests - did.refused.requests, Sized: did.sent.sized - did.refused.sized,
		Bytes: did.sent.bytes - did.refused.bytes, Sizes: seen.withAccessLog() && seen.Sized.Value > 0,
	}
	in.Given = health.Given{Came: m.came.requests, CameAt: m.came.at, Any: m.came.any}
	if trusted(m.seen.inFlight.state) {
		in.Present = m.seen.inFlight.Value >= 1
		if m.Exact && !m.blackout {
			in.InFlight = m.inFlight.Value
		}
	}
	answers, done := m.answers(in.Ended)
	in.Done, in.Alive = done, answers > 0
	in.Proof = m.proof(p, &in)
	m.compare(&in, p)
	return in
}

// claims reports whether the report has requests, or a full KV cache.
func (m *member) claims(p *pool) bool {
	r := &m.server
	return r.Queue.Value+r.Running.Value >= 1 || r.Utilization.Value >= p.params.Overload.UtilizationEnter
}

// proof is what the requests since the last step show of recovery. Load reports count an answer with a 404 or 429 as a
// success; the server completes nothing then. Servers also count requests that fail otherwise, and load reports count
// those as errors. What ended since the last step is in the access log only if there was one then: the last load report
// may come with the change.
func (m *member) proof(p *pool, in *health.Sample) health.Proof {
	good := in.Ended.Good()
	switch {
	case !m.proxies.Succeeded.Known():
		good = in.Done > 0
	case m.passed.proxies.logged:
	default:
		completed := m.passed.server.completions.by > 0 || !p.usable(m.server.Completions)
		return health.Proof{Answered: good, Completed: completed}
	}
	return health.Proof{Answered: good, Completed: good}
}

// withAccessLog reports whether all proxies report how each request ended.
func (r *ProxyReport) withAccessLog() bool { return r.Answered.Known() && !r.Partial }

// answers is how many requests were answered since the last step, and how many of them without an error. A client that
// gives up ends a request, too, which shows nothing about the endpoint.
func (m *member) answers(ended health.Ends) (all, succeeded float64) {
	did := &m.passed.proxies
	answered := did.answered.by
	errors := answered - ended.Answered
	if !m.proxies.withAccessLog() {
		answered, errors = max(answered, did.ended.by), ended.Failed+ended.Errors
	}
	all = max(answered, m.passed.server.completions.by)
	if !m.proxies.Succeeded.Known() {
		return all, all
	}
	if succeeded = all - max(0, errors); succeeded <= rounding {
		succeeded = 0
	}
	return all, succeeded
}

// compare compares the newest report with the requests that were in flight when it was made. A server without a gauge
// of running requests shows those that fit its slots.
func (m *member) compare(in *health.Sample, p *pool) {
	const within = 500 * time.Millisecond
	queue, running := m.server.Queue, m.server.Running
	gauge := running.Known()
	if !gauge && m.slotsSource != CapacityAssumed && m.slotsSource != CapacityWork {
		running = Reading{Value: m.atOnce(), At: queue.At}
	}
	at := earlier(queue.At, running.At)
	if !queue.Known() || !running.Known() {
		return
	}
	inFlight, ok := m.inFlightNear(at, within)
	if !ok {
		return
	}
	shows := queue.Value + running.Value
	in.Reported, in.NotShown, in.ShowsNothing = at, max(0, inFlight-shows), m.ceiling.showsNone(&m.server)
	if gauge {
		in.Shown = shows
		in.ShowsIdle = shows < 1 && !in.ShowsNothing && p.now.Sub(at) <= p.params.Hold
	}
}

// showsProgress reports whether a server's report shows work that was done since the one before: requests that
// completed, or a KV cache that changes while no request goes, and none comes but to wait.
func (d *served) showsProgress(seen *ServerReport) bool {
	if d.waited.by > 0 || d.busy.by > 0 || d.tokens.generated+d.tokens.first+d.tokens.iterations > 0 {
		return true
	}
	return d.running.by == 0 && seen.Running.Value > 0 && d.queue.by >= 0 && d.utilization.by != 0
}

// arrived is the requests that came to a member since the last step.
type arrived struct {
	requests float64   // that the proxies sent by the weights, or else that the server saw
	any      bool      // by either of the two
	at       time.Time // of the reading; zero where there is none
}

// arrived is what came to the member since the last step, up to the latest reading.
func (m *member) arrived(p *pool) (a arrived) {
	did := &m.passed.proxies
	server, proxies := m.passed.server.flow(), did.flow()
	a.any = max(server.Arrived, proxies.Arrived, did.failed.by) > rounding
	switch {
	case p.usable(m.proxies.Issued) && p.usable(m.proxies.Ended):
		a.requests, a.at = proxies.Arrived-did.hashed.by, m.proxies.Issued.At
	case p.usable(m.server.Completions):
		a.requests, a.at = max(0, server.Arrived), m.server.Completions.At
	default:
		a.any = a.any || m.change().Arrived > rounding
	}
	return a
}

// came counts what came to each member and to the pool.
func (l *Law) came(p *pool) {
	for i := range p.members {
		m := &p.members[i]
		m.came = m.arrived(p)
		l.arrived += m.came.requests
	}
}

// withoutTimes is the report without the times of its readings.
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
