package weighting

import (
	"time"
)

// An observation is what is known of one endpoint since the step before.
type observation struct {
	InFlight float64 // requests that the proxies have there; 0 where that count may leak

	Reported time.Time // of the last report that could be compared with that count
	Shown    float64   // requests in it, by a gauge; 0 where there is none
	NotShown float64   // requests in flight then that it does not show
	// ShowsNothing means that the gauge is a constant and so no evidence, and ShowsIdle that a fresh one shows none.
	ShowsNothing, ShowsIdle bool

	Progress bool    // the report shows that something was done
	Steps    bool    // such progress is that of an iteration, and not that a request ends
	Done     float64 // requests that were answered without an error, by the proxies or the server
	Alive    bool    // some were answered, if only with errors
	Ended    ends    // requests, as the proxies report it
	Sent     batch   // requests that began
	Sizes    bool    // the proxies report the size of those that have one
}

// sample is what the proxies and the server report of the endpoint's requests since the last step. Only an exact count
// shows that requests are still in flight.
func (m *member) sample(p *pool) observation {
	did := &m.passed.proxies
	in := observation{
		Ended: ends{did.failed.by, did.errors.by, did.succeeded.by},
		Steps: !m.server.Tokens.At.IsZero(),
		Sizes: m.proxies.withAccessLog() && m.proxies.Sized.Value > 0,
	}
	if m.Exact && trusted(m.seen.inFlight.state) && !m.blackout {
		in.InFlight = m.inFlight.Value
	}
	in.Sent = batch{did.sent.requests - did.refused.requests, did.sent.sized - did.refused.sized,
		did.sent.bytes - did.refused.bytes}
	answers, done := m.answers(in.Ended)
	in.Done, in.Alive = done, answers > 0
	in.Progress = m.passed.server.showsProgress(&m.server)
	m.compare(&in, p)
	return in
}

// withAccessLog reports whether all proxies report how each request ended.
func (r *ProxyReport) withAccessLog() bool { return r.Answered.Known() && !r.Partial }

// answers is how many requests were answered since the last step, and how many of them without an error. A client that
// gives up ends a request, too, which shows nothing about the endpoint.
func (m *member) answers(ended ends) (all, succeeded float64) {
	did := &m.passed.proxies
	answered := did.answered.by
	errors := answered - ended.answered
	if !m.proxies.withAccessLog() {
		answered, errors = max(answered, did.ended.by), ended.wrong()
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
func (m *member) compare(in *observation, p *pool) {
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
