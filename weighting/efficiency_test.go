package weighting

import (
	"math/rand/v2"
	"testing"
	"time"

	"steelyard/sim/engine"
)

// What the law learns of engines is what they do: prompts of 100 to 60,000 tokens, of which more or fewer are cached,
// or most of most; computed in chunks or at once, in iterations with or without output, at any load.
func TestThePrefillRateAndTokensPerByteAreThoseOfTheEngines(t *testing.T) {
	t.Parallel()
	for _, c := range sampled(7, []struct {
		name    string
		load    float64
		request func(*rand.Rand) *engine.Request
		engine  func(*engine.Params)
		scrape  float64 // seconds
	}{
		{"chats", 0.8, conversation, nil, 0.25},
		{"chats, hardly any load", 0.15, conversation, nil, 0.25},
		{"chats, read each second", 0.8, conversation, nil, 1},
		{"chats, chunks of 1,024", 0.8, conversation, func(p *engine.Params) { p.TokenBudget = 1024 }, 0.25},
		{"chats, prompts first", 0.8, conversation, func(p *engine.Params) { p.PromptsFirst = true }, 0.25},
		{"chats, a short KV cache", 0.8, conversation, func(p *engine.Params) { p.KVTokens = 30_000 }, 0.25},
		{"chats, fast engines", 0.8, conversation, func(p *engine.Params) {
			p.Iteration, p.PrefillRate, p.TokenBudget = 6*time.Millisecond, 30_000, 2048
		}, 0.25},
		{"chats, slow engines with small chunks", 0.8, conversation, func(p *engine.Params) {
			p.Iteration, p.PrefillRate, p.TokenBudget = 40*time.Millisecond, 900, 2048
		}, 0.25},
		{"documents", 0.8, cached(tokensOf(12_000, 343), 0.5, 0.5), nil, 0.25},
		{"documents, half of the load", 0.5, cached(tokensOf(12_000, 343), 0.5, 0.5), nil, 0.25},
		{"documents, little load", 0.2, cached(tokensOf(12_000, 343), 0.5, 0.5), nil, 0.25},
		{"prompts of 14,000 tokens", 0.5, cached(tokensOf(14_000, 100), 0, 0), nil, 0.25},
		{"most of them cached", 0.5, cached(tokensOf(14_000, 300), 0.95, 0.93), nil, 0.25},
		{"most of them cached, long outputs", 0.5, cached(tokensOf(7200, 1000), 0.95, 0.83), nil, 0.25},
	}) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var rates, sizes []float64 // as parts of the true ones
			for seed := range uint64(3) {
				p := engines(seed, 6, c.engine)
				p.request, p.scrape = c.request, c.scrape
				bytes := 0.0
				p.size = func(rng *rand.Rand, r *engine.Request) float64 {
					size := text(rng, r)
					bytes += size
					return size
				}
				p.atLoad(c.load)
				p.run(60, nil)
				before, was, perByte := p.computed(), bytes, []float64(nil)
				for until := 60.0; until < 240; until += 5 {
					p.run(until, nil)
					w := p.decide().Work
					rates = append(rates, w.PrefillRate/p.engines[0].Params().PrefillRate)
					perByte = append(perByte, w.TokensPerByte)
				}
				sizes = append(sizes, median(perByte)/((p.computed()-before)/(bytes-was)))
			}
			wantNear(t, "prefill rate", median(rates), 1, 0.12)
			wantNear(t, "tokens per byte", median(sizes), 1, 0.08)
		})
	}
}

// computed is prompt tokens that the engines have computed.
func (p *plant) computed() (tokens float64) {
	for _, e := range p.engines {
		c := e.Counters()
		tokens += float64(c.PromptTokens - c.CachedTokens)
	}
	return tokens
}

// tokensOf is requests of such a mean prompt and output.
func tokensOf(prompt, output float64) func(*rand.Rand) *engine.Request {
	return func(rng *rand.Rand) *engine.Request {
		return &engine.Request{Prompt: 100 + min(int(rng.ExpFloat64()*prompt), 60_000),
			Output: 1 + int(rng.ExpFloat64()*output)}
	}
}

// cached is requests some of which have a part of their prompt in the cache.
func cached(request func(*rand.Rand) *engine.Request, some, part float64) func(*rand.Rand) *engine.Request {
	return func(rng *rand.Rand) *engine.Request {
		r := request(rng)
		if rng.Float64() < some {
			r.Cached = int(part * float64(r.Prompt))
		}
		return r
	}
}

// Where twice the iterations leave time for a third of the tokens, an iteration would take longer than prompts do, and
// a rate without bounds would let any prompt be computed at once.
func TestAnIterationTakesNoLongerThanAThousandTokens(t *testing.T) {
	var e efficiency
	for range 2 {
		e.add(&stint{30_000, 10, 10, 10})
		e.add(&stint{10_000, 20, 20, 10})
	}
	c, ok := e.typical(1).cost()
	want(t, "a cost is known", ok, true)
	wantNear(t, "tokens that take as long as an iteration", c.iteration/c.token, 1000, 1e-9)
	wantNear(t, "seconds of all that was done", c.of(&e.sum), e.seconds(), 1e-9)
}
