package weighting

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"steelyard/sim/engine"
)

// Of requests of which only some have a size, the others count as mean ones.
func TestRequestsWithoutASizeCountAsMeanOnes(t *testing.T) {
	k := prompts{computed: 10_000, first: 20}                      // a mean of 500 tokens
	k.perByte.add(&tokenGrowth{computed: 10_000, first: 20}, 2000) // a quarter of a token for each byte
	k.longest.note(800, epoch, longestSpan)
	for _, c := range []struct {
		name string
		of   batch
		want float64 // tokens
	}{
		{"all have one", batch{requests: 2, sized: 2, bytes: 4000}, 1000},
		{"some have one", batch{requests: 5, sized: 2, bytes: 4000}, 1000 + 3*500},
		{"none has one", batch{requests: 3}, 3 * 500},
		{"sizes beyond the longest", batch{requests: 2, sized: 1, bytes: 1e9}, 800 + 500},
	} {
		t.Run(c.name, func(t *testing.T) { wantNear(t, "tokens", k.sizes(c.of), c.want, 1e-9) })
	}
}

// What decodes keeps a new request waiting for little, however long its output is.
func TestARequestThatDecodesCountsForASixthOfAPromptAtMost(t *testing.T) {
	for _, c := range []struct {
		name                 string
		prompt, output, want float64 // tokens
	}{
		{"half of a short output, of 1.5 prompt tokens each", 1000, 200, 150},
		{"a long output: a sixth of the prompt and of its iteration", 300, 1500, 500.0 / 6},
		{"no prompt is computed: a sixth of an iteration", 0, 1500, 200.0 / 6},
	} {
		t.Run(c.name, func(t *testing.T) {
			wantNear(t, "tokens", (&Work{PromptTokens: c.prompt, OutputTokens: c.output}).Decode(), c.want, 1e-9)
			k := prompts{computed: 20 * c.prompt, first: 20, generated: 20 * c.output}
			wantNear(t, "tokens, as learned", k.decode(), c.want, 1e-9)
		})
	}
}

// Small engines compute few requests a second, so most readings show none that ended its prompt, and those that did are
// others than those that began. Where short prompts and long ones are mixed, sizes are learned nevertheless, and used.
func TestTokensForEachByteAreLearnedFromFewRequests(t *testing.T) {
	t.Parallel()
	const perByte, head = 0.265, 145.0 // tokens of a byte of the prompt, and bytes around it
	for _, load := range sampled(2, []float64{0.1, 0.3, 0.6, 0.9}) {
		p := engines(1, 2, func(e *engine.Params) {
			e.Iteration, e.Sequence, e.PrefillRate = 15*time.Millisecond, time.Millisecond, 1500
		})
		bytes, prompts := 0.0, 0.0
		p.request = shortAndLong
		p.size = func(_ *rand.Rand, r *engine.Request) float64 {
			size := head + float64(r.Prompt)/perByte
			bytes, prompts = bytes+size, prompts+float64(r.Prompt)
			return size
		}
		p.atLoad(load)
		bySize := 0.0
		var ratios []float64
		p.run(600, func(d Decision) {
			if p.now < 60 {
				return
			}
			if d.Work.BySize {
				bySize++
			}
			ratios = append(ratios, d.Work.TokensPerByte)
		})
		bySize /= float64(len(ratios))
		typical := median(ratios) / (prompts / bytes)
		t.Logf("load %.1f: %.2f of the tokens per byte; by size %.2f of the time", load, typical, bySize)
		wantNear(t, "tokens per byte, of the true ones", typical, 1, 0.08)
		wantNear(t, "part of the time in which sizes are used", bySize, 1, 0.05)
	}
}

// Caches that are cleared make a byte cost ten times as much from one moment to the next. With many requests that is
// known soon, and with none what is known stands.
func TestTokensForEachByteFollowCachesThatAreCleared(t *testing.T) {
	t.Parallel()
	const cleared, soon, tokensPerByte = 60, 20, 1 / 4.2 // seconds; of text
	p := engines(1, 8, nil)
	p.hit = func(_, prompt int) int {
		if p.now < cleared {
			return prompt * 9 / 10
		}
		return 0
	}
	p.atLoad(0.8)
	p.run(cleared, nil)
	wantNear(t, "tokens per byte while most are cached", p.decide().Work.TokensPerByte/tokensPerByte, 0.1, 0.02)
	p.run(cleared+soon, nil)
	for until := p.now; until < cleared+soon+40; until += 10 {
		p.run(until, nil)
		w := p.decide().Work
		wantNear(t, fmt.Sprintf("tokens per byte at %v s, of those of text", until),
			w.TokensPerByte/tokensPerByte, 1, 0.15)
		want(t, fmt.Sprintf("guesses by size at %v s", until), w.BySize, true)
	}
	p.rate = 0
	p.run(p.now+600, nil)
	w := p.decide().Work
	wantNear(t, "tokens per byte after ten quiet minutes", w.TokensPerByte/tokensPerByte, 1, 0.15)
	want(t, "guesses by size after ten quiet minutes", w.BySize, true)
}
