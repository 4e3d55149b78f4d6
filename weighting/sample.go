package weighting

// What health is shown of each endpoint (package health), and what follows

import (
	"time"

	"steelyard/weighting/health"
)

const rounding = 1e-6 // of differences of sums

// A judged endpoint is one of which it is known how it treats its requests.
type judged struct {
	*weighed
	room

	state health.Verdict
}

// judge moves the states of the endpoints by what happened since the last step. One that is tried is trusted with a
// part of its capacity.
func (l *Law) judge(p *pool, b *buffer[judged], members []weighed, s *Snapshot) []judged {
	l.healths.Step(p.now, p.params.health(s.PushPeriod),
		health.Traffic{PerSecond: l.rate, Counted: l.counted,
			InForce: max(time.Second, 2*(s.PushDelay+s.PushPeriod)+s.ScrapeInterval)},
		p.samples(&l.scratch.patients, members))
	out := b.take(len(members))
	for i := range out {
		m := &members[i]
		out[i] = judged{weighed: m, room: m.room, state: m.health.Verdict}
		out[i].ramp = min(m.ramp, m.health.Trust)
	}
	return out
}

func (p *Params) health(pause time.Duration) health.Params {
	o := &p.Overload
	return health.Params{StalledAfter: o.StalledAfter, Dwell: o.MinDwell, Hold: p.Hold, Decay: p.Decay,
		Pause: min(pause, longest)}
}

// samples are what is known of each endpoint since the last step, with what it should get.
func (p *pool) samples(b *buffer[health.Endpoint], members []weighed) []health.Endpoint {
	out := b.take(len(members))
	capacity, whole, unflagged := 0.0, 0.0, 0
	for i := range members {
		capacity += members[i].holding(0).capacity()
		if !members[i].inForce.flagged {
			unflagged++
		}
	}
	spared := flaggedGetNothing(unflagged, len(members))
	for i := range members {
		whole += members[i].inUse(spared)
	}
	for i := range members {
		m := &members[i]
		in := m.sample(p)
		in.Part, in.Share = m.holding(0).capacity()/capacity, m.inUse(spared)/max(whole, 1e-9)
		out[i] = health.Endpoint{Tracker: &m.health, Sample: in}
	}
	return out
}

// flaggedGetNothing reports whether the proxies send nothing to flagged members, where so many have no flag.
func flaggedGetNothing(unflagged, all int) bool {
	const tenth = 10
	return unflagged > 0 && unflagged*tenth >= all
}

// inUse is the share of the member in force, as the proxies use it; spared says that they send nothing to flagged ones.
func (m *member) inUse(spared bool) float64 {
	if m.inForce.flagged && spared {
		return 0
	}
	return m.inForce.share
}

// ejected reports whether the endpoint stalls or fails.
func (m *judged) ejected() bool { return m.state.State == health.Ejected }

// out reports whether requests to the endpoint would fail or wait for ever, as far as is known.
func (m *judged) out() bool { return m.ejected() || m.asleep() }

// probed is why it was ejected, while it is tried with few requests.
func (m *judged) probed() string {
	if m.state.Trust < 1 {
		return m.state.Reason
	}
	return ""
}

// kept reports whether an operator decides the share. A pin is not in effect while the endpoint stalls or fails.
func (m *weighed) kept() bool {
	return m.Override.Drained || m.Override.Share >= leastPinned && m.health.State != health.Ejected
}

// sample is what the proxies and the server report of the endpoint's requests since the last step. Only an exact count
// shows that requests are still in flight.
func (m *weighed) sample(p *pool) health.Sample {
	did, seen := &m.passed.proxies, &m.proxies
	in := health.Sample{Asleep: m.asleep(), Absent: m.blackout || m.gone, Kept: m.kept()}
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
func (m *weighed) claims(p *pool) bool {
	r := &m.server
	return r.Queue.Value+r.Running.Value >= 1 || r.Utilization.Value >= p.params.Overload.UtilizationEnter
}

// proof is what the requests since the last step show of recovery. Load reports count an answer with a 404 or 429 as a
// success; the server completes nothing then. Servers also count requests that fail otherwise, and load reports count
// those as errors. What ended since the last step is in the access log only if there was one then: the last load report
// may come with the change.
func (m *weighed) proof(p *pool, in *health.Sample) health.Proof {
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

// answers is how many requests were answered since the last step, and how many of them without an error. A client that
// gives up ends a request, too, which shows nothing about the endpoint.
func (m *weighed) answers(ended health.Ends) (all, succeeded float64) {
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
func (m *weighed) compare(in *health.Sample, p *pool) {
	const within = 500 * time.Millisecond // a bound
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

// atOnce is how many requests the endpoint executes at once, though its capacity may be configured as less: at least
// one, and at least those that it reports.
func (m *weighed) atOnce() float64 {
	least := max(1, m.slotCount)
	if trusted(m.seen.running.state) {
		least = max(least, m.seen.running.Value)
	}
	return least
}
