package engine

import (
	"math"
	"slices"
	"time"
)

// Gauges are what the engine shows of its load: the state after the last
// scheduling.
type Gauges struct {
	Running, Waiting int     // requests
	KVUsage          float64 // share of the KV cache in use, 0..1
}

// Counters are sums since the start.
type Counters struct {
	PromptTokens     int // of requests with a first token, cached ones included
	CachedTokens     int // of those, the ones from the prefix cache
	GenerationTokens int
	FirstTokens      int // requests with a first token
	Preemptions      int
	Iterations       int // that have ended
	IterationTokens  int // computed in them, prompts and tokens generated before
	Finished         int // requests with all tokens
	Aborted          int // requests given up

	TimeToFirstToken time.Duration // summed over FirstTokens
	InterToken       time.Duration // summed over all tokens but the first ones

	// Summed over the finished requests: from arrival to admission, from there to
	// the first token, from there to the last.
	Queue, Prefill, Decode time.Duration
	// And their tokens: of the prompts, of those the ones from the prefix cache, and generated.
	FinishedPrompt, FinishedCached, FinishedGeneration int
}

// An Engine is one model server.
type Engine struct {
	p     Params
	speed float64

	queue    []*Request // waiting, in order
	running  []*Request // in the order of admission
	done     []*Request // of the last step
	used     int        // tokens of KV cache
	cache    *cache     // nil: none
	gauges   Gauges
	counters Counters

	busy  bool          // in an iteration
	batch int           // tokens that it computes
	left  float64       // nanoseconds of it at speed 1, from since on
	since time.Duration // when left was true
}

// New returns an engine with nothing to do, at speed 1.
func New(p Params) *Engine { return &Engine{p: p, speed: 1, cache: newCache(&p)} }

// Params are the constants.
func (e *Engine) Params() Params { return e.p }

// Speed is the part of the full speed at which the engine works; 0 stands still.
func (e *Engine) Speed() float64 { return e.speed }

// Busy reports whether an iteration is under way.
func (e *Engine) Busy() bool { return e.busy }

// Gauges returns the gauges as of the last scheduling.
func (e *Engine) Gauges() Gauges { return e.gauges }

// Counters are the sums up to the last step.
func (e *Engine) Counters() Counters { return e.counters }

// Running are the requests admitted, in order. They must not be kept.
func (e *Engine) Running() []*Request { return e.running }

// InFlight is the number of requests in the engine.
func (e *Engine) InFlight() int { return len(e.queue) + len(e.running) }

// Queued is the number of requests that are not admitted.
func (e *Engine) Queued() int { return len(e.queue) }

// Backlog is the prompt tokens that are neither computed nor in the iteration under
// way.
func (e *Engine) Backlog() int {
	tokens := 0
	for _, r := range e.queue {
		tokens += r.Prompt + r.Generated - r.Cached
	}
	for _, r := range e.running {
		if !r.decodes() {
			tokens += r.left() - r.granted
		}
	}
	return tokens
}

// Work is the backlog in seconds of this engine, plus what its requests in flight
// will take of the iterations of others: half of a mean output each, at the time of
// one sequence. It is infinite where the engine stands still.
func (e *Engine) Work(meanOutput float64) float64 {
	if e.speed == 0 {
		return math.Inf(1)
	}
	decode := float64(e.InFlight()) * meanOutput / 2 * e.p.Sequence.Seconds()
	return (float64(e.Backlog())/e.p.PrefillRate + decode) / e.speed
}

// SetSpeed makes the engine work at a part of its full speed from now on, in the
// middle of an iteration too. 0 lets it stand still.
func (e *Engine) SetSpeed(now time.Duration, speed float64) {
	if e.busy {
		e.left = max(0, e.left-float64(now-e.since)*e.speed)
		e.since = now
	}
	e.speed = speed
}

// Arrive takes in a request that fits.
func (e *Engine) Arrive(now time.Duration, r *Request) {
	r.Arrived, r.place = now, waiting
	e.lookUp(r)
	e.queue = append(e.queue, r)
	if !e.busy {
		e.schedule(now)
	}
}

// lookUp finds what of a prompt is cached: whole blocks, and never its last token.
func (e *Engine) lookUp(r *Request) {
	if e.cache != nil {
		r.Cached = CacheBlock * e.cache.has(r.Blocks[:min(len(r.Blocks), (r.Prompt-1)/CacheBlock)])
	}
}

// Abort gives up a request, as when its client has gone. One that runs leaves at
// the end of the iteration; one that is done stays done.
func (e *Engine) Abort(r *Request) {
	switch r.place {
	case waiting:
		i := slices.Index(e.queue, r)
		e.queue = slices.Delete(e.queue, i, i+1)
		e.counters.Aborted++
		r.place = outside
	case running:
		r.place = leaving
	}
}

// Next is when the iteration under way ends; false where there is none, or where
// it never will.
func (e *Engine) Next() (at time.Duration, ok bool) {
	if !e.busy || e.speed == 0 {
		return 0, false
	}
	return e.since + time.Duration(math.Ceil(e.left/e.speed)), true
}

// Step ends the iteration under way and begins the next one, if there is anything
// to do. It returns the requests that have all their tokens, until the next step.
func (e *Engine) Step(now time.Duration) (done []*Request) {
	e.counters.Iterations++
	e.counters.IterationTokens += e.batch
	e.done = e.done[:0]
	stay := e.running[:0]
	for _, r := range e.running {
		e.compute(now, r)
		if r.place == running {
			stay = append(stay, r)
		}
	}
	clear(e.running[len(stay):])
	e.running = stay
	e.schedule(now)
	return e.done
}

// compute gives a running request what this iteration brought it.
func (e *Engine) compute(now time.Duration, r *Request) {
	if r.place == leaving {
		e.release(r, outside)
		e.counters.Aborted++
		return
	}
	r.computed += r.granted
	if r.granted == 0 || r.left() > 0 {
		return
	}
	r.Generated++
	e.counters.GenerationTokens++
	if r.Generated == 1 {
		r.First = now
		e.keep(r)
		e.counters.FirstTokens++
		e.counters.PromptTokens += r.Prompt
		e.counters.CachedTokens += r.Cached
		e.counters.TimeToFirstToken += now - r.Arrived
	} else {
		r.Gap = now - r.Last
		e.counters.InterToken += r.Gap
	}
	r.Last = now
	if r.Ended() {
		e.keep(r)
		e.release(r, outside)
		e.counters.Finished++
		e.counters.Queue += r.Scheduled - r.Arrived
		e.counters.Prefill += r.First - r.Scheduled
		e.counters.Decode += r.Last - r.First
		e.counters.FinishedPrompt += r.Prompt
		e.counters.FinishedCached += r.Cached
		e.counters.FinishedGeneration += r.Generated
		e.done = append(e.done, r)
	}
}

// keep puts what is computed of a request into the cache.
func (e *Engine) keep(r *Request) {
	if e.cache != nil {
		e.cache.use(r.Blocks[:min(len(r.Blocks), (r.Prompt+r.Generated)/CacheBlock)])
	}
}

// schedule plans the next iteration.
func (e *Engine) schedule(now time.Duration) {
	it := iteration{budget: e.p.TokenBudget}
	evicted := false
	for i := 0; i < len(e.running); i++ {
		r := e.running[i]
		for r.place == running && !e.hold(r) {
			e.evictYoungest()
			evicted = true
		}
		if r.granted = 0; r.place == running && !(e.p.PromptsFirst && r.decodes()) {
			it.add(r)
		}
	}
	for !evicted && len(e.queue) > 0 && it.budget > 0 && len(e.running) < e.p.MaxSequences {
		r := e.queue[0]
		if r.Generated == 0 {
			e.lookUp(r)
		}
		r.computed = r.Cached
		if !e.hold(r) {
			break
		}
		e.queue = e.queue[1:]
		if r.place = running; r.Preempted == 0 {
			r.Scheduled = now
		}
		e.running = append(e.running, r)
		it.add(r)
	}
	if e.p.PromptsFirst && it.prompt == 0 {
		for _, r := range e.running {
			it.add(r)
		}
	}
	e.gauges = Gauges{Running: len(e.running), Waiting: len(e.queue), KVUsage: float64(e.used) / float64(e.p.KVTokens)}
	if e.busy = len(e.running) > 0; e.busy {
		e.left, e.since, e.batch = it.nanoseconds(&e.p), now, it.prompt+it.sequences
	}
}

// An iteration is what is computed at once.
type iteration struct {
	budget    int // tokens left of it
	sequences int // that decode
	context   int // tokens of those
	prompt    int // tokens
}

// add grants a request what there is for it.
func (it *iteration) add(r *Request) {
	r.granted = min(r.left(), it.budget)
	it.budget -= r.granted
	switch {
	case !r.decodes():
		it.prompt += r.granted
	case r.granted > 0:
		it.sequences++
		it.context += r.Prompt + r.Generated
	}
}

func (it *iteration) nanoseconds(p *Params) float64 {
	return float64(p.Iteration) + float64(it.sequences)*float64(p.Sequence) +
		float64(it.context)*float64(p.Context) + float64(it.prompt)/p.PrefillRate*1e9
}

// hold takes the room in the KV cache that a request needs; false if there is not
// as much.
func (e *Engine) hold(r *Request) bool {
	more := r.Prompt + r.Generated - r.held
	if e.used+more > e.p.KVTokens {
		return false
	}
	e.used += more
	r.held += more
	return true
}

// release gives the room of a request back.
func (e *Engine) release(r *Request, to place) {
	e.used -= r.held
	r.held, r.granted, r.place = 0, 0, to
}

// evictYoungest puts the request that was admitted last in front of those that wait.
func (e *Engine) evictYoungest() {
	last := len(e.running) - 1
	r := e.running[last]
	e.running[last] = nil
	e.running = e.running[:last]
	e.release(r, waiting)
	r.Preempted++
	e.counters.Preemptions++
	e.queue = slices.Insert(e.queue, 0, r)
}
