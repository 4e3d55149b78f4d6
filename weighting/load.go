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

// fields are a member's readings as they count in this step.
type fields struct {
	queue, running, utilization, awake, inFlight field // as reported

	executing field // running, or what stands in for it
	counted   field // in flight, corrected by the scrapes
	paired    field // the age of that correction
}

// look determines how each member's readings count now.
func (p *pool) look() {
	for i := range p.members {
		m := &p.members[i]
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
		m.seen = fields{
			queue: at(m.server.Queue, stuck || m.frozen.stuck()), running: at(m.server.Running, stuck),
			utilization: at(m.server.Utilization, stuck), awake: at(m.server.Awake, false),
			executing: at(m.executes(m.slotCount), false), paired: at(Reading{At: m.paired}, false),
			inFlight: p.params.at(m.inFlight, p.now),
		}
		m.seen.counted = m.seen.inFlight
		m.seen.counted.Value = max(0, m.inFlight.Value+m.correction())
		p.queues = p.queues || m.seen.queue.usable()
		p.executes = p.executes || m.seen.executing.usable()
	}
}

// correction is the difference of the two signals, as far as it is more than noise, fading as the scrape that it came
// from grows stale. It grows steadily at the end of the noise: a step there would make the load jump to and fro.
//
// An exact count does not leak. Where a server does not show requests that the proxies have in flight there, the server
// does not see them (yet, or any more), and they count.
func (m *member) correction() float64 {
	const noise, whole = 0.5, 1.0 // requests
	u := m.unproxied.or(0)
	if m.Exact {
		u = max(0, u)
	}
	trust := (math.Abs(u) - noise) / (whole - noise)
	return u * min(max(0, trust), 1) * (1 - m.seen.paired.fade)
}

// typical is the median of a value over the pool, of the members where it is trusted. While there is none, because a
// whole source is away, it is that of the fading ones, so that the pool meets in its own middle.
func (p *pool) typical(of func(m *member) (value float64, s FieldState)) float64 {
	known := p.median(func(m *member) (float64, bool) { value, s := of(m); return value, trusted(s) })
	if !math.IsNaN(known) {
		return known
	}
	return p.median(func(m *member) (float64, bool) { value, s := of(m); return value, s == StateDecay })
}

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
func (m *member) scraped(p *pool, queue, running float64) estimate {
	e := estimate{state: StateUnknown}
	e.add(&m.seen.queue, queue)
	e.add(&m.seen.executing, running)
	if e.state == StateUnknown {
		return e
	}
	if s := m.seen.queue.state; (s == StateUnknown || s == StateStuck) && p.queues {
		e.load, e.state = e.load+orZero(queue), StateNeutral
	}
	if m.seen.executing.state == StateUnknown && p.executes {
		e.load, e.state = e.load+orZero(running), StateNeutral
	}
	return e
}

func (m *member) counted(median float64) estimate {
	e := estimate{state: StateUnknown}
	e.add(&m.seen.counted, median)
	return e
}

// loads determines each member's load: first the levels that stale fields fade into, then the load of each member, then
// the median load for those of which nothing is known.
func (p *pool) loads() {
	p.look()
	scraped, inFlight := p.levels()
	for i := range p.members {
		p.measure(&p.members[i], scraped, inFlight)
	}
	p.age = p.typical(func(m *member) (float64, FieldState) { return m.loadAge.Seconds(), m.loadState })
	// Where nothing is known, neither idle nor saturated: the fill goes by capacity.
	p.standIn(1, func(m *member) *float64 { return &m.load })
}

// standIn sets the median level of the loads, and loads those of which nothing is known to that level, or to the one
// given where there is none. An endpoint that is gone is not idle because nothing is in flight there.
func (p *pool) standIn(unknown float64, load func(*member) *float64) {
	level := unknown
	p.load = p.typical(func(m *member) (float64, FieldState) { return m.holding(*load(m)).level(), m.loadState })
	if !math.IsNaN(p.load) {
		level = p.load
	}
	for i := range p.members {
		m := &p.members[i]
		if usual, own := m.holding(0).holds(level), load(m); m.loadSource == LoadMedian || m.gone && *own < usual {
			*own = usual
		}
	}
}

// levels are the median levels of each signal by itself; NaN where no member has it.
func (p *pool) levels() (scraped, inFlight float64) {
	typical := func(of func(m *member) estimate) float64 {
		return p.typical(func(m *member) (float64, FieldState) {
			if m.blackout {
				return 0, StateUnknown
			}
			e := of(m)
			return m.holding(e.load).level(), e.state
		})
	}
	scraped = typical(func(m *member) estimate { return m.scraped(p, m.seen.queue.Value, m.seen.executing.Value) })
	inFlight = typical(func(m *member) estimate { return m.counted(m.seen.counted.Value) })
	return scraped, inFlight
}

// measure determines the load of one member from its two signals, whose median levels are given.
func (p *pool) measure(m *member, scraped, inFlight float64) {
	m.loadSource, m.loadState = LoadMedian, StateUnknown
	if m.blackout {
		return
	}
	empty := m.holding(0)
	usual := empty.holds(scraped)
	usuallyRunning := min(usual, m.slotCount)
	use, counted := m.scraped(p, usual-usuallyRunning, usuallyRunning), m.counted(empty.holds(inFlight))

	source, paired := LoadScraped, m.seen.paired.usable()
	whole := m.seen.queue.usable() && m.seen.executing.usable() && m.measuresRunning(m.slotsSource)
	if counted.leads(use, paired || !whole) {
		use, source = counted, LoadInFlight
		if paired {
			m.offset, source = m.correction(), LoadFused
		}
	}
	if use.state == StateUnknown {
		return
	}
	m.load, m.loadSource = min(use.load, largestCount), source
	m.loadState, m.loadAge = use.state, use.age
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
