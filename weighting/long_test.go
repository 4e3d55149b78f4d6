//go:build long

package weighting

import (
	"math/rand/v2"
	"steelyard/sim/engine"
	"testing"
	"time"
)

// A pool is asked a hundred thousand times an hour whether a report shows nothing new by chance. Where progress is that
// one of a few long requests ends, several reports in a row often show none.
func TestAnHourOfLongRequestsFlagsNoEndpoint(t *testing.T) {
	t.Parallel()
	for seed := range seeds(1, 2) {
		dep := newDeployment(12, seed)
		dep.good, dep.mean = 24, 15*time.Second
		dep.run(time.Hour, func(d Decision) {
			for _, e := range d.Endpoints {
				if e.Overloaded {
					t.Fatalf("seed %d: after %v %s is flagged: %s", seed, dep.now, e.Address, e.OverloadReason)
				}
			}
		})
	}
}

// An engine that holds requests back, or whose KV cache is full, is no worse than the others that do: what waits there
// is in its load, and a flag would only leave it idle.
func TestFlagsOfEnginesDoNoHarm(t *testing.T) {
	t.Parallel()
	long := func(rng *rand.Rand) *engine.Request { return tokens(rng, 6000, 100) }
	for _, c := range sampled(3, []struct {
		name    string
		engine  func(*engine.Params)
		request func(*rand.Rand) *engine.Request
	}{
		{"KV cache of 30,000 tokens", func(p *engine.Params) { p.KVTokens = 30_000 }, conversation},
		{"16 sequences", func(p *engine.Params) { p.MaxSequences = 16 }, conversation},
		{"long prompts", nil, long},
	}) {
		t.Run(c.name, func(t *testing.T) {
			flags := 0
			played := func(seed uint64, o Overload) answers {
				p := engines(seed, 12, c.engine)
				params := DefaultParams()
				params.Overload = o
				p.law.SetParams(params)
				p.request = c.request
				p.atLoad(0.95)
				was := make([]bool, len(p.engines))
				p.run(120, func(Decision) {
					for i, flagged := range p.flags {
						if flagged && !was[i] {
							flags++
						}
						was[i] = flagged
					}
				})
				return p.answers(20, 120)
			}
			o := DefaultParams().Overload
			without := o
			without.MaxShare = 0
			var with, others answers
			const seeds = 3 // which request is where depends on the rounding of a sum
			for seed := range uint64(seeds) {
				with.add(played(seed, o))
				others.add(played(seed, without))
			}
			t.Logf("%d flags in %d times two minutes", flags, seeds)
			if flags > 5*seeds {
				t.Errorf("%d flags in %d times two minutes", flags, seeds)
			}
			with.wantAtMost(t, others, answers{1.1, 1.05, 1.03, 1.03})
		})
	}
}
