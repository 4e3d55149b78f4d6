package weighting

// What a step takes from the memory of each member: slots, speed, ramp; and the verdict that it writes
//
// New endpoints: those of the first step are taken as they are, because a control plane that restarts must not ramp a
// pool that serves. One that appears later is in blackout first: its own reports do not count yet, the median stands
// in. Then its capacity ramps linearly from a tenth to the whole.

import (
	"math"
	"time"
)

// slots determines how many requests each member executes at once (slots.go).
func (p *pool) slots() {
	same, isAlike := p.alikeCeiling()
	for i := range p.members {
		m := &p.members[i]
		m.slotCount, m.slotsSource = m.ownSlots()
		if isAlike && m.slotsSource == CapacityAssumed && m.server.Running.Known() && m.ceiling.most() <= same {
			m.slotCount, m.slotsSource = same, CapacityLearned
		}
	}
	assumed := p.median(func(m *member) (float64, bool) { return m.slotCount, m.slotsSource != CapacityAssumed })
	typical := p.median(func(m *member) (float64, bool) { return m.slotCount, m.measured() })
	if math.IsNaN(assumed) {
		assumed = 1
	}
	for i := range p.members {
		if m := &p.members[i]; m.slotsSource == CapacityAssumed {
			assumed = max(assumed, m.ceiling.most()) // for all: one that got more requests is not larger
		}
	}
	for i := range p.members {
		switch m := &p.members[i]; {
		case m.slotsSource == CapacityAssumed:
			m.slotCount = assumed
		case m.measured():
			m.slotCount = alike(m.slotCount, typical)
		}
	}
}

// median returns the median of a value over the members that have one; NaN where none has.
func (p *pool) median(of func(m *member) (value float64, ok bool)) float64 {
	values := p.scratch.values[:0]
	for i := range p.members {
		if value, ok := of(&p.members[i]); ok {
			values = append(values, value)
		}
	}
	p.scratch.values = values
	return median(values)
}

// most reports whether something holds for more than half of the members.
func (p *pool) most(is func(m *member) bool) bool {
	n := 0
	for i := range p.members {
		if is(&p.members[i]) {
			n++
		}
	}
	return 2*n > len(p.members)
}

// pair pairs each member's two signals where a scrape is new.
func (p *pool) pair() {
	for i := range p.members {
		m := &p.members[i]
		m.pair(m.slotCount, m.slotsSource)
	}
}

// ownSlots is what is configured, or learned of the endpoint itself.
func (m *member) ownSlots() (float64, CapacitySource) {
	const mostConfigured, mostLearned = 1e6, 1e4 // slots
	switch c := m.Capacity; {
	case c > 0 && !math.IsInf(c, 0):
		return min(max(c, 1.0/mostConfigured), mostConfigured), CapacityConfigured
	case m.server.Running.Known() && m.ceiling.limits:
		return min(max(1, m.ceiling.at), mostLearned), CapacityLearned
	case !m.server.Running.Known() && m.fullKnown:
		return min(max(1, m.fullBusy.or(1)), mostLearned), CapacityLearned
	}
	return 1, CapacityAssumed
}

// measured reports whether the member's slots were learned from its counter of busy time.
func (m *member) measured() bool {
	return m.slotsSource == CapacityLearned && !m.server.Running.Known()
}

// speeds determines each member's speed relative to the pool's median, and its ramp.
func (p *pool) speeds() {
	p.pace = p.median(func(m *member) (float64, bool) { return m.pace.known.rate() })
	for i := range p.members {
		m := &p.members[i]
		m.speed = math.Pow(m.pace.known.speed(p.pace), 1-m.pace.unsupported(p.now))
		m.blackout, m.ramp = p.params.trust(m.memory, p.now)
		if m.slots = m.slotCount; m.slotsSource == CapacityAssumed {
			m.slots = 0 // no bound on what it executes
		}
	}
}

// leastRamp is the part of its capacity that an endpoint is trusted with at least.
const leastRamp = 0.1

// trust reports whether an endpoint is so new that its reports do not count yet, and what part of its capacity it is
// trusted with.
func (p *Params) trust(m *memory, now time.Time) (blackout bool, ramp float64) {
	age := now.Sub(m.firstSeen)
	if m.established || age >= p.Blackout+p.Ramp {
		return false, 1
	}
	if age < p.Blackout {
		return true, leastRamp
	}
	return false, leastRamp + (1-leastRamp)*float64(age-p.Blackout)/float64(p.Ramp)
}

// usable reports whether a reading is recent enough to be used.
func (p *pool) usable(r Reading) bool {
	return r.Known() && r.Age(p.now) <= p.params.Decay
}

// decision writes the member's verdict with its working.
func (m *member) decision(p *pool, share float64) EndpointDecision {
	d := EndpointDecision{
		Address: m.Address, Zone: m.Zone,
		Share: share, Overloaded: m.flagged, Failing: m.ejected(), Probed: m.probed(), Reason: m.reason(),
		Override: m.inEffect,
		Load:     m.load, LoadSource: m.loadSource, LoadAge: m.loadAge,
		Capacity: m.holding(0).capacity(), Slots: m.slotCount, SlotsSource: m.slotsSource,
		RelativeSpeed: m.speed, Ramp: m.ramp, Unproxied: m.offset,
		CompletionRate: math.NaN(), MeanQueueTime: math.NaN(), BusyFraction: m.busyFraction(p),
	}
	if p.byWork {
		d.Slots = math.NaN()
	}
	if d.Failing || d.Probed != "" {
		d.OutlierSince = m.health.Began
	}
	if m.health.Tried > 0 && m.lifted {
		d.Tried = m.flagReason
	}
	d.Doubted = m.health.Doubted
	if m.flagged {
		d.OverloadReason = m.flagReason
		switch {
		case m.asleep():
			d.OverloadReason = "asleep: its metrics show it, and it takes no requests"
		case m.ejected():
			d.OverloadReason = m.health.Reason
		}
	}
	if p.usable(m.server.Completions) {
		d.CompletionRate = m.completions.or(math.NaN())
	}
	d.Latency, d.LatencyAge = math.NaN(), 0
	if !m.latency.at.IsZero() {
		d.Latency, d.LatencyAge = m.latency.seconds, max(0, p.now.Sub(m.latency.at))
	}
	d.MeanQueueTime = m.meanQueueTime(p)
	d.Restarts = m.server.Restarts
	d.CountersGoBack = m.reversals.often(p.now)
	d.BlockTokens = math.NaN()
	if m.server.BlockTokens.Known() {
		d.BlockTokens = m.server.BlockTokens.Value
	}
	return d
}

// meanQueueTime is how long the requests completed in the last window had waited, in seconds; NaN while unknown.
func (m *member) meanQueueTime(p *pool) float64 {
	const least = 1e-6 // completions per second that a mean needs
	rate := m.completions.or(math.NaN())
	if !p.usable(m.server.Completions) || !p.usable(m.server.QueueSeconds) || !(rate > least) {
		return math.NaN()
	}
	return m.queueSeconds.or(math.NaN()) / rate
}

// busyFraction is the share of the slots executing; NaN while unknown.
func (m *member) busyFraction(p *pool) float64 {
	switch {
	case m.slotsSource == CapacityWork:
		return math.NaN()
	case m.seen.running.usable():
		return min(1, m.server.Running.Value/m.slotCount)
	case p.usable(m.server.BusySeconds):
		return min(1, m.executing.or(math.NaN())/m.slotCount)
	}
	return math.NaN()
}

// reason names the main cause of the share, the most exceptional first.
func (m *member) reason() Reason {
	switch {
	case m.inEffect.Drained:
		return ReasonDrained
	case m.inEffect.Share > 0:
		return ReasonPinned
	case m.asleep():
		return ReasonAsleep
	case m.blackout:
		return ReasonBlackout
	case m.unused():
		return ReasonUnused
	case m.gone || m.loadSource == LoadMedian || m.loadState == StateNeutral:
		return ReasonNeutral
	case m.loadState == StateDecay:
		return ReasonDecay
	case m.ramp < 1:
		return ReasonRamp
	case m.slow:
		return ReasonSlow
	case m.floored:
		return ReasonFloor
	default:
		return ReasonFill
	}
}

// inputs lists the fields with their ages and states.
func (m *member) inputs() [4]Input {
	return [...]Input{
		m.seen.queue.input(FieldQueue),
		m.seen.running.input(FieldRunning),
		m.seen.utilization.input(FieldUtilization),
		m.seen.inFlight.input(FieldInFlight),
	}
}

func (f *field) input(name Field) Input {
	in := Input{Field: name, Value: math.NaN(), Age: f.age, State: f.state}
	if f.state != StateUnknown {
		in.Value = f.Value
	}
	return in
}
