//go:build long

package sim

import (
	"testing"
	"time"

	"steelyard/sim/engine"
)

// Where outputs are long, the numbers running are evened out by and by: a new request does not wait for those that
// generate, but for the prompts that began just before.
func TestLongOutputsCrowdNoPrompts(t *testing.T) {
	t.Parallel()
	s := engines()
	long := requests(1.5, logNormal{300, 1}, logNormal{1200, 0.7}) // about 500 tokens of prompt and 1,500 of an answer
	s.Prompts, s.Duration, s.WarmUp = &Prompts{Trace: long}, 240*time.Second, 80*time.Second
	var least sums
	least.add(run(t, s, named(LeastRequest)))
	for _, p := range steelyards(defaultScrape) {
		if p.Name == "steelyard@5ms" || p.Name == "steelyard@50ms" {
			var law sums
			law.add(run(t, s, p))
			t.Log(p.Name)
			law.wantAtMost(t, least, 1.2, 1.08)
		}
	}
}

// Clients send some requests at the same moment, as for several answers to a question, and few a second in all. Outputs
// are long, so an engine that is some requests short is not empty: prompts that all go there wait for one another.
func TestFewRequestsThatArriveTogetherAreSpread(t *testing.T) {
	t.Parallel()
	all := requests(1, logNormal{300, 1}, logNormal{2500, 0.8}) // about 500 tokens of prompt and 3,400 of an answer
	for i := range all.Requests {
		all.Requests[i].At = all.Requests[i-i%7].At
	}
	p := engine.Defaults()
	p.Iteration, p.Sequence, p.PrefillRate, p.TokenBudget = 12*time.Millisecond, 300*time.Microsecond, 4000, 2048
	least, laws := sums{}, map[string]*sums{"steelyard@5ms": {}, "steelyard@50ms": {}, "steelyard@250ms": {}}
	for seed := range uint64(2) {
		s := lateEngines(seed + 1)
		s.Pods, s.Prompts, s.Load, s.Envoys = []PodGroup{{Count: 12, Engine: &p}}, &Prompts{Trace: all}, 0.5, 20
		s.Duration, s.WarmUp = 12*time.Minute, 2*time.Minute
		least.add(run(t, s, named(LeastRequest)))
		for _, policy := range steelyards(defaultScrape) {
			if law := laws[policy.Name]; law != nil {
				law.add(run(t, s, policy))
			}
		}
	}
	for name, law := range laws {
		t.Log(name)
		law.wantAtMost(t, least, 1.2, 1.17)
	}
}
