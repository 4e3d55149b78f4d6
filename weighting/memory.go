package weighting

// What the law remembers of an endpoint, and how it takes in what is new
//
// A restart of the server keeps what was learned of the machine, and forgets what the process did.

import (
	"math"
	"time"

	"steelyard/weighting/health"
	"steelyard/weighting/lag"
	"steelyard/weighting/shed"
)

// memory is what the law remembers of an endpoint between two steps.
type memory struct {
	identity
	readings
	pairing
	rates
	service
	latency latency // time to the last byte, as the proxies see it
	engine  engineState

	health health.Tracker
	flag

	free    time.Time // since when a slot has been free; zero while none is
	history lag.History
	inForce force // since the last step
	decided force // in it
}

// identity is which endpoint it is, and since when it is there.
type identity struct {
	id          string // empty while unknown
	firstSeen   time.Time
	lastSeen    time.Time
	established bool // there from the start: no blackout, no ramp
}

// readings are the newest of each source, and whether they can be trusted.
type readings struct {
	server    ServerReport // the newest reading of each field
	proxies   ProxyReport
	inFlight  Reading
	passed    passed    // since the step before
	completed time.Time // when the last completion was reported
	frozen    frozen    // gauge of waiting requests
	reversals reversals // of the server's counters
}

// A force is what was decided of the endpoint.
type force struct {
	share   float64 // of the traffic
	flagged bool
}

// A flag is whether the endpoint is overloaded.
type flag struct {
	overloaded bool
	flagReason string
	flagSince  time.Time // of the present state; zero before the first change
	shownSince time.Time // when the flag was last raised for the proxies to see
	aheadAt    time.Time // when it last had more to do than a median endpoint, as far as is known
}

// observe takes in what is new in a report; alpha is the weight of an answer in the latency.
func (m *memory) observe(e *Endpoint, now time.Time, alpha float64) {
	m.lastSeen = now
	m.passed = passed{proxies: proxied{logged: m.proxies.withAccessLog()}}
	if e.InFlight != m.inFlight {
		m.observeInFlight(valid(e.InFlight, now, largestCount))
	}
	m.observeProxies(e.Proxies, now, alpha)
	if e.Server == m.server {
		return // in most steps nothing is new
	}
	server := validReport(e.Server, now)
	m.observeServer(merge(&m.server, &server), now)
}

// observeServer learns from what a server did until its report.
func (m *memory) observeServer(seen ServerReport, now time.Time) {
	did, old := seen.since(&m.server), m.server
	m.server, m.passed.server = seen, did
	// Requests that a restart lost neither completed nor left, so nothing is learned from that interval.
	if did.restarted {
		if old != (ServerReport{}) {
			m.reversals.note(now)
		}
		m.rates.restarted()
		m.service.restarted()
	} else {
		m.rates.observe(&did, m.inForce.flagged || !m.health.Doubted.IsZero())
		m.service.observe(&did, m.completions.or(0))
	}
	if did.completions.by > 0 {
		m.completed = did.completions.at
	}
	m.service.observeGauges(&did, &m.server)
	m.frozen.observe(&did, &m.server)
}

// reversals are how often counters went back.
type reversals struct {
	recent float64 // fading within about a minute
	last   time.Time
}

func (r *reversals) note(now time.Time) { r.recent, r.last = r.at(now)+1, now }

func (r *reversals) at(now time.Time) float64 {
	return r.recent * math.Exp(-max(0, now.Sub(r.last)).Seconds()/speedTau.Seconds())
}

// often reports whether it was three times within about a minute. So often no server restarts: the counters are those
// of several behind one address, and their differences are nobody's work.
func (r *reversals) often(now time.Time) bool {
	const often = 2.5 // three, fading: a budget, as no server restarts so often
	return r.at(now) >= often
}

// observeInFlight takes in a new count of the requests in flight.
func (m *memory) observeInFlight(seen Reading) {
	if !seen.At.After(m.inFlight.At) {
		return
	}
	rise := gauge(m.inFlight, seen)
	m.inFlight, m.passed.inFlight = seen, rise
	m.increments.add(max(0, rise.perSecond()), rise.dt, rateTau)
	m.remember(seen)
}

// observeProxies learns the flow of requests to the endpoint from what the proxies sent.
func (m *memory) observeProxies(seen ProxyReport, now time.Time, alpha float64) {
	if seen == m.proxies {
		return // nothing is new
	}
	if seen = validProxies(seen, now); seen == m.proxies {
		return
	}
	did := seen.since(&m.proxies)
	m.proxies, m.passed.proxies = seen, did
	m.issued.add(did.issued.perSecond(), did.issued.dt, rateTau)
	if n := did.answered.by; n > 0 && did.latency.dt > 0 {
		m.latency.answered(n, min(did.latency.by/n, largestSum), alpha, did.answered.at)
	}
}

// change is how the number of requests at the endpoint changed.
func (m *memory) change() shed.Flow {
	s, d := &m.passed.server, m.passed.inFlight
	switch {
	case m.inFlight.Known():
	case m.server.Queue.Known() && m.server.Running.Known():
		d = delta{by: s.queue.by + s.running.by, dt: min(s.queue.dt, s.running.dt)}
		d.at = earlier(s.queue.at, s.running.at)
	case m.server.Queue.Known():
		d = s.queue
	default:
		d = s.running
	}
	if d.dt == 0 {
		return shed.Flow{}
	}
	return shed.Flow{Arrived: max(0, d.by), Left: max(0, -d.by), From: d.from(), To: d.at}
}

// queueGauge is the gauge of waiting requests; unknown where it is stuck.
func (m *memory) queueGauge() Reading {
	if m.frozen.stuck() || m.health.Stuck {
		return Reading{}
	}
	return m.server.Queue
}

// executes is the number executing: the gauge. Without one it is a full set of slots while requests wait, and the usual
// number while none does, by the counter of busy time. That number is a long mean: a short one moves with each
// completion, and ranks the endpoints by noise.
func (m *memory) executes(slots float64) Reading {
	queue := m.server.Queue
	switch {
	case m.health.Stuck:
	case m.server.Running.Known():
		return m.server.Running
	case queue.Known() && queue.Value > 0:
		return Reading{Value: slots, At: queue.At}
	case queue.Known() && m.executingLong.over(0):
		return Reading{Value: min(m.executingLong.or(0), slots), At: earlier(queue.At, m.server.BusySeconds.At)}
	}
	return Reading{}
}

// countsTokens reports whether the server counts tokens in a way that can be used, and did not stop to: another version
// of it may have no such counters.
func (m *memory) countsTokens() bool {
	at := m.server.Tokens.At
	return !at.IsZero() && !m.reversals.often(at) && m.server.at().Sub(at) < workTau
}
