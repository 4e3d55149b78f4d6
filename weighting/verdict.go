package weighting

// The verdict on an endpoint, with its working

import "math"

// decision writes the member's verdict with its working.
func (m *filled) decision(p *pool, u *unit) EndpointDecision {
	d := EndpointDecision{
		Address: m.Address, Zone: m.Zone,
		Share: m.share, Overloaded: m.flagged, Failing: m.ejected(), Probed: m.probed(), Reason: m.reason(),
		Override: m.inEffect,
		Load:     m.load, LoadSource: m.loadSource, LoadAge: m.loadAge,
		Capacity: m.holding(0).capacity(), Slots: m.slotCount, SlotsSource: m.slotsSource,
		RelativeSpeed: m.speed, Ramp: m.ramp, Unproxied: m.offset,
		CompletionRate: math.NaN(), MeanQueueTime: math.NaN(), BusyFraction: m.busyFraction(p),
	}
	if u.byWork {
		d.Slots = math.NaN()
	}
	if d.Failing || d.Probed != "" {
		d.OutlierSince = m.state.Began
	}
	if m.countsTokens() && m.server.Tokens.Live {
		d.Worked = m.state.Worked
	}
	if m.state.Tried > 0 && m.lifted {
		d.Tried = m.flagReason
	}
	d.Doubted = m.state.Doubted
	if m.flagged {
		d.OverloadReason = m.flagReason
		switch {
		case m.asleep():
			d.OverloadReason = "asleep: its metrics show it, and it takes no requests"
		case m.ejected():
			d.OverloadReason = m.state.Reason
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

// busyFraction is the share of the slots executing; NaN while unknown.
func (m *filled) busyFraction(p *pool) float64 {
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
func (m *filled) reason() Reason {
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
func (m *laden) inputs() [4]Input {
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
