package sim

import (
	"slices"
	"testing"
	"time"

	"steelyard/sim/engine"
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
	for _, c := range []struct {
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
	} {
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
