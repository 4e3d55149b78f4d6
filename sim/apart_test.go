//go:build long

package sim

import (
	"fmt"
	"testing"
	"time"
)

// Replicas that know nothing of each other see half of the requests as they come, and the others by the scrapes. Where
// both sent what they see to the same idle pods, the pool would herd: then Envoys would do better on their own.
func TestReplicasApartAreNeverWorseThanLeastRequest(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		scenario func() Scenario
		scrapes  time.Duration
		p99      float64 // of least request, at most
	}{
		"one slot, requests of 1 s": {func() Scenario { return photoroomFor(6 * time.Minute) }, defaultScrape, 0.9},
		"one slot, requests of 1 s, scrapes each second": {func() Scenario { return photoroomFor(6 * time.Minute) },
			time.Second, 1},
		"one slot, requests of 50 ms": {shortFor(time.Minute), defaultScrape, 1},
		"16 slots that slow each other": {func() Scenario {
			s := photoroomFor(4 * time.Minute)
			s.Pods = []PodGroup{{Count: 20, Slots: 16, Sharing: true, SlowDown: 1}}
			s.Service.Mean = 5 * time.Second
			return s
		}, defaultScrape, 1},
		"engines": {engines, defaultScrape, 0.9},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := c.scenario()
			least := run(t, s, named(LeastRequest))
			together := run(t, s, replicated(1, c.scrapes))
			apart := run(t, s, replicated(2, c.scrapes))
			if s.Prompts != nil {
				t.Logf("p99 of the time to first token: %.2f together", together.FirstToken.P99)
				var law, without sums
				law.add(apart)
				without.add(least)
				law.wantAtMost(t, without, c.p99, 1)
				return
			}
			for what, part := range map[string]struct{ apart, together, least, most float64 }{
				"wait, p99":     {apart.Wait.P99, together.Wait.P99, least.Wait.P99, c.p99},
				"wait, mean":    {apart.Wait.Mean, together.Wait.Mean, least.Wait.Mean, 1},
				"latency, p50":  {apart.Latency.P50, together.Latency.P50, least.Latency.P50, 1.03},
				"latency, mean": {apart.Latency.Mean, together.Latency.Mean, least.Latency.Mean, 1},
			} {
				t.Logf("%s: %.3f under least request, %.3f together, %.3f apart", what, part.least, part.together,
					part.apart)
				if part.apart > part.most*part.least {
					t.Errorf("%s: %.3f apart, %.3f of least request, want %.2f at most", what, part.apart,
						part.apart/part.least, part.most)
				}
			}
		})
	}
}

// replicated is Steelyard as configured by default, with replicas that are apart.
func replicated(replicas int, scrapes time.Duration) Policy {
	o := Steelyard{Source: AccessLog, ScrapeInterval: scrapes, Apart: replicas, FallbackAfter: 3 * time.Second}
	o.Deadband, o.Heartbeat = 0.01, 500*time.Millisecond
	return Policy{Name: fmt.Sprint(replicas, " replicas"), Steelyard: &o}
}

func photoroomFor(d time.Duration) Scenario {
	s := photoroom()
	s.Duration = d
	return s
}

func shortFor(d time.Duration) func() Scenario {
	return func() Scenario {
		s := photoroomFor(d)
		s.Service.Mean, s.WarmUp = 50*time.Millisecond, 10*time.Second
		return s
	}
}
