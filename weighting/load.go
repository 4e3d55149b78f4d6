package weighting

// One load of two signals
//
// The scraped load (queue + running) and the in-flight count, corrected by their smoothed difference, are estimates of
// the same load. The in-flight count leads where it is fresh or held and has been paired, or where the scrape is
// incomplete: a server that exports only one of queue and running cannot be compared. While only one of the two is
// usable it is used as it is; while neither is, the younger one fades.
//
// A difference of up to half a request is the noise of two clocks and counts as none, one of a request or more counts
// in full, and what is between in proportion. It fades as the scrape that it came from grows stale.
//
// An endpoint whose metrics died must neither look idle, as it may have looked last, nor saturated, because that would
// halt a pool whose metrics all failed at once. It fades into the pool's median level, turned back into what an
// endpoint of its size and speed would report there. Where no field is usable at all the pool's median level stands in,
// and where there is none, a level of 1, from which the fill goes by capacity.

import (
	"math"
	"time"
)

// A laden machine is one with its load.
type laden struct {
	*machine

	seen fields
	loaded
}

// fields are a member's readings as they count in this step.
type fields struct {
	queue, running, utilization, awake, inFlight field // as reported

	executing field // running, or what stands in for it
	counted   field // in flight, corrected by the scrapes
	paired    field // the age of that correction
}

// loaded is the load of an endpoint.
type loaded struct {
	load       float64 // requests
	loadSource LoadSource
	loadState  FieldState
	loadAge    time.Duration
	offset     float64 // unproxied, as used
}

// loads is the load of each machine of a pool.
type loads struct {
	members []laden
	level   float64 // median; NaN unknown
	age     float64 // median of their ages, seconds; NaN unknown
}

// loads pairs each machine's two signals where a scrape is new, and determines its load: first the levels that stale
// fields fade into, then the loads, then the median for those of which nothing is known.
func (p *pool) loads(b *buffer[laden], machines []machine) loads {
	out := loads{members: b.take(len(machines))}
	any := reported{}
	for i := range machines {
		m := &out.members[i]
		m.machine = &machines[i]
		m.compareSignals()
		m.seen = m.look(p)
		any.queues = any.queues || m.seen.queue.usable()
		any.executing = any.executing || m.seen.executing.usable()
	}
	scraped, inFlight := p.levels(out.members, any)
	for i := range out.members {
		m := &out.members[i]
		m.loaded = m.measure(any, scraped, inFlight)
	}
	out.age = typical(p, out.members, func(m *laden) (float64, FieldState) { return m.loadAge.Seconds(), m.loadState })
	out.level = typical(p, out.members, func(m *laden) (float64, FieldState) {
		return m.holding(m.load).level(), m.loadState
	})
	for i := range out.members {
		m := &out.members[i]
		// Where nothing is known, neither idle nor saturated: the fill goes by capacity.
		m.load = m.orUsual(m.load, m.holding(0).holds(or(out.level, 1)))
	}
	return out
}

// compareSignals pairs the two signals.
func (m *machine) compareSignals() {
	if m.frozen.stuck() || m.health.Stuck {
		m.pairing.forget() // by that gauge
		return
	}
	if m.passed.inFlight.by < -rewritten {
		// Requests do not end by the dozen in one moment: a count that leaked was corrected, and the difference learned
		// until now is wrong from here on.
		m.pairing.forget()
	}
	running, gauge := m.executes(m.slotCount), m.server.Running.Known()
	if m.measuresRunning() {
		m.pairing.pair(m.server.Queue, running, m.slotCount, gauge)
	}
}

// look determines how the readings count now.
func (m *machine) look(p *pool) fields {
	at := func(r Reading, stuck bool) field {
		f := p.params.at(r, p.now)
		if m.gone && f.state != StateUnknown {
			f.state, f.fade = StateNeutral, 1
		}
		if stuck {
			f.state = StateStuck
		}
		return f
	}
	stuck := m.health.Stuck
	seen := fields{
		queue: at(m.server.Queue, stuck || m.frozen.stuck()), running: at(m.server.Running, stuck),
		utilization: at(m.server.Utilization, stuck), awake: at(m.server.Awake, false),
		executing: at(m.executes(m.slotCount), false), paired: at(Reading{At: m.paired}, false),
		inFlight: p.params.at(m.inFlight, p.now),
	}
	seen.counted = seen.inFlight
	seen.counted.Value = max(0, m.inFlight.Value+m.correction(&seen.paired))
	return seen
}

// correction is the difference of the two signals, as far as it is more than noise, fading as the scrape that it came
// from grows stale. It grows steadily at the end of the noise: a step there would make the load jump to and fro.
// Without it, counts in Redis of which 1 % get lost have a p99 of 8.8 services instead of 5.0.
//
// An exact count does not leak. Where a server does not show requests that the proxies have in flight there, the server
// does not see them (yet, or any more), and they count.
func (m *machine) correction(paired *field) float64 {
	const noise, whole = 0.5, 1.0 // requests: rounding of whole ones
	u := m.unproxied.or(0)
	if m.Exact {
		u = max(0, u)
	}
	trust := (math.Abs(u) - noise) / (whole - noise)
	return u * min(max(0, trust), 1) * (1 - paired.fade)
}

// reported is what some endpoint of the pool reports: its queue, and what it executes.
type reported struct{ queues, executing bool }

// estimate is the load of one member: a sum of fields, as stale as its stalest.
type estimate struct {
	load  float64 // requests
	state FieldState
	age   time.Duration
}

// add counts a field, faded by its age, unless nothing of it is left.
func (e *estimate) add(f *field, median float64) {
	value, ok := f.blend(median)
	if !ok {
		return
	}
	e.load += value
	if e.state == StateUnknown || f.age > e.age {
		e.state, e.age = f.state, f.age
	}
}

// scraped and counted are the two estimates of a member's load; a stale field fades into the value given, which a
// median endpoint of its size would report. A field that others of the pool report and this one does not is not zero:
// the median stands in, and makes the load neutral.
func (m *laden) scraped(any reported, queue, running float64) estimate {
	e := estimate{state: StateUnknown}
	e.add(&m.seen.queue, queue)
	e.add(&m.seen.executing, running)
	if e.state == StateUnknown {
		return e
	}
	if s := m.seen.queue.state; (s == StateUnknown || s == StateStuck) && any.queues {
		e.load, e.state = e.load+orZero(queue), StateNeutral
	}
	if m.seen.executing.state == StateUnknown && any.executing {
		e.load, e.state = e.load+orZero(running), StateNeutral
	}
	return e
}

func (m *laden) counted(median float64) estimate {
	e := estimate{state: StateUnknown}
	e.add(&m.seen.counted, median)
	return e
}

// orUsual is what is known of a load, or what is usual. An endpoint that is gone is not idle because nothing is in
// flight there.
func (m *laden) orUsual(own, usual float64) float64 {
	if m.loadSource == LoadMedian || m.gone && own < usual {
		return usual
	}
	return own
}

// levels are the median levels of each signal by itself; NaN where no member has it.
func (p *pool) levels(members []laden, any reported) (scraped, inFlight float64) {
	usual := func(of func(m *laden) estimate) float64 {
		return typical(p, members, func(m *laden) (float64, FieldState) {
			if m.blackout {
				return 0, StateUnknown
			}
			e := of(m)
			return m.holding(e.load).level(), e.state
		})
	}
	scraped = usual(func(m *laden) estimate { return m.scraped(any, m.seen.queue.Value, m.seen.executing.Value) })
	inFlight = usual(func(m *laden) estimate { return m.counted(m.seen.counted.Value) })
	return scraped, inFlight
}

// measure determines the load from the two signals, whose median levels are given.
func (m *laden) measure(any reported, scraped, inFlight float64) loaded {
	unknown := loaded{loadSource: LoadMedian, loadState: StateUnknown}
	if m.blackout {
		return unknown
	}
	empty := m.holding(0)
	usual := empty.holds(scraped)
	usuallyRunning := min(usual, m.slotCount)
	use, counted := m.scraped(any, usual-usuallyRunning, usuallyRunning), m.counted(empty.holds(inFlight))

	source, offset, paired := LoadScraped, 0.0, m.seen.paired.usable()
	whole := m.seen.queue.usable() && m.seen.executing.usable() && m.measuresRunning()
	if counted.leads(use, paired || !whole) {
		use, source = counted, LoadInFlight
		if paired {
			offset, source = m.correction(&m.seen.paired), LoadFused
		}
	}
	if use.state == StateUnknown {
		return unknown
	}
	return loaded{min(use.load, largestCount), source, use.state, use.age, offset}
}

// leads reports whether the load is made of the in-flight count: where it is all there is, where it is trusted and the
// better one, and otherwise while the scrape is older than it.
func (e *estimate) leads(scraped estimate, better bool) bool {
	switch {
	case e.state == StateUnknown || scraped.state == StateUnknown:
		return e.state != StateUnknown
	case trusted(e.state) && better:
		return true
	}
	return !trusted(scraped.state) && e.age < scraped.age
}

// measuresRunning reports whether executes is a measurement.
func (m *machine) measuresRunning() bool {
	return m.server.Running.Known() || m.slotsSource != CapacityAssumed
}

// inFlightLeads reports whether the load is made of the in-flight count.
func (m *laden) inFlightLeads() bool {
	return m.loadSource == LoadInFlight || m.loadSource == LoadFused
}

// asleep reports whether the engine sleeps, and so takes no requests. A late report of that is not trusted: an engine
// that is awake again must not wait for its page.
func (m *laden) asleep() bool { return trusted(m.seen.awake.state) && m.seen.awake.Value == 0 }
