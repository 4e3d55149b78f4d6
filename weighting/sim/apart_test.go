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
		worst    float64 // p99, as a part of that of least request
	}{
		"one slot, requests of 1 s": {func() Scenario { return photoroomFor(6 * time.Minute) }, defaultScrape, 0.9},
		"one slot, requests of 1 s, scrapes each second": {func() Scenario { return photoroomFor(6 * time.Minute) },
			time.Second, 1},
		"one slot, requests of 50 ms": {shortFor(time.Minute), defaultScrape, 1},
		"16 slots that slow each other": {func() Scenario {
			s, _ := Builtin("batching")
			s.Duration = 4 * time.Minute
			return s
		}, defaultScrape, 1},
		"engines": {engines, defaultScrape, 0.9},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := c.scenario()
			p99 := func(p Policy) float64 {
				r := run(t, s, p)
				if s.Prompts != nil {
					return r.FirstToken.P99
				}
				return r.Wait.P99
			}
			least := p99(Policy{Name: "least_request", Balancer: LeastRequest})
			together := p99(replicated(1, c.scrapes))
			apart := p99(replicated(2, c.scrapes))
			t.Logf("p99: %.2f under least request, %.2f together, %.2f apart", least, together, apart)
			if apart > c.worst*least {
				t.Errorf("p99 is %.2f apart, %.2f of that of least request, want %.2f at most", apart, apart/least,
					c.worst)
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
	s, _ := Builtin("photoroom")
	s.Duration, s.WarmUp = d, time.Minute
	return s
}

func shortFor(d time.Duration) func() Scenario {
	return func() Scenario {
		s, _ := Builtin("short")
		s.Duration = d
		return s
	}
}
