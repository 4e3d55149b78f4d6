package modelsim

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"steelyard/sim/engine"
)

// A batcher is the executing half of a server that batches continuously: an engine
// in real time. Between the ends of its iterations, for which there is one timer,
// and the arrivals of requests it does nothing.
type batcher struct {
	began  time.Time // zero of the engine's clock
	cached float64   // mean share of a prompt in the prefix cache

	mu     sync.Mutex
	engine *engine.Engine
	speed  float64 // when it is not frozen
	timer  *time.Timer
	calls  map[int32]*call
	last   int32 // ID of the latest call
	draws  *rand.Rand
	totals totals
	tokens tokens
}

// A call is a request at the engine. Its fields are the batcher's to write, and to be
// read through it.
type call struct {
	engine.Request
	every int           // tokens from one piece of news to the next, after the first token; 0: only the end is news
	news  chan struct{} // holds one when there is news
}

// tokens are sums and distributions of an engine that slots do not have.
type tokens struct {
	engine.Counters
	prefillTime, decodeTime  histogram // of the requests executed
	firstToken, perToken     histogram
	interToken               histogram // of all tokens but the first ones
	prompt, output, computed histogram // tokens of the requests executed
	iteration                histogram // tokens of an iteration
}

func newBatcher(o Options) *batcher {
	b := &batcher{
		began: time.Now(), cached: o.Cached, engine: engine.New(*o.Batching), speed: o.Speed,
		calls: make(map[int32]*call), draws: rand.New(rand.NewPCG(o.Seed, 0)), totals: newTotals(VLLM),
		tokens: newTokens(),
	}
	b.engine.SetSpeed(0, b.speed)
	return b
}

func newTokens() tokens {
	of := func(family string) histogram { return newHistogram(bounds(vllmRecording, "vllm:"+family)) }
	return tokens{
		prefillTime: of("request_prefill_time_seconds"), decodeTime: of("request_decode_time_seconds"),
		firstToken: of("time_to_first_token_seconds"), perToken: of("request_time_per_output_token_seconds"),
		interToken: of("inter_token_latency_seconds"),
		prompt:     of("request_prompt_tokens"), output: of("request_generation_tokens"),
		computed: of("request_prefill_kv_computed_tokens"), iteration: of("iteration_tokens_total"),
	}
}

// arrive adds a request. Its news channel announces its tokens.
func (b *batcher) arrive(prompt, output, every int, blocks ...uint64) *call {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.catchUp()
	b.last++
	c := &call{every: every, news: make(chan struct{}, 1)}
	c.Request = engine.Request{ID: b.last, Prompt: prompt, Output: output, Blocks: blocks,
		Cached: engine.Cached(prompt, b.cached, b.draws.Float64())}
	b.calls[c.ID] = c
	b.engine.Arrive(now, &c.Request)
	b.arm(now)
	return c
}

// counters returns the engine's sums.
func (b *batcher) counters() engine.Counters {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.catchUp()
	return b.engine.Counters()
}

// generated returns how many tokens a call has.
func (b *batcher) generated(c *call) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return c.Generated
}

// leave removes a call. One that is done stays done.
func (b *batcher) leave(c *call) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.catchUp()
	if b.calls[c.ID] == c {
		delete(b.calls, c.ID)
		b.engine.Abort(&c.Request)
	}
}

// wake is called by the timer.
func (b *batcher) wake() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.arm(b.catchUp())
}

// catchUp ends the iterations that are due, each at its own time: a timer that fires
// late does not slow the engine. It returns the time of the engine's clock.
func (b *batcher) catchUp() time.Duration {
	now := time.Since(b.began)
	for next, ok := b.engine.Next(); ok && next <= now; next, ok = b.engine.Next() {
		before := b.engine.Counters()
		done := b.engine.Step(next)
		b.tokens.iteration.observeNumber(b.engine.Counters().IterationTokens - before.IterationTokens)
		for _, r := range b.engine.Running() {
			if r.Last == next && r.Generated > 0 {
				b.token(r)
			}
		}
		for _, r := range done {
			b.token(r)
			b.finish(r)
		}
	}
	return now
}

// arm sets the timer to the end of the iteration under way.
func (b *batcher) arm(now time.Duration) {
	if b.timer != nil {
		b.timer.Stop()
		b.timer = nil
	}
	if next, ok := b.engine.Next(); ok {
		b.timer = time.AfterFunc(next-now, b.wake)
	}
}

// token counts the newest token of a request, and wakes what waits for it.
func (b *batcher) token(r *engine.Request) {
	if r.Generated == 1 {
		b.tokens.firstToken.observe(r.First - r.Arrived)
	} else {
		b.tokens.interToken.observe(r.Gap)
	}
	c := b.calls[r.ID]
	if c == nil || !r.Ended() && (c.every == 0 || r.Generated > 1 && (r.Generated-1)%c.every != 0) {
		return
	}
	select {
	case c.news <- struct{}{}:
	default: // news that is not read yet
	}
}

// finish counts a request that has all its tokens.
func (b *batcher) finish(r *engine.Request) {
	delete(b.calls, r.ID)
	t, m := &b.totals, &b.tokens
	t.served++
	t.queueTime.observe(r.Scheduled - r.Arrived)
	t.busyTime.observe(r.Last - r.Scheduled)
	t.totalTime.observe(r.Last - r.Arrived)
	m.prefillTime.observe(r.First - r.Scheduled)
	m.decodeTime.observe(r.Last - r.First)
	if each, ok := r.TimePerOutputToken(); ok {
		m.perToken.observe(each)
	}
	m.prompt.observeNumber(r.Prompt)
	m.output.observeNumber(r.Output)
	m.computed.observeNumber(r.Prompt - r.Cached)
}

// pace changes the speed of the engine; 0 stops it.
func (b *batcher) pace(speed float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.catchUp()
	b.engine.SetSpeed(now, speed)
	b.arm(now)
}

func (b *batcher) freeze() { b.pace(0) }
func (b *batcher) thaw()   { b.pace(b.speed) }

// stop ends all activity.
func (b *batcher) stop() { b.freeze() }

func (b *batcher) inFlight() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.engine.InFlight()
}

func (b *batcher) work(meanOutput float64) float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.catchUp()
	return b.engine.Work(meanOutput)
}

// state returns the exported state of the engine: as of its last scheduling.
func (b *batcher) state() state {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.catchUp()
	g := b.engine.Gauges()
	t := b.totals.clone()
	t.aborted = uint64(b.engine.Counters().Aborted)
	m := b.tokens.clone()
	m.Counters = b.engine.Counters()
	return state{waiting: g.Waiting, running: g.Running, kvUsage: g.KVUsage, totals: t, tokens: m}
}

func (t *tokens) clone() *tokens {
	c := *t
	for _, h := range []*histogram{
		&c.prefillTime, &c.decodeTime, &c.firstToken, &c.perToken, &c.interToken, &c.prompt, &c.output, &c.computed,
		&c.iteration,
	} {
		h.counts = slices.Clone(h.counts)
	}
	return &c
}
