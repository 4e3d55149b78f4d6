package weighting

import (
	"math"
	"time"
)

// slots settles how many requests each member executes at once.
func (p *pool) slots() {
	var found []float64
	for i := range p.members {
		m := &p.members[i]
		m.slotCount, m.slotsSource = m.ownSlots()
		if m.slotsSource != CapacityAssumed {
			found = append(found, m.slotCount)
		}
	}
	assumed := median(found)
	if math.IsNaN(assumed) {
		assumed = 1
	}
	for i := range p.members {
		if m := &p.members[i]; m.slotsSource == CapacityAssumed {
			m.slotCount = assumed
		}
	}
}

// pair brings each member's two signals together where a scrape is new.
func (p *pool) pair() {
	for i := range p.members {
		m := &p.members[i]
		m.pair(m.slotCount, m.slotsSource)
	}
}

// ownSlots is what is configured, or learned of the endpoint itself.
func (m *member) ownSlots() (float64, CapacitySource) {
	const most = 1e6
	switch c := m.Capacity; {
	case c > 0 && !math.IsInf(c, 0):
		return min(max(c, 1.0/most), most), CapacityConfigured
	case m.fullRunning.or(0) > 0:
		return min(max(1, m.fullRunning.or(1)), most), CapacityLearned
	case m.fullBusy.over(fullLeast):
		return min(max(1, m.fullBusy.or(1)), most), CapacityLearned
	}
	return 1, CapacityAssumed
}

// speeds settles each member's speed relative to the pool's median, and its ramp.
func (p *pool) speeds() {
	var rates []float64
	for i := range p.members {
		if rate, ok := p.members[i].work.rate(); ok {
			rates = append(rates, rate)
		}
	}
	typical := median(rates)
	for i := range p.members {
		m := &p.members[i]
		m.speed = m.relativeSpeed(typical)
		m.blackout, m.ramp = p.params.trust(m.memory, p.now)
	}
}

// relativeSpeed is the ratio to the typical rate, shrunk towards 1 by how much
// of the deviation its own noise explains.
func (m *memory) relativeSpeed(typical float64) float64 {
	const widest = 20 // ratio
	rate, ok := m.work.rate()
	if !ok || !(typical > 0) {
		return 1
	}
	x := math.Log(rate / typical)
	variance := 1 / m.work.completions
	speed := math.Exp(x * max(0, 1-4*variance/(x*x)))
	return min(max(speed, 1.0/widest), widest)
}

// trust says whether an endpoint is so new that its reports do not count yet,
// and how much of its capacity it is trusted with.
func (p *Params) trust(m *memory, now time.Time) (blackout bool, ramp float64) {
	const least = 0.1
	age := now.Sub(m.firstSeen)
	if m.established || age >= p.Blackout+p.Ramp {
		return false, 1
	}
	if age < p.Blackout {
		return true, least
	}
	return false, least + (1-least)*float64(age-p.Blackout)/float64(p.Ramp)
}

// typical collects one field over the pool. Its median is that of the believed
// values; while there is none, as when a whole source is away, that of the
// fading ones, so that the pool meets in its own middle.
type typical struct{ believed, fading []float64 }

func (t *typical) add(s FieldState, value float64) {
	switch s {
	case StateFresh, StateHold:
		t.believed = append(t.believed, value)
	case StateDecay:
		t.fading = append(t.fading, value)
	}
}

func (t *typical) median() float64 {
	if len(t.believed) > 0 {
		return median(t.believed)
	}
	return median(t.fading)
}

// loads settles each member's load: first the levels that stale fields fade to,
// then the load of each by the rule of fusion, then the median load for those of
// which nothing is known.
func (p *pool) loads() {
	p.levels()
	var levels, ages typical
	for i := range p.members {
		m := &p.members[i]
		p.measure(m)
		levels.add(m.loadState, m.holding(m.load).level())
		ages.add(m.loadState, m.loadAge.Seconds())
	}
	p.load, p.age = levels.median(), ages.median()
	level := p.load
	if math.IsNaN(level) {
		level = 1 // neither idle nor saturated, and from there on by capacity
	}
	for i := range p.members {
		if m := &p.members[i]; m.loadSource == LoadMedian {
			m.load = m.holding(0).holds(level)
		}
	}
}

// levels of each signal by itself, as last read.
func (p *pool) levels() {
	var scraped, inFlight typical
	for i := range p.members {
		m := &p.members[i]
		if m.blackout {
			continue
		}
		add := func(t *typical, readings ...Reading) {
			var e estimate
			for _, r := range readings {
				e.add(p, r, r.Value)
			}
			t.add(e.state, m.holding(e.load).level())
		}
		add(&scraped, m.server.Queue, m.executes(m.slotCount))
		add(&inFlight, m.corrected(p))
	}
	p.scraped, p.inFlight = scraped.median(), inFlight.median()
}

// measure settles the load of one member from its two signals. A stale field
// fades into what an endpoint of this one's size and speed would report at the
// pool's median level.
func (p *pool) measure(m *member) {
	m.loadSource, m.loadState = LoadMedian, StateUnknown
	if m.blackout {
		return
	}
	var scraped, inFlight estimate
	running, empty := m.executes(m.slotCount), m.holding(0)
	usual := empty.holds(p.scraped)
	usuallyRunning := min(usual, m.slotCount)
	scraped.add(p, m.server.Queue, usual-usuallyRunning)
	scraped.add(p, running, usuallyRunning)
	inFlight.add(p, m.corrected(p), empty.holds(p.inFlight))

	paired := p.tells(Reading{At: m.paired})
	whole := p.tells(m.server.Queue) && p.tells(running) && m.measuresRunning(m.slotsSource)
	use := scraped
	m.loadSource = LoadScraped
	if inFlight.leads(scraped, paired || !whole) {
		use = inFlight
		m.loadSource = LoadInFlight
		if paired {
			m.offset, m.loadSource = m.correction(p), LoadFused
		}
	}
	if use.state == StateUnknown {
		m.loadSource = LoadMedian
		return
	}
	m.load = min(use.load, largestCount)
	m.loadState, m.loadAge = use.state, use.age
}

// leads reports whether the in-flight count is what the load is made of: where
// it is all there is, where it is believed and the better one, and else while
// the scrape has grown older than it.
func (e *estimate) leads(scraped estimate, better bool) bool {
	switch {
	case e.state == StateUnknown || scraped.state == StateUnknown:
		return e.state != StateUnknown
	case believed(e.state) && better:
		return true
	}
	return !believed(scraped.state) && e.age < scraped.age
}

// estimate is a load in the making: a sum of fields, as stale as its stalest.
type estimate struct {
	load  float64 // requests
	state FieldState
	age   time.Duration
}

// add counts a field, faded by its age. One that was never reported, or of which
// nothing is left and that has no median, is no part of the load.
func (e *estimate) add(p *pool, r Reading, median float64) {
	if e.state == "" {
		e.state = StateUnknown
	}
	value, ok := p.params.blend(r, p.now, median)
	if !ok {
		return
	}
	e.load += value
	if age := r.Age(p.now); e.state == StateUnknown || age > e.age {
		e.state, e.age = p.params.state(r, p.now), age
	}
}

// corrected is the in-flight count with what the scrapes know better.
func (m *member) corrected(p *pool) Reading {
	r := m.inFlight
	r.Value = max(0, r.Value+m.correction(p))
	return r
}

// correction is the difference of the two signals, as far as it is more than
// noise, fading as the scrape it came from grows stale.
func (m *member) correction(p *pool) float64 {
	const noise = 0.5 // requests
	u := m.unproxied.or(0)
	if math.Abs(u) < noise {
		return 0
	}
	return u * (1 - p.params.fade(Reading{At: m.paired}, p.now))
}

// decision writes the member's verdict with its working.
func (m *member) decision(p *pool, share float64) EndpointDecision {
	d := EndpointDecision{
		Address: m.Address, Zone: m.Zone,
		Share: share, Overloaded: m.flagged, Reason: m.reason(),
		Load: m.load, LoadSource: m.loadSource,
		Capacity: m.holding(0).capacity(), Slots: m.slotCount, SlotsSource: m.slotsSource,
		RelativeSpeed: m.speed, Ramp: m.ramp, Unproxied: m.offset,
		CompletionRate: math.NaN(), MeanQueueTime: math.NaN(), BusyFraction: m.busyFraction(p),
	}
	if m.flagged {
		d.OverloadReason = m.flagReason
	}
	if p.tells(m.server.Completions) {
		d.CompletionRate = m.completions.or(math.NaN())
	}
	const least = 1e-6 // completions per second that a mean stands on
	if p.tells(m.server.QueueSeconds) && d.CompletionRate > least {
		d.MeanQueueTime = m.queueSeconds.or(math.NaN()) / d.CompletionRate
	}
	return d
}

// busyFraction is the share of the slots executing; NaN while unknown.
func (m *member) busyFraction(p *pool) float64 {
	switch {
	case p.tells(m.server.Running):
		return min(1, m.server.Running.Value/m.slotCount)
	case p.tells(m.server.BusySeconds):
		return min(1, m.executing.or(math.NaN())/m.slotCount)
	}
	return math.NaN()
}

// reason names the main cause of the share, the most exceptional first.
func (m *member) reason() Reason {
	switch {
	case m.blackout:
		return ReasonBlackout
	case m.loadSource == LoadMedian || m.loadState == StateNeutral:
		return ReasonNeutral
	case m.loadState == StateDecay:
		return ReasonDecay
	case m.ramp < 1:
		return ReasonRamp
	case m.floored:
		return ReasonFloor
	default:
		return ReasonFill
	}
}

// inputs lists the fields with their ages and states.
func (p *pool) inputs(m *member) [4]Input {
	return [...]Input{
		p.input(FieldQueue, m.server.Queue),
		p.input(FieldRunning, m.server.Running),
		p.input(FieldUtilization, m.server.Utilization),
		p.input(FieldInFlight, m.inFlight),
	}
}

func (p *pool) input(field Field, r Reading) Input {
	if !r.Known() {
		return Input{Field: field, Value: math.NaN(), State: StateUnknown}
	}
	return Input{Field: field, Value: r.Value, Age: r.Age(p.now), State: p.params.state(r, p.now)}
}
