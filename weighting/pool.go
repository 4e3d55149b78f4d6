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
		p.members[i].pair(p.members[i].slotCount)
	}
}

// ownSlots is what is configured, or learned of the endpoint itself.
func (m *member) ownSlots() (float64, CapacitySource) {
	const most = 1e6
	switch c := m.Capacity; {
	case c > 0 && !math.IsInf(c, 0):
		return min(max(c, 1.0/most), most), CapacityConfigured
	case m.running.over(0) && m.running.or(0) > 0:
		return min(max(1, m.running.or(1)), most), CapacityLearned
	case m.fullExecuting.over(fullLeast):
		return min(max(1, m.fullExecuting.or(1)), most), CapacityLearned
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
	if x == 0 {
		return 1
	}
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

// loads settles each member's load: first the medians that stale fields fade
// into, then the load of each by the rule of fusion, then the median load for
// those of which nothing is known.
func (p *pool) loads() {
	p.medians()
	var relative typical
	for i := range p.members {
		m := &p.members[i]
		p.measure(m)
		relative.add(m.loadState, m.load/m.capacity())
	}
	p.load = relative.median()
	for i := range p.members {
		if m := &p.members[i]; m.loadSource == LoadMedian && !math.IsNaN(p.load) {
			m.load = p.load * m.capacity()
		}
	}
}

// medians of each field of load, per slot.
func (p *pool) medians() {
	var queue, running, inFlight typical
	for i := range p.members {
		m := &p.members[i]
		if m.blackout {
			continue
		}
		for _, f := range []struct {
			typical *typical
			reading Reading
		}{{&queue, m.server.Queue}, {&running, m.executes(m.slotCount)}, {&inFlight, m.inFlight}} {
			f.typical.add(p.params.state(f.reading, p.now), f.reading.Value/m.slotCount)
		}
	}
	p.queue, p.running, p.inFlight = queue.median(), running.median(), inFlight.median()
}

// measure settles the load of one member from its two signals.
func (p *pool) measure(m *member) {
	m.loadSource, m.loadState = LoadMedian, StateUnknown
	if m.blackout {
		return
	}
	var scraped, inFlight estimate
	scraped.add(p, m.server.Queue, p.queue*m.slotCount)
	scraped.add(p, m.executes(m.slotCount), p.running*m.slotCount)
	inFlight.add(p, m.inFlight, p.inFlight*m.slotCount)

	use, source := scraped, LoadScraped
	switch {
	case believed(inFlight.state) && p.tells(Reading{At: m.paired}):
		m.offset = m.correction(p)
		use, source = inFlight, LoadFused
	case scraped.state == StateUnknown || believed(inFlight.state) && !believed(scraped.state):
		use, source = inFlight, LoadInFlight
	}
	if use.state != StateUnknown {
		m.load, m.loadState, m.loadAge = max(0, use.load+m.offset), use.state, use.age
		m.loadSource = source
	}
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
		Capacity: m.capacity(), Slots: m.slotCount, SlotsSource: m.slotsSource,
		RelativeSpeed: m.speed, Ramp: m.ramp, Unproxied: m.offset,
		Inputs:         p.inputs(m),
		CompletionRate: m.completions.or(math.NaN()),
		MeanQueueTime:  math.NaN(),
		BusyFraction:   m.busyFraction(),
	}
	if m.flagged {
		d.OverloadReason = m.flagReason
	}
	if rate := m.completions.or(0); rate > 0 {
		d.MeanQueueTime = m.queueSeconds.or(math.NaN()) / rate
	}
	return d
}

// busyFraction is the share of the slots executing; NaN while unknown.
func (m *member) busyFraction() float64 {
	executing := m.executing.or(math.NaN())
	if m.server.Running.Known() {
		executing = m.server.Running.Value
	}
	if math.IsNaN(executing) {
		return executing
	}
	return min(1, executing/m.slotCount)
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
func (p *pool) inputs(m *member) []Input {
	in := make([]Input, 0, 4)
	for _, f := range []struct {
		field   Field
		reading Reading
	}{
		{FieldQueue, m.server.Queue}, {FieldRunning, m.server.Running},
		{FieldUtilization, m.server.Utilization}, {FieldInFlight, m.inFlight},
	} {
		i := Input{Field: f.field, Value: math.NaN(), State: p.params.state(f.reading, p.now)}
		if f.reading.Known() {
			i.Value, i.Age = f.reading.Value, f.reading.Age(p.now)
		}
		in = append(in, i)
	}
	return in
}
