package weighting

// The unit of load: requests, or the work of a mean request

import (
	"cmp"
	"math"
)

// A unit is what loads are counted in: requests, or the work of a mean request.
type unit struct {
	pace        float64 // completions that are typical per busy slot-second; NaN unknown
	level       float64 // median of the loads; NaN unknown
	byWork      bool
	requestWork float64 // then, that work in prompt tokens
	prefillRate float64 // then, prompt tokens that a typical engine computes in a second; NaN unknown
	counted     bool    // then, the proxies report the requests that begin
}

// A weighed machine is one with its load in that unit, and what it can do at once.
type weighed struct {
	*laden
	room

	workload      float64
	prefillSource PrefillSource
}

// weigh settles the unit and the loads in it: of a pool of which most count tokens, as engines do that batch
// continuously, that is the work of a mean request.
func (l *Law) weigh(p *pool, b *buffer[weighed], loads loads, pace float64) ([]weighed, unit) {
	k := &l.prompts
	k.fade(p.now, l.rate)
	members := b.take(len(loads.members))
	for i := range members {
		m := &members[i]
		m.laden = &loads.members[i]
		m.room, m.workload = m.laden.room, m.load
		if !m.server.Tokens.At.IsZero() {
			m.engine.speed = cmp.Or(m.engine.speed, 1)
		}
		if m.engine.speed != 0 {
			waits := valueOf(m.queueGauge()) > 0
			m.engine.learn(k, l.cost, &m.server, &m.passed, m.countsTokens(), waits)
		}
	}
	u := unit{pace: pace, level: loads.level}
	if u.byWork = most(members, (*weighed).countsTokens) && !math.IsNaN(k.mean()); u.byWork {
		return members, l.work(p, members, u)
	}
	for i := range members {
		if o := &members[i].engine.outstanding; !o.at.IsZero() {
			*o = outstanding{}
		}
	}
	return members, u
}

// work is the unit and the loads in it, in mean requests.
func (l *Law) work(p *pool, members []weighed, u unit) unit {
	k := &l.prompts
	l.cost = costOf(members, l.cost)
	u.requestWork, u.prefillRate = k.whole(), l.cost.rate()
	p.engineSpeeds(members, l.cost)
	for i := range members {
		m := &members[i]
		source := m.count(p, k, u.prefillRate, l.rate)
		m.workload = (m.engine.outstanding.tokens + m.load*k.decode()) / u.requestWork
		u.counted = u.counted || source != WorkExpected
	}
	countOthers(members, k, u.requestWork)
	p.settleSpeeds(members)
	for i := range members {
		m := &members[i]
		m.slotCount, m.slotsSource = 1, CapacityWork
	}
	u.level = typical(p, members, func(m *weighed) (float64, FieldState) {
		return m.holding(m.workload).level(), m.loadState
	})
	for i := range members {
		m := &members[i]
		m.workload = m.orUsual(m.workload, m.holding(0).holds(orZero(u.level)))
	}
	return u
}

// countOthers sets the work of the members that count no tokens: a request there is as much work as one elsewhere.
// Nothing shows what such an engine has computed, nor how fast it does. Where it is faster, fewer requests stay.
func countOthers(members []weighed, k *prompts, requestWork float64) {
	var work, requests float64
	for i := range members {
		if m := &members[i]; m.countsTokens() {
			work, requests = work+m.workload, requests+m.load
		}
	}
	if !(requests > 0) {
		return
	}
	for i := range members {
		if m := &members[i]; !m.countsTokens() {
			m.workload = m.load * work / requests
			m.engine.outstanding.tokens = max(0, m.workload*requestWork-m.load*k.decode())
		}
	}
}

// learned is what is known of the requests of the pool, for people.
func (l *Law) learned(p *pool, u *unit) *Work {
	if !u.byWork {
		return nil
	}
	k := &l.prompts
	w := &Work{
		PromptTokens: k.mean(), OutputTokens: k.output(), Requests: k.first,
		TokensPerByte: k.perByte.typical(), SizedAt: k.sizedAt, BySize: k.bySize(), Cached: k.cachedShare(),
		PrefillRate: u.prefillRate, Iteration: l.cost.iteration,
	}
	for i := range p.members {
		m := &p.members[i]
		if p.usable(Reading{At: m.server.Tokens.At}) {
			w.Engines++
		}
		w.CountedAt, w.RatedAt = newer(w.CountedAt, m.server.Tokens.At), newer(w.RatedAt, m.engine.rated)
	}
	return w
}

// work is what is outstanding at the member of a pool whose unit is work.
func (m *weighed) work(u *unit) EndpointWork {
	e, rate := &m.engine, u.prefillRate*m.speed
	w := EndpointWork{
		PromptTokens: e.outstanding.tokens, Source: e.outstanding.source, CountedAt: m.server.Tokens.At,
		Requests: m.workload, Seconds: m.workload * u.requestWork / rate,
		PrefillRate: rate, PrefillSource: m.prefillSource, RatedAt: e.rated,
	}
	switch w.Source {
	case WorkSizes, WorkRequests:
		w.ReportedAt = m.proxies.Issued.At
	case WorkInFlight:
		w.ReportedAt = m.inFlight.At
	}
	return w
}

// costOf is what a token costs the engines together; what was known where they show too little.
func costOf(members []weighed, known cost) cost {
	var all efficiency
	for i := range members {
		if e := &members[i].engine; e.efficiency.seconds() > 0 {
			all.plus(e.efficiency.typical(e.speed))
		}
	}
	if c, ok := all.cost(); ok {
		return c
	}
	return known
}

// engineSpeeds settles each engine's speed relative to the median one.
func (p *pool) engineSpeeds(members []weighed, c cost) {
	const sigmas = 3 // of what chance explains; a budget
	typical := medianOf(p, members, func(m *weighed) (float64, bool) {
		speed, _, ok := m.engine.efficiency.speed(c)
		return speed, ok
	})
	for i := range members {
		e := &members[i].engine
		e.speed = cmp.Or(e.speed, 1)
		if speed, noise, ok := e.efficiency.speed(c); ok {
			e.speed = shrunk(speed/typical, sameSpeed*sameSpeed+sigmas*sigmas*noise*noise)
		}
	}
}

// sameSpeed is the deviation, of the logarithm, up to which engines are taken for equally fast: the cost is that of a
// simple model of an iteration.
const sameSpeed = 0.05

// count brings the account of a member up to now, and returns by what the requests that began are known.
func (m *weighed) count(p *pool, k *prompts, prefillRate, perSecond float64) WorkSource {
	// chance is how far expected requests are from coming evenly, in mean prompts: half of one where prompts of one
	// size come at random, and less, because the shares follow the loads. With scrapes only, at load 0.5, the p99 of
	// the first token is 1.04 times as long without it; with a half it is as long, and 1.02 in 14 fleets together.
	const chance = 0.25
	o, mean := &m.engine.outstanding, k.mean()
	if o.at.IsZero() {
		o.at = p.now
	}
	elapsed := p.now.Sub(o.at).Seconds()
	o.pace(prefillRate*m.engine.speed, p.usable(Reading{At: m.server.Tokens.At}))
	o.drain(p.now)
	o.spread = 0
	switch {
	case p.usable(m.proxies.Issued):
		sent, refused := m.passed.proxies.sent, m.passed.proxies.refused
		o.begin(sent.requests, k.guess(sent))
		o.begin(-refused.requests, -k.guess(refused))
		o.source = WorkRequests
		if k.bySize() && m.proxies.Sized.Value > 0 {
			o.source = WorkSizes
		}
	case p.usable(m.inFlight):
		rise := max(0, m.passed.inFlight.by)
		o.begin(rise, rise*mean)
		o.source = WorkInFlight
	default:
		expected := m.inForce.share * perSecond * elapsed
		o.spread = chance * mean
		o.begin(expected, expected*mean)
		o.source = WorkExpected
	}
	if m.passed.server.tokens.seconds > 0 && m.countsTokens() {
		waiting := valueOf(m.queueGauge())
		o.correct(&m.passed.server.tokens, orZero(waiting), waiting+valueOf(m.server.Running), mean)
	}
	return o.source
}

// settleSpeeds takes configured capacities for relative speeds. Those without one are compared with the others by what
// was learned. Capacities that are all the same, such as the sequences that every engine may run, say nothing of speed.
func (p *pool) settleSpeeds(members []weighed) {
	configured := func(m *weighed) (float64, bool) {
		own, from := m.ownSlots()
		return own, from == CapacityConfigured
	}
	least, most := math.Inf(1), 0.0
	for i := range members {
		m := &members[i]
		m.speed, m.prefillSource = m.engine.speed, PrefillTypical
		if m.engine.efficiency.seconds() >= enough {
			m.prefillSource = PrefillMeasured
		}
		if own, ok := configured(m); ok {
			least, most = min(least, own), max(most, own)
		}
	}
	if least >= most {
		return
	}
	learned := medianOf(p, members, func(m *weighed) (float64, bool) { _, ok := configured(m); return m.speed, ok })
	typical := medianOf(p, members, configured) / learned
	for i := range members {
		m := &members[i]
		if own, ok := configured(m); ok {
			m.speed, m.prefillSource = own/typical, PrefillConfigured
		}
	}
}
