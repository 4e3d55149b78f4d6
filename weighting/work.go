package weighting

import (
	"math"
	"slices"
	"time"

	"steelyard/weighting/shed"
)

// An engineState is what the law knows of an endpoint that batches continuously.
type engineState struct {
	sized         tokenGrowth // since tokens were held against bytes
	sizes         batch       // that began meanwhile
	compared      tokenGrowth // since guesses were compared
	guessed       batch       // that began meanwhile
	step          tokenGrowth // since an iteration ended, while it was never idle
	inStep        bool        // step began as one ended
	gap           float64     // seconds between the last two readings
	busy          tokenGrowth // since the cost was learned from
	efficiency    efficiency
	rated         time.Time // the newest reading in efficiency
	speed         float64   // relative to the typical one; 1 while unknown
	prefillSource PrefillSource
	outstanding   outstanding
}

// tokenGrowth is what an engine did from one reading to another.
type tokenGrowth struct {
	seconds                                        float64
	computed, cached, first, generated, iterations float64
}

func (d *tokenGrowth) add(o *tokenGrowth) {
	d.seconds += o.seconds
	d.computed += o.computed
	d.cached += o.cached
	d.first += o.first
	d.generated += o.generated
	d.iterations += o.iterations
}

// growth is what was counted between two readings; false where a count went back or rose by more than it can.
func (t *TokenCounts) growth(old *TokenCounts) (d tokenGrowth, ok bool) {
	d = tokenGrowth{
		seconds: t.At.Sub(old.At).Seconds(), computed: t.Prompt - t.Cached - (old.Prompt - old.Cached),
		cached: t.Cached - old.Cached, first: t.First - old.First, generated: t.Generated - old.Generated,
		iterations: t.Iterations - old.Iterations,
	}
	for _, n := range []float64{d.computed, d.cached, d.first, d.generated, d.iterations} {
		const tokens = 100 // a second, for each of the requests that can be
		if !(n >= 0) || !Possible(n/tokens, t.At.Sub(old.At)) {
			return tokenGrowth{}, false
		}
	}
	return d, d.seconds > 0
}

// work settles the load of the members of a pool of engines that batch continuously, in mean requests. It is for a
// pool of which most count tokens; for others a request is the unit.
func (l *Law) work(p *pool) {
	k := &l.prompts
	k.fade(p.now, l.rate)
	counting := 0
	for i := range p.members {
		m := &p.members[i]
		if m.engine == nil && !m.server.Tokens.At.IsZero() {
			m.engine = &engineState{speed: 1}
		}
		if m.engine != nil {
			m.engine.learn(k, l.cost, m)
		}
		if m.countsTokens() {
			counting++
		}
	}
	p.byWork = 2*counting > len(p.members) && !math.IsNaN(k.mean())
	if p.byWork != l.byWork {
		l.byWork, l.shedder = p.byWork, shed.Controller{} // its rates are for each slot
	}
	for i := range p.members {
		if m := &p.members[i]; p.byWork && m.engine == nil {
			m.engine = &engineState{speed: 1}
		}
	}
	if !p.byWork {
		for i := range p.members {
			m := &p.members[i]
			if m.workload = m.load; m.engine != nil && !m.engine.outstanding.at.IsZero() {
				m.engine.outstanding.forget()
			}
		}
		return
	}
	l.engineSpeeds(p)
	p.requestWork, p.prefillRate = k.whole(), l.cost.rate()
	for i := range p.members {
		m := &p.members[i]
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
	e, rate := m.engine, p.prefillRate*m.speed
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

// costSpan is the seconds of one comparison of the time that an engine took with what it did: longer than most prompts
// are computed for, and short enough that workTau has some of them.
const costSpan = 8.0

// countsTokens reports whether the server counts tokens in a way that can be used.
func (m *memory) countsTokens() bool {
	at := m.server.Tokens.At
	return !at.IsZero() && !m.reversals.often(at)
}

// learn takes in what the engine did since the step before.
func (e *engineState) learn(k *prompts, c cost, m *member) {
	did, sent := &m.passed.server, &m.passed.proxies
	sizes, guessed := sent.computed(&e.sizes), sent.computed(&e.guessed)
	switch d := &did.tokens; {
	case m.server.Tokens.At.IsZero():
	case !m.countsTokens():
		*e = engineState{speed: 1}
	case d.seconds > 0:
		at := m.server.Tokens.At
		k.learn(d, at)
		e.learnSizes(k, d, sizes, at)
		e.compare(k, d, guessed)
		e.learnCost(did, valueOf(m.server.Running), c, at)
		e.outstanding.hold(d, did.queue.before > 0 && valueOf(m.queueGauge()) > 0)
	case did.recounted:
		e.outstanding.forget()
		e.sized, e.sizes, e.compared, e.guessed = tokenGrowth{}, batch{}, tokenGrowth{}, batch{}
		e.step, e.inStep = tokenGrowth{}, false
	}
}

// learnSizes holds the sizes of requests against their tokens. Of an engine with few requests most readings show none
// that began, or none that was computed, and where both are shown they are others. So both go on counting until there
// are some of each: otherwise sizes would be missed while a long prompt is computed, and the size of a long one held
// against the tokens of a short one.
func (e *engineState) learnSizes(k *prompts, d *tokenGrowth, sent batch, at time.Time) {
	const few = 2 // requests that are compared at once; few, as one with an image spoils the others
	e.sized.add(d)
	both := e.sized.first >= few && sent.sized >= few
	if both && e.sized.computed > 0 && sent.bytes >= sent.sized {
		k.perByte.add(&e.sized, sent.bytes/sent.sized)
		k.sizedAt = at
	}
	if both || e.sized.first >= fewestCompared {
		e.sized, e.sizes = tokenGrowth{}, batch{}
	}
}

// fewestCompared is requests that are enough for those which began and were not computed yet to be few among them.
const fewestCompared = 20

// compare holds what was guessed of requests against what they computed.
func (e *engineState) compare(k *prompts, d *tokenGrowth, sent batch) {
	if e.compared.add(d); e.compared.first >= fewestCompared {
		k.compare(sent, &e.compared)
		e.compared, e.guessed = tokenGrowth{}, batch{}
	}
}

// learnCost learns from how long the engine took. Prompts count when their last token is computed: what was computed
// before the first reading and counts after it, and the other way round at the last, has to be little of what is
// compared. A count that leaped is no reading: nothing is suddenly that much faster.
func (e *engineState) learnCost(did *served, running float64, known cost, at time.Time) {
	if e.addBusy(&did.tokens, did.running.before, running); e.busy.seconds < costSpan {
		return
	}
	const leap = 4 // ratio
	took := stint{e.busy.computed, e.busy.iterations, e.busy.generated, e.busy.seconds}
	switch {
	case e.efficiency.seconds() >= enough && known.of(&took)/e.speed > leap*e.busy.seconds:
		e.efficiency.fade(math.Exp(-e.busy.seconds / workTau.Seconds())) // until it may be true
	case e.busy.iterations > 0:
		e.efficiency.add(&took)
		e.rated = at
	}
	e.busy = tokenGrowth{}
}

// addBusy adds what the engine did while it never was idle as far as gauges show, from one reading that shows that an
// iteration ended to another: an engine counts what it does at the end of each. Where that takes seconds, a reading
// between would credit its tokens to the wrong ones, and the tokens of the first iteration after a pause to none.
// Each iteration generates a token for each sequence that runs, where the engine does not count iterations. An engine
// that shows nothing for longer than an iteration may take stood still, which is no cost of its work. So did one that
// could not be read for as long, unless it is never read more often.
func (e *engineState) addBusy(d *tokenGrowth, ran, running float64) {
	const longest = 2 // ratio
	unread := d.seconds > longestIteration.Seconds() && d.seconds > longest*e.gap
	e.gap = d.seconds
	if e.step.add(d); d.iterations == 0 {
		e.step.iterations += d.generated / ((ran + running) / 2)
	}
	worked := d.generated+d.first > 0
	if !(ran > 0 && running > 0) || unread || !worked && e.step.seconds > longestIteration.Seconds() {
		e.step, e.inStep = tokenGrowth{}, false
		return
	}
	if !worked {
		return
	}
	if e.inStep {
		e.busy.add(&e.step)
	}
	e.step, e.inStep = tokenGrowth{}, true
}

// valueOf is what was read; NaN where nothing was.
func valueOf(r Reading) float64 {
	if !r.Known() {
		return math.NaN()
	}
	return r.Value
}

// engineSpeeds settles what a token costs, and each engine's speed relative to the median one.
func (l *Law) engineSpeeds(p *pool) {
	var all efficiency
	for i := range p.members {
		if e := p.members[i].engine; e.efficiency.seconds() > 0 {
			all.plus(e.efficiency.typical(e.speed))
		}
	}
	if c, ok := all.cost(); ok {
		l.cost = c
	}
	type measured struct {
		engine       *engineState
		speed, noise float64
	}
	found, speeds := make([]measured, 0, len(p.members)), make([]float64, 0, len(p.members))
	for i := range p.members {
		e := p.members[i].engine
		if speed, noise, ok := e.efficiency.speed(l.cost); ok {
			found, speeds = append(found, measured{e, speed, noise}), append(speeds, speed)
		}
	}
	const sigmas = 3 // of what chance explains
	typical := median(speeds)
	for _, f := range found {
		f.engine.speed = shrunk(f.speed/typical, sameSpeed*sameSpeed+sigmas*sigmas*f.noise*f.noise)
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
	configured, learned := make([]float64, 0, len(p.members)), make([]float64, 0, len(p.members))
	for i := range p.members {
		m := &p.members[i]
		m.speed, m.engine.prefillSource = m.engine.speed, PrefillTypical
		if m.engine.efficiency.seconds() >= enough {
			m.engine.prefillSource = PrefillMeasured
		}
		if own, from := m.ownSlots(); from == CapacityConfigured {
			configured, learned = append(configured, own), append(learned, m.speed)
		}
	}
	if len(configured) == 0 || slices.Min(configured) == slices.Max(configured) {
		return
	}
	typical := median(configured) / median(learned)
	for i := range p.members {
		m := &p.members[i]
		if own, from := m.ownSlots(); from == CapacityConfigured {
			m.speed, m.engine.prefillSource = own/typical, PrefillConfigured
		}
	}
}
