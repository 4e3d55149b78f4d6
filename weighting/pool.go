package weighting

// The endpoints in a step, and what each can do at once: its slots, speed and ramp
//
// New endpoints: those of the first step are taken as they are, because a control plane that restarts must not ramp a
// pool that serves. One that appears later is in blackout first: its own reports do not count yet, the median stands
// in. Then its capacity ramps linearly from a tenth to the whole.

import (
	"math"
	"time"
)

// pool is the endpoints in one step.
type pool struct {
	params  *Params
	now     time.Time
	members []member
	values  *buffer[float64] // of a median
}

// member is one endpoint in a step: what is shown, and what is remembered of it.
type member struct {
	*Endpoint
	*memory

	gone bool // connections to it are refused
	came arrived
}

// A buffer is memory of the step before, to be overwritten.
type buffer[T any] struct{ last []T }

// take returns n zero values, valid until the next call.
func (b *buffer[T]) take(n int) []T {
	clear(b.last)
	if cap(b.last) < n {
		b.last = make([]T, n)
	}
	b.last = b.last[:n]
	return b.last
}

// medianOf is the median of a value over the endpoints that have one; NaN where none has.
func medianOf[T any](p *pool, of []T, value func(*T) (x float64, ok bool)) float64 {
	values := p.values.take(len(of))[:0]
	for i := range of {
		if x, ok := value(&of[i]); ok {
			values = append(values, x)
		}
	}
	return median(values)
}

// most reports whether something holds for more than half of the endpoints.
func most[T any](of []T, is func(*T) bool) bool {
	n := 0
	for i := range of {
		if is(&of[i]) {
			n++
		}
	}
	return 2*n > len(of)
}

// typical is the median of a value over the pool, of the endpoints where it is trusted. While there is none, because a
// whole source is away, it is that of the fading ones, so that the pool meets in its own middle.
func typical[T any](p *pool, of []T, value func(*T) (x float64, s FieldState)) float64 {
	known := medianOf(p, of, func(m *T) (float64, bool) { x, s := value(m); return x, trusted(s) })
	if !math.IsNaN(known) {
		return known
	}
	return medianOf(p, of, func(m *T) (float64, bool) { x, s := value(m); return x, s == StateDecay })
}

// usable reports whether a reading is recent enough to be used.
func (p *pool) usable(r Reading) bool {
	return r.Known() && r.Age(p.now) <= p.params.Decay
}

// meanQueueTime is how long the requests completed in the last window had waited, in seconds; NaN while unknown.
func (m *member) meanQueueTime(p *pool) float64 {
	const least = 1e-6 // completions per second that a mean needs; a bound
	rate := m.completions.or(math.NaN())
	if !p.usable(m.server.Completions) || !p.usable(m.server.QueueSeconds) || !(rate > least) {
		return math.NaN()
	}
	return m.queueSeconds.or(math.NaN()) / rate
}

// arrived is the requests that came to a member since the last step.
type arrived struct {
	requests float64   // that the proxies sent by the weights, or else that the server saw
	any      bool      // by either of the two
	at       time.Time // of the reading; zero where there is none
}

// arrived is what came to the member since the last step, up to the latest reading.
func (m *member) arrived(p *pool) (a arrived) {
	did := &m.passed.proxies
	server, proxies := m.passed.server.flow(), did.flow()
	a.any = max(server.Arrived, proxies.Arrived, did.failed.by) > rounding
	switch {
	case p.usable(m.proxies.Issued) && p.usable(m.proxies.Ended):
		a.requests, a.at = proxies.Arrived-did.hashed.by, m.proxies.Issued.At
	case p.usable(m.server.Completions):
		a.requests, a.at = max(0, server.Arrived), m.server.Completions.At
	default:
		a.any = a.any || m.change().Arrived > rounding
	}
	return a
}

// A machine is a member with what it can do at once.
type machine struct {
	*member
	room
}

// A room is how much an endpoint can do at once.
type room struct {
	slotCount   float64
	slotsSource CapacitySource
	speed       float64 // relative to the pool's median
	ramp        float64 // part of that which is trusted
	blackout    bool    // so new that its reports do not count
}

// holding is an endpoint with that load as a vessel.
func (r *room) holding(load float64) Vessel {
	return Vessel{Load: load, Slots: r.slotCount * r.ramp, Speed: r.speed}
}

// machines are the members with slots, speed and ramp; pace is completions that are typical per busy slot-second, NaN
// unknown.
func (p *pool) machines(b *buffer[machine]) (machines []machine, pace float64) {
	machines = b.take(len(p.members))
	for i := range machines {
		machines[i].member = &p.members[i]
	}
	p.setSlots(machines)
	pace = medianOf(p, machines, func(m *machine) (float64, bool) { return m.pace.known.rate() })
	for i := range machines {
		m := &machines[i]
		m.speed = math.Pow(m.pace.known.speed(pace), 1-m.pace.unsupported(p.now))
		m.blackout, m.ramp = p.params.trust(m.memory, p.now)
	}
	return machines, pace
}

// setSlots determines how many requests each executes at once (slots.go).
func (p *pool) setSlots(machines []machine) {
	same, isAlike := p.alikeCeiling()
	for i := range machines {
		m := &machines[i]
		m.slotCount, m.slotsSource = m.ownSlots()
		if isAlike && m.slotsSource == CapacityAssumed && m.server.Running.Known() && m.ceiling.most() <= same {
			m.slotCount, m.slotsSource = same, CapacityLearned
		}
	}
	assumed := medianOf(p, machines, func(m *machine) (float64, bool) {
		return m.slotCount, m.slotsSource != CapacityAssumed
	})
	typical := medianOf(p, machines, func(m *machine) (float64, bool) { return m.slotCount, m.measured() })
	if math.IsNaN(assumed) {
		assumed = 1
	}
	for i := range machines {
		if m := &machines[i]; m.slotsSource == CapacityAssumed {
			assumed = max(assumed, m.ceiling.most()) // for all: one that got more requests is not larger
		}
	}
	for i := range machines {
		switch m := &machines[i]; {
		case m.slotsSource == CapacityAssumed:
			m.slotCount = assumed
		case m.measured():
			m.slotCount = alike(m.slotCount, typical)
		}
	}
}

// ownSlots is what is configured, or learned of the endpoint itself.
func (m *member) ownSlots() (float64, CapacitySource) {
	const mostConfigured, mostLearned = 1e6, 1e4 // slots; bounds
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
func (m *machine) measured() bool {
	return m.slotsSource == CapacityLearned && !m.server.Running.Known()
}

// alikeCeiling is the ceiling that more than half of the pool has, once it has held for long enough in the sum over
// these: endpoints that are alike need less evidence each.
func (p *pool) alikeCeiling() (at float64, ok bool) {
	at = medianOf(p, p.members, func(m *member) (float64, bool) { return m.ceiling.at, m.ceiling.reached() })
	endpoints, stayed := 0, 0.0
	for i := range p.members {
		if c := &p.members[i].ceiling; c.at == at && c.reached() {
			endpoints, stayed = endpoints+1, stayed+c.stayed
		}
	}
	return at, 2*endpoints > len(p.members) && stayed >= slotsLeast.Seconds()
}

// leastRamp is the part of its capacity that an endpoint is trusted with at least: a bound on what is lost at a new one
// that fails. Without a ramp, by scrapes, ones that hang for 8 s have a p99 of 6.7 services instead of 2.1.
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
