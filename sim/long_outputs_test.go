package sim

import (
	"testing"
	"time"
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
