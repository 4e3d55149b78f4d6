package weighting

// What the law learns of an endpoint between two steps, and its arrival rate
//
// Scrapes and in-flight counts are paired (pair): the difference is smoothed with a time constant of 2 s. A difference
// that jumps by more than the slots is no noise and counts at once. A count that falls by dozens between two readings
// was rewritten, and the scrape is used by itself until the two are paired again.
//
// A server that exports no gauge of running requests (Triton) is taken to run a full set of slots while any request
// waits. Otherwise its mean number executing over about a minute, from the differences of its counter of busy time,
// stands in. That mean cannot correct another count: while no request waits, an in-flight count is corrected only as
// far as is needed to lie between none and a full set. What runs on average, by the counter of busy time, is no more
// than the slots, plus three requests in each that ran before.
//
// Arrival rate, requests per second: the requests that arrived at an endpoint between two scrapes are completions plus
// the growth of queue + running, exactly. Without a counter of completions they are the rises of queue + running, or
// those of the in-flight count. Both only miss requests, so the larger counts: too high a rate spreads the traffic more
// than needed, too low a rate bunches it. The rate is smoothed with a time constant of 3 s and summed over the
// endpoints; endpoints without a rate count as the mean of the others. While no endpoint has a rate, one request per
// endpoint is taken for the arrivals of the horizon: a guess by slots would be a flood where they are many, and would
// spread what a restart should leave as it is.
//
// A restart of the server keeps what was learned of the machine, and forgets what the process did.

import (
	"math"
	"time"
)

// memory is what the law remembers of an endpoint between two steps.
type memory struct {
	id          string // of the endpoint; empty while unknown
	firstSeen   time.Time
	lastSeen    time.Time
	established bool // there from the start: no blackout, no ramp

	server   ServerReport // the newest reading of each field
	proxies  ProxyReport
	inFlight Reading
	passed   passed       // since the step before
	recent   *[64]Reading // of inFlight, to pair with scrapes; a ring, see remember. Nil before the first
	next     int

	paired        time.Time     // when the scrape was taken that was last paired
	unproxied     smoothed      // scraped − in-flight, requests
	arrivals      smoothed      // requests per second, by completions and growth
	uncounted     time.Duration // for which an engine has stood still: what arrived then is counted later
	rises         smoothed      // requests per second, by rises of queue + running
	latency       latency       // time to the last byte, as the proxies see it
	increments    smoothed      // requests per second, by rises of the in-flight count
	issued        smoothed      // requests per second, as the proxies sent them
	completions   smoothed      // requests per second
	queueSeconds  smoothed      // request-seconds per second
	executing     smoothed      // mean requests executing, by the counter of busy time
	executingLong smoothed      // the same over a longer time
	fullBusy      smoothed      // the same, from readings that began with requests waiting
	fullKnown     bool          // fullBusy covers enough time
	ceiling       ceiling       // of the gauge of running requests
	taken         smoothed      // part of the time in which that shows all slots taken
	frozen        frozen        // gauge of waiting requests
	doubt         doubt         // of the whole report
	pace          pace
	reversals     reversals // of the server's counters
	slots         float64   // as of the last step, configured or learned; 0 unknown
	unreported    float64   // slot-seconds that may have been executed and not reported yet, see executed

	completed time.Time // when the last completion was reported
	free      time.Time // since when a slot has been free; zero while none is
	outlier   outlier
	engine    *engineState // nil while no member of the pool counts tokens
	use       use
	trial     trial
	history   *history

	share, decided            float64 // of the traffic: in force since the last step, and decided in it
	shareFlagged, decidedFlag bool    // and whether it was flagged then

	overloaded bool
	flagReason string
	flagSince  time.Time // of the present state; zero before the first change
	shownSince time.Time // when the flag was last raised for the proxies to see
}

// serviceRate is what a server has done in about the last minute. Both sums fade with the time constant speedTau, so
// their ratio weighs the recent past most.
type serviceRate struct {
	completions float64 // requests
	busy        float64 // slot-seconds
}

func (w *serviceRate) add(completions, busy float64, dt time.Duration) {
	keep := math.Exp(-dt.Seconds() / speedTau.Seconds())
	w.completions = w.completions*keep + completions
	w.busy = w.busy*keep + busy
}

// rate is completions per busy slot-second; false while too little is known.
func (w *serviceRate) rate() (float64, bool) {
	const (
		fewest  = 10  // completions
		extreme = 1e9 // per second; its inverse is the other end
	)
	if w.completions < fewest || w.busy <= 0 {
		return 0, false
	}
	return min(max(w.completions/w.busy, 1/extreme), extreme), true
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
		m.restarted()
	} else {
		m.observeRates(&did)
		m.observeService(&did)
	}
	if did.completions.by > 0 {
		m.completed = did.completions.at
	}
	m.ceiling.observe(&did, &m.server)
	m.observeTaken(&did)
	m.doubt.observe(&did, m.server.at())
	if m.frozen.observe(&did, &m.server); m.frozen.stuck() {
		m.unproxied, m.paired = smoothed{}, time.Time{} // by that gauge
	}
}

// observeTaken notes whether all slots are taken.
func (m *memory) observeTaken(did *served) {
	if did.running.dt > 0 && m.slots > 0 && !m.ceiling.showsNone(&m.server) {
		all := 0.0
		if m.server.Running.Value >= m.slots {
			all = 1
		}
		m.taken.add(all, did.running.dt, speedTau)
	}
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
	const often = 2.5
	return r.at(now) >= often
}

// restarted forgets what the process did that is gone, and keeps what was learned of the machine and of the proxies.
func (m *memory) restarted() {
	m.completions, m.queueSeconds, m.executing, m.uncounted = smoothed{}, smoothed{}, smoothed{}, 0
	if !m.ceiling.limits {
		m.ceiling = ceiling{}
	}
}

func (m *memory) observeInFlight(seen Reading) {
	if !seen.At.After(m.inFlight.At) {
		return
	}
	rise := gauge(m.inFlight, seen)
	m.passed.inFlight = rise
	m.increments.add(max(0, rise.perSecond()), rise.dt, rateTau)
	if rise.by < -rewritten {
		// Requests do not end by the dozen in one moment: a count that leaked was corrected, and the difference learned
		// until now is wrong from here on.
		m.unproxied, m.paired = smoothed{}, time.Time{}
	}
	m.inFlight = seen
	m.remember(seen)
}

// remember keeps the newest count, and of those before it one in 10 ms. A scrape is paired with the count of its own
// moment, which is as old as an exchange may take, and counts can come with every step.
func (m *memory) remember(seen Reading) {
	const apart = 10 * time.Millisecond
	if m.recent == nil {
		m.recent = new([64]Reading)
	}
	at := func(back int) *Reading { return &m.recent[(m.next-back)%len(m.recent)] }
	if m.next > 1 && at(1).At.Sub(at(2).At) < apart {
		m.next--
	}
	*at(0) = seen
	m.next++
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

// observeRates learns the flows into and through the server.
func (m *memory) observeRates(did *served) {
	grown, done := did.grown(), &did.completions
	m.completions.add(done.perSecond(), done.dt, windowTau)
	m.rises.add(max(0, grown.perSecond()), grown.dt, rateTau)
	m.queueSeconds.add(did.waited.perSecond(), did.waited.dt, windowTau)
	if did.standsStill() && !m.shareFlagged && !m.doubt.on { // those get nothing
		m.uncounted += done.dt
		return
	}
	if done.dt > 0 {
		dt := done.dt + m.uncounted
		m.arrivals.add((done.by+grown.by)/dt.Seconds(), dt, rateTau)
	}
	m.uncounted = 0
}

// observeService learns slots and speed.
func (m *memory) observeService(did *served) {
	busy := did.busy.perSecond()
	executed := m.executed(busy, did.busy.dt)
	m.executing.add(executed, did.busy.dt, windowTau)
	m.executingLong.add(executed, did.busy.dt, speedTau)
	queue := &did.queue
	m.fullBusy.fade(queue.dt, slotsTau)
	// Completions empty queues: to ask for a queue at the end of the interval too would leave out the busiest ones. But
	// the queue must be one that lasts: a few of many short requests that wait show nothing about the following second.
	if queue.dt > 0 && queue.before > 0 && queue.before >= m.completions.or(0)*queue.dt.Seconds()/2 {
		m.fullBusy.add(busy, did.busy.dt, speedTau)
	}
	m.fullKnown = m.fullBusy.over(slotsLeast) || m.fullKnown && m.fullBusy.over(slotsKept)
	if math.IsNaN(busy) && did.running.dt > 0 {
		busy = did.running.before + did.running.by/2
	}
	if done := &did.completions; done.dt > 0 && !math.IsNaN(busy) {
		m.pace.add(done.at, done.by, busy*done.dt.Seconds(), done.dt)
	}
}

// executed is as much of the growth of the busy time, per second, as is possible: no more runs than there are slots. A
// request counts with all its time when it ends, so the time of the past may be reported at once: as much as three
// requests in each slot take on average.
func (m *memory) executed(busy float64, dt time.Duration) float64 {
	const requests = 3
	rate, ok := m.pace.known.rate()
	if !ok || m.slots == 0 || math.IsNaN(busy) {
		return busy
	}
	m.unreported = min(m.unreported+m.slots*dt.Seconds(), m.slots*requests/rate)
	counted := min(busy*dt.Seconds(), m.unreported)
	m.unreported -= counted
	return counted / dt.Seconds()
}

// orZero is x, or no contribution where x is unknown.
func orZero(x float64) float64 {
	if math.IsNaN(x) {
		return 0
	}
	return x
}

// pair compares a new scrape with the in-flight count of the same moment. A count from more than half a second before
// or after shows nothing about it, and neither does half a load.
func (m *memory) pair(slots float64, from CapacitySource) {
	const nearEnough = 500 * time.Millisecond
	queue, running := m.queueGauge(), m.executes(slots)
	if !queue.Known() || !running.Known() || !m.measuresRunning(from) {
		return
	}
	if !queue.At.After(m.paired) || queue.At.Sub(running.At).Abs() > nearEnough {
		return
	}
	near, ok := m.inFlightNear(queue.At, nearEnough)
	if !ok {
		return
	}
	difference := queue.Value + running.Value - near
	if !m.server.Running.Known() && queue.Value == 0 {
		// Anything up to a full set of slots may be executing: the current estimate stands, as far as it is possible.
		difference = min(max(0, near+m.unproxied.or(0)), slots) - near
	}
	if math.Abs(difference-m.unproxied.or(difference)) > max(slots, fewestSlots) {
		m.unproxied = smoothed{} // no noise: the count was rewritten
	}
	m.unproxied.add(difference, queue.At.Sub(m.paired), unproxiedTau)
	m.paired = queue.At
}

// Bounds on what may be traffic or noise, in requests.
const (
	fewestSlots = 8  // a difference of the two signals up to this, or to the slots, is noise
	rewritten   = 64 // a fall of the in-flight count by more, between two readings, is no traffic
)

// inFlightNear is the in-flight count that was read nearest to that time. The newest come first, so the first one from
// before it ends the search.
func (m *memory) inFlightNear(at time.Time, within time.Duration) (requests float64, ok bool) {
	best := within
	for back := 1; back <= min(m.next, len(m.recent)); back++ {
		r := m.recent[(m.next-back)%len(m.recent)]
		apart := at.Sub(r.At)
		if apart.Abs() <= best {
			requests, best, ok = r.Value, apart.Abs(), true
		}
		if apart >= 0 {
			break
		}
	}
	return requests, ok
}

// executes is the number executing: the gauge. Without one it is a full set of slots while requests wait, and the usual
// number while none does, by the counter of busy time. That number is a long mean: a short one moves with each
// completion, and ranks the endpoints by noise.
func (m *memory) executes(slots float64) Reading {
	queue := m.server.Queue
	switch {
	case m.doubt.refuted:
	case m.server.Running.Known():
		return m.server.Running
	case queue.Known() && queue.Value > 0:
		return Reading{Value: slots, At: queue.At}
	case queue.Known() && m.executingLong.over(0):
		return Reading{Value: min(m.executingLong.or(0), slots), At: earlier(queue.At, m.server.BusySeconds.At)}
	}
	return Reading{}
}

// measuresRunning reports whether executes is a measurement.
func (m *memory) measuresRunning(from CapacitySource) bool {
	return m.server.Running.Known() || from != CapacityAssumed
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
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
