package sim

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"steelyard/weighting/sim/trace"
)

// longOutputs are about 500 tokens of prompt and 1,500 of an answer, in crowds.
func longOutputs() *trace.Trace {
	random := rand.New(rand.NewPCG(5, 5))
	size := func(median, sigma float64) int32 {
		return max(1, int32(median*math.Exp(sigma*random.NormFloat64())))
	}
	t := new(trace.Trace)
	at := 0.0
	for range 20_000 {
		at += math.Pow(random.ExpFloat64(), 1.5)
		t.Requests = append(t.Requests, trace.Request{At: time.Duration(at * float64(time.Second)),
			Prompt: size(300, 1), Output: size(1200, 0.7)})
	}
	return t
}

// Where outputs are long, the numbers running are evened out by and by: a new request does not wait for those that
// generate, but for the prompts that began just before.
func TestLongOutputsCrowdNoPrompts(t *testing.T) {
	t.Parallel()
	s := engines()
	s.Prompts, s.Duration, s.WarmUp = &Prompts{Trace: longOutputs()}, 240*time.Second, 80*time.Second
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
