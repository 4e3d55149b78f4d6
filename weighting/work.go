package weighting

import (
	"cmp"
	"math"
	"time"

	"steelyard/weighting/shed"
)

// work settles the load of the members of a pool of engines that batch continuously, in mean requests. It is for a
// pool of which most count tokens; for others a request is the unit.
func (l *Law) work(p *pool) {
	k := &l.prompts
	k.fade(p.now, l.rate)
	for i := range p.members {
		m := &p.members[i]
		if !m.server.Tokens.At.IsZero() {
			m.engine.speed = cmp.Or(m.engine.speed, 1)
		}
		if m.engine.speed != 0 {
			m.engine.learn(k, l.cost, m)
		}
	}
	p.byWork = p.most((*member).countsTokens) && !math.IsNaN(k.mean())
	if p.byWork != l.byWork {
		l.byWork, l.shedder = p.byWork, shed.Controller{} // its rates are for each slot
	}
	if !p.byWork {
		for i := range p.members {
			m := &p.members[i]
			if m.workload = m.load; !m.engine.outstanding.at.IsZero() {
				m.engine.outstanding = outstanding{}
			}
		}
		return
	}
	l.engineSpeeds(p)
	p.requestWork, p.prefillRate = k.whole(), l.cost.rate()
	for i := range p.members {
		m := &p.members[i]
		m.engine.speed = cmp.Or(m.engine.speed, 1)
		m.count(p, k, l.rate)
	}
	p.countOthers(k)
	p.levelWork()
}

// countOthers sets the work of the members that count no tokens: a request there is as much work as one elsewhere.
// Nothing shows what such an engine has computed, nor how fast it does. Where it is faster, fewer requests stay.
func (p *pool) countOthers(k *prompts) {
	var work, requests float64
	for i := range p.members {
		if m := &p.members[i]; m.countsTokens() {
			work, requests = work+m.workload, requests+m.load
		}
	}
	if !(requests > 0) {
		return
	}
	for i := range p.members {
		if m := &p.members[i]; !m.countsTokens() {
			m.workload = m.load * work / requests
			m.engine.outstanding.tokens = max(0, m.workload*p.requestWork-m.load*k.decode())
		}
	}
}

// learned is what is known of the requests of the pool, for people.
func (l *Law) learned(p *pool) *Work {
	if !p.byWork {
		return nil
	}
	k := &l.prompts
	w := &Work{
		PromptTokens: k.mean(), OutputTokens: k.output(), Requests: k.first,
		TokensPerByte: k.perByte.typical(), SizedAt: k.sizedAt, BySize: k.bySize(), Cached: k.cachedShare(),
		PrefillRate: p.prefillRate, Iteration: l.cost.iteration,
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

func newer(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// work is what is outstanding at the member of a pool whose unit is work.
func (m *member) work(p *pool) EndpointWork {
	e, rate := &m.engine, p.prefillRate*m.speed
	w := EndpointWork{
		PromptTokens: e.outstanding.tokens, Source: e.outstanding.source, CountedAt: m.server.Tokens.At,
		Requests: m.workload, Seconds: m.workload * p.requestWork / rate,
		PrefillRate: rate, PrefillSource: e.prefillSource, RatedAt: e.rated,
	}
	switch w.Source {
	case WorkSizes, WorkRequests:
		w.ReportedAt = m.proxies.Issued.At
	case WorkInFlight:
		w.ReportedAt = m.inFlight.At
	}
	return w
}

// engineSpeeds settles what a token costs, and each engine's speed relative to the median one.
func (l *Law) engineSpeeds(p *pool) {
	var all efficiency
	for i := range p.members {
		if e := &p.members[i].engine; e.efficiency.seconds() > 0 {
			all.plus(e.efficiency.typical(e.speed))
		}
	}
	if c, ok := all.cost(); ok {
		l.cost = c
	}
	const sigmas = 3 // of what chance explains
	typical := p.median(func(m *member) (float64, bool) {
		speed, _, ok := m.engine.efficiency.speed(l.cost)
		return speed, ok
	})
	for i := range p.members {
		e := &p.members[i].engine
		if speed, noise, ok := e.efficiency.speed(l.cost); ok {
			e.speed = shrunk(speed/typical, sameSpeed*sameSpeed+sigmas*sigmas*noise*noise)
		}
	}
}

// sameSpeed is the deviation, of the logarithm, up to which engines are taken for equally fast: the cost is that of a
// simple model of an iteration.
const sameSpeed = 0.05

// count brings the account of a member up to now.
func (m *member) count(p *pool, k *prompts, perSecond float64) {
	// chance is how far expected requests are from coming evenly, in mean prompts: half of one where prompts of one
	// size come at random, and less, because the shares follow the loads. With scrapes only, at load 0.5, the p99 of
	// the first token is 1.04 times as long without it; with a half it is as long, and 1.02 in 14 fleets together.
	const chance = 0.25
	o, mean := &m.engine.outstanding, k.mean()
	if o.at.IsZero() {
		o.at = p.now
	}
	elapsed := p.now.Sub(o.at).Seconds()
	o.pace(p.prefillRate*m.engine.speed, p.usable(Reading{At: m.server.Tokens.At}))
	o.drain(p.now)
	o.spread = 0
	switch {
	case p.usable(m.proxies.Issued):
		sent, refused := m.passed.proxies.sent, m.passed.proxies.refused
		o.begin(sent.requests, k.guess(sent))
		o.begin(-refused.requests, -k.guess(refused))
		o.source, p.counted = WorkRequests, true
		if k.bySize() && m.proxies.Sized.Value > 0 {
			o.source = WorkSizes
		}
	case p.usable(m.inFlight):
		rise := max(0, m.passed.inFlight.by)
		o.begin(rise, rise*mean)
		o.source, p.counted = WorkInFlight, true
	default:
		expected := m.share * perSecond * elapsed
		o.spread = chance * mean
		o.begin(expected, expected*mean)
		o.source = WorkExpected
	}
	if m.passed.server.tokens.seconds > 0 && m.countsTokens() {
		waiting := valueOf(m.queueGauge())
		o.correct(&m.passed.server.tokens, orZero(waiting), waiting+valueOf(m.server.Running), mean)
	}
	m.workload = (o.tokens + m.load*k.decode()) / p.requestWork
}

// levelWork sets the capacities of the members by their speeds, and the load of those of which nothing is known to that
// of a median one.
func (p *pool) levelWork() {
	p.settleSpeeds()
	for i := range p.members {
		m := &p.members[i]
		m.slotCount, m.slots, m.slotsSource = 1, 0, CapacityWork
	}
	p.standIn(0, func(m *member) *float64 { return &m.workload })
}

// settleSpeeds takes configured capacities for relative speeds. Those without one are compared with the others by what
// was learned. Capacities that are all the same, such as the sequences that every engine may run, say nothing of speed.
func (p *pool) settleSpeeds() {
	configured := func(m *member) (float64, bool) {
		own, from := m.ownSlots()
		return own, from == CapacityConfigured
	}
	least, most := math.Inf(1), 0.0
	for i := range p.members {
		m := &p.members[i]
		m.speed, m.engine.prefillSource = m.engine.speed, PrefillTypical
		if m.engine.efficiency.seconds() >= enough {
			m.engine.prefillSource = PrefillMeasured
		}
		if own, ok := configured(m); ok {
			least, most = min(least, own), max(most, own)
		}
	}
	if least >= most {
		return
	}
	learned := p.median(func(m *member) (float64, bool) { _, ok := configured(m); return m.speed, ok })
	typical := p.median(configured) / learned
	for i := range p.members {
		m := &p.members[i]
		if own, ok := configured(m); ok {
			m.speed, m.engine.prefillSource = own/typical, PrefillConfigured
		}
	}
}
