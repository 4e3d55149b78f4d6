package sim

import (
	"slices"
	"testing"
	"time"

	"steelyard/sim/trace"
)

// Requests that arrive together are spread as they come: no decision is between them. Clients that start at the full
// second, agents that fan out and batch jobs are such.
func TestRequestsThatArriveTogetherAreSpread(t *testing.T) {
	t.Parallel()
	together := func(at func(i int, all []trace.Request) time.Duration) func(*Scenario) {
		return func(s *Scenario) {
			all := *trace.Azure()
			all.Requests = slices.Clone(all.Requests)
			for i := range all.Requests {
				all.Requests[i].At = at(i, all.Requests)
			}
			s.Prompts.Trace = &all
		}
	}
	by := func(n int) func(*Scenario) {
		return together(func(i int, all []trace.Request) time.Duration { return all[i-i%n].At })
	}
	halfLoad := func(s *Scenario) {
		by(10)(s)
		s.Load = 0.5
	}
	alone := func(s *Scenario) {
		by(40)(s)
		s.Envoys = 1
	}
	seconds := together(func(i int, all []trace.Request) time.Duration { return all[i].At.Truncate(10 * time.Second) })
	log := Steelyard{Source: AccessLog, ScrapeInterval: defaultScrape}
	reports := Steelyard{Source: LoadReports, ScrapeInterval: defaultScrape}
	const seeds = 4
	for _, c := range sampled(6, []struct {
		name      string
		change    func(*Scenario)
		by        Steelyard
		p99, mean float64 // of least request, at most
	}{
		{"ten", by(10), log, 0.9, 1},
		{"forty", by(40), log, 0.9, 1},
		{"forty, load reports", by(40), reports, 1, 1},
		{"ten, load 0.5", halfLoad, log, 1.05, 1.05},
		{"forty, one Envoy", alone, log, 0.9, 1},
		{"each second's at one moment", seconds, log, 1, 1},
	}) {
		t.Run(c.name, func(t *testing.T) {
			var law, without sums
			for seed := range seeds {
				s := lateEngines(uint64(seed + 1))
				s.Duration = 90 * time.Second
				c.change(&s)
				without.add(run(t, s, named(LeastRequest)))
				law.add(run(t, s, steelyard(c.name, c.by)))
			}
			law.wantAtMost(t, without, c.p99, c.mean)
		})
	}
}
