package weighting

import (
	"math"
	"time"

	"steelyard/weighting/health"
)

// An engineState is what the law knows of an endpoint that batches continuously.
type engineState struct {
	sized       tokenGrowth // since tokens were held against bytes
	sizes       batch       // that began meanwhile
	compared    tokenGrowth // since guesses were compared
	guessed     batch       // that began meanwhile
	step        tokenGrowth // since an iteration ended, while it was never idle
	inStep      bool        // step began as one ended
	gap         float64     // seconds between the last two readings
	busy        tokenGrowth // since the cost was learned from
	efficiency  efficiency
	rated       time.Time // the newest reading in efficiency
	speed       float64   // relative to the typical one; 1 while unknown, 0 while no member of the pool counts tokens
	outstanding outstanding
}

// learn takes in what the engine and the proxies report since the step before. usable says that its counts of tokens
// are, and waits that requests wait now.
func (e *engineState) learn(k *prompts, c cost, seen *ServerReport, since *passed, usable, waits bool) {
	did, sent := &since.server, &since.proxies
	sizes, guessed := sent.computed(&e.sizes), sent.computed(&e.guessed)
	switch d, at := &did.tokens, seen.Tokens.At; {
	case at.IsZero():
	case !usable:
		*e = engineState{speed: 1}
	case d.seconds > 0:
		k.learn(d, at)
		e.learnSizes(k, d, sizes, at)
		e.compare(k, d, guessed)
		e.learnCost(did, valueOf(seen.Running), c, at)
		e.outstanding.hold(d, did.queue.before > 0 && waits)
	case did.recounted:
		e.outstanding = outstanding{}
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
	const leap = 4 // ratio; a bound: no engine is suddenly so much faster
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
	const longest = 2 // times the usual interval: a bound, of one report that is missing
	unread := d.seconds > health.LongestIteration.Seconds() && d.seconds > longest*e.gap
	e.gap = d.seconds
	if e.step.add(d); d.iterations == 0 {
		e.step.iterations += d.generated / ((ran + running) / 2)
	}
	worked := d.generated+d.first > 0
	if !(ran > 0 && running > 0) || unread || !worked && e.step.seconds > health.LongestIteration.Seconds() {
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
