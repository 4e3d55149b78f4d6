package weighting

import (
	"math/rand/v2"
	"testing"

	"steelyard/sim/engine"
)

// An engine that batches continuously holds requests back at any number running. What one of four
// equal ones shows for a moment must not become its size.
func TestAMomentOfFewRunningWhileOthersWaitDoesNotLockAnEngineOut(t *testing.T) {
	t.Parallel()
	const shows, lasts = 60.0, 2.5 // seconds
	for _, c := range sampled(3, []struct {
		name   string
		counts bool
		scrape float64
		from   float64 // when it shows so
	}{
		{"from scrapes only", false, 0.25, shows},
		{"by scrapes each second", false, 1, shows},
		{"with exact counts", true, 1, shows},
		{"from the first scrape on", false, 0.25, 0},
		{"from the first scrape on, with exact counts", true, 0.25, 0},
	}) {
		t.Run(c.name, func(t *testing.T) {
			p := newPlant(1, 4, nil)
			p.rate, p.counts, p.scrape = 21, c.counts, c.scrape
			p.wantEqualAfterShowingFew(t, c.from, lasts)
		})
	}
}

// Engines hold requests back while the tokens of an iteration are spent or the KV cache is short,
// at numbers running that differ from one moment to the next. One that happens to have had few
// then is like the others.
func TestEnginesThatHoldRequestsBackStayAlike(t *testing.T) {
	t.Parallel()
	for _, c := range sampled(4, []struct {
		name    string
		rate    float64 // requests per second and engine
		prompts float64 // tokens, mean
		answers float64
		cache   int // tokens
		scrape  float64
		counts  bool
	}{
		{"chat", 5, 1000, 200, 400_000, 0.25, false},
		{"long prompts", 1.6, 4000, 200, 400_000, 0.25, false},
		{"long prompts, exact counts", 1.6, 4000, 200, 400_000, 1, true},
		{"a short cache", 3.5, 1000, 200, 60_000, 0.25, false},
	}) {
		t.Run(c.name, func(t *testing.T) {
			const engines, learns, looks = 12, 180, 240 // seconds
			p := newPlant(3, engines, func(p *engine.Params) { p.KVTokens = c.cache })
			p.rate, p.counts, p.scrape = engines*c.rate, c.counts, c.scrape
			p.request = func(rng *rand.Rand) *engine.Request { return tokens(rng, c.prompts, c.answers) }
			p.run(learns, nil)
			means, off := p.running(learns + looks)
			t.Logf("running: %.1f, %.1f %% from equal at most", means, 100*off)
			if off > 0.1 {
				t.Errorf("%.1f %% from equal, want 10 at most", 100*off)
			}
		})
	}
}

// An engine that runs no more than a number of sequences has that many slots.
func TestAnEngineAtItsMostSequencesHasThatManySlots(t *testing.T) {
	p := newPlant(1, 4, func(p *engine.Params) { p.MaxSequences = 16 })
	p.rate = 4 * 5
	p.run(120, nil)
	for _, e := range p.decide().Endpoints {
		want(t, "slots", e.Slots, 16)
		want(t, "source", e.SlotsSource, CapacityLearned)
	}
}
