package sim

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"steelyard/sim/engine"
	"steelyard/sim/trace"
)

// crowds are prompts that come five times as often for eight seconds of each minute.
func crowds() *trace.Trace {
	random := rand.New(rand.NewPCG(1, 1))
	size := func(median, sigma float64) int32 {
		return int32(min(30_000, max(1, median*math.Exp(sigma*random.NormFloat64()))))
	}
	t := new(trace.Trace)
	at := 0.0
	for range 12_000 {
		rate := 10.0
		if math.Mod(at, 60) < 8 {
			rate = 100
		}
		at += random.ExpFloat64() / rate
		t.Requests = append(t.Requests, trace.Request{At: time.Duration(at * float64(time.Second)),
			Prompt: size(800, 1), Output: size(150, 0.8)})
	}
	return t
}

// Engines on small GPUs compute the prompts of a crowd in iterations of many seconds, and show nothing meanwhile. They
// do not stall, and if they are taken for that, those that are left get all that comes.
func TestEnginesThatComputeForSecondsDoNotStall(t *testing.T) {
	t.Parallel()
	prompts := crowds()
	for _, c := range sampled(2, []struct {
		name   string
		change func(*engine.Params)
	}{
		{"iterations of 2.7 s", func(*engine.Params) {}},
		{"iterations of 5.5 s, prompts first", func(p *engine.Params) { p.TokenBudget, p.PromptsFirst = 16_384, true }},
	}) {
		t.Run(c.name, func(t *testing.T) {
			p := engine.Defaults()
			p.Iteration, p.Sequence, p.PrefillRate = 40*time.Millisecond, 400*time.Microsecond, 3000
			c.change(&p)
			var least sums
			laws := map[Source]*sums{AccessLog: {}, LoadReports: {}}
			for seed := range seeds(1, 2) {
				s := lateEngines(seed)
				s.Pods, s.Prompts = []PodGroup{{Count: 12, Engine: &p}}, &Prompts{Trace: prompts}
				s.Duration = 4 * time.Minute
				least.add(run(t, s, named(LeastRequest)))
				for _, policy := range steelyards(defaultScrape) {
					if law := laws[policy.Steelyard.Source]; law != nil {
						law.add(run(t, s, policy))
					}
				}
			}
			for source, law := range laws {
				t.Log(source)
				law.wantAtMost(t, least, 1, 1)
			}
		})
	}
}
