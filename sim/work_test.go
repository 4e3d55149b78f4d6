package sim

import (
	"testing"
	"time"

	"steelyard/sim/engine"
)

// Whatever Steelyard gets to see of engines, it is never worse than Envoy's least request, in simulated Envoys on the
// trace.
func TestByWorkNeverWorseThanLeastRequest(t *testing.T) {
	t.Parallel()
	sees := func(name string, source Source) Policy {
		return steelyard(name, Steelyard{Source: source, ScrapeInterval: defaultScrape})
	}
	for _, c := range sampled(3, []struct {
		name   string
		change func(*Scenario, *engine.Params)
		policy Policy
	}{
		{"sizes", func(*Scenario, *engine.Params) {}, sees("access log", AccessLog)},
		{"no sizes", func(*Scenario, *engine.Params) {}, sees("load reports", LoadReports)},
		{"counts in flight", func(*Scenario, *engine.Params) {}, sees("Redis", Redis)},
		{"prefix cache", func(s *Scenario, _ *engine.Params) { s.Prompts.Cached = 0.5 }, sees("access log", AccessLog)},
		{"KV cache of 30,000 tokens", func(_ *Scenario, p *engine.Params) { p.KVTokens = 30_000 },
			sees("Redis", Redis)},
		{"load 0.95", func(s *Scenario, _ *engine.Params) { s.Load = 0.95 }, sees("load reports", LoadReports)},
	}) {
		s, p := engines(), engine.Defaults()
		prompts := *s.Prompts
		s.Pods, s.Prompts, s.Duration, s.WarmUp = []PodGroup{{Count: 12, Engine: &p}}, &prompts, 2*time.Minute,
			20*time.Second
		c.change(&s, &p)
		least, law := run(t, s, named(LeastRequest)), run(t, s, c.policy)
		for what, part := range map[string]struct{ law, least, most float64 }{
			"time to the first token, p99":  {law.FirstToken.P99, least.FirstToken.P99, 1},
			"time to the first token, mean": {law.FirstToken.Mean, least.FirstToken.Mean, 1},
			"end to end, p50":               {law.EndToEnd.P50, least.EndToEnd.P50, 1.03},
			"time per output token, p99":    {law.PerToken.P99, least.PerToken.P99, 1.03},
		} {
			ratio := part.law / part.least
			t.Logf("%s, %s: %s %.2f of least request", c.name, c.policy.Name, what, ratio)
			if ratio > part.most {
				t.Errorf("%s, %s: %s %.3f of least request, want %.2f", c.name, c.policy.Name, what, ratio, part.most)
			}
		}
	}
}

// An engine that holds requests back, because its KV cache is short, keeps their work. That is worth the most where
// only some of the engines do: without it the mean time to the first token is 0.8 of least request, and its p99 0.85.
func TestTheWorkOfRequestsThatSomeEnginesHoldBackStays(t *testing.T) {
	t.Parallel()
	var law, least sums
	for seed := range seeds(1, 2) {
		s, p := engines(), engine.Defaults()
		small := p
		small.KVTokens = 25_000
		s.Seed, s.Pods = seed+1, []PodGroup{{Count: 6, Engine: &p}, {Count: 6, Engine: &small}}
		least.add(run(t, s, named(LeastRequest)))
		law.add(run(t, s, steelyard("access log", Steelyard{Source: AccessLog, ScrapeInterval: defaultScrape})))
	}
	for i, most := range []float64{0.45, 0.3} { // p99 and mean of the time to the first token
		t.Logf("%.2f of least request", law[i]/least[i])
		if law[i] > most*least[i] {
			t.Errorf("%.2f of least request, want %.2f at most", law[i]/least[i], most)
		}
	}
}

// A pool may be mixed: some engines count their tokens, and others, which are faster, do not. The slow ones get no more
// than under least request.
func TestFasterEnginesWithoutCountsOfTokensAreUsed(t *testing.T) {
	t.Parallel()
	for _, c := range sampled(2, []struct {
		name   string
		slow   int
		speed  float64
		source Source
	}{
		{"2.5 times as fast, access log", 7, 0.4, AccessLog},
		{"2.5 times as fast, load reports", 7, 0.4, LoadReports},
		{"twice as fast, access log", 9, 0.5, AccessLog},
	}) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, p := engines(), engine.Defaults()
			s.Load, s.Duration, s.WarmUp = 0.7, 4*time.Minute, time.Minute
			s.Pods = []PodGroup{
				{Count: c.slow, Engine: &p, Speed: c.speed},
				{Count: 12 - c.slow, Engine: &p, Metrics: Metrics{NoTokens: true}},
			}
			least := run(t, s, named(LeastRequest))
			law := run(t, s, steelyard("steelyard", Steelyard{Source: c.source, ScrapeInterval: defaultScrape}))
			var with, without sums
			with.add(law)
			without.add(least)
			with.wantAtMost(t, without, 1, 1)
			if ratio := law.EndToEnd.P99 / least.EndToEnd.P99; ratio > 1.05 {
				t.Errorf("end to end, p99: %.3f of least request, want 1.05 at most", ratio)
			}
		})
	}
}
