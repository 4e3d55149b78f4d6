package sim

import (
	"testing"
	"time"

	"steelyard/picking"
	"steelyard/weighting"
)

var vessel = weighting.Vessel{Slots: 1, Speed: 1}

// TestTheCacheIsUsedAndNoEngineIsFlooded: taking the cached part off the work keeps the hits of a route and the balance
// of the work; following routes has the hits only, and the weights the balance only.
func TestTheCacheIsUsedAndNoEngineIsFlooded(t *testing.T) {
	t.Parallel()
	s := cachingEngines()
	results := map[string]Result{}
	for _, p := range PrefixPolicies() {
		switch p.Name {
		case "steelyard@5ms", "steelyard_prefix", "steelyard_prefix_shared", "prefix_learned", "prefix_override",
			"least_work", "least_work_prefix":
			r := run(t, s, p)
			t.Logf("%s: cached %.3f, time to first token %.2f s, p99 %.1f s, end to end %.1f s", p.Name, r.Cached,
				r.FirstToken.Mean, r.FirstToken.P99, r.EndToEnd.P50)
			results[p.Name] = r
		}
	}
	weights := results["steelyard@5ms"]
	for _, c := range []struct {
		name              string
		cached, ttft, e2e float64 // at least and at most, to those of the weights
	}{
		{"steelyard_prefix", 1.5, 1, 0.92},
		{"steelyard_prefix_shared", 2.2, 0.93, 0.85},
		{"least_work_prefix", 2.2, 0.82, 0.85},
	} {
		r := results[c.name]
		if got := r.Cached / weights.Cached; got < c.cached {
			t.Errorf("%s: %.2f times the cached share of the weights, want %v", c.name, got, c.cached)
		}
		if got := r.FirstToken.Mean / weights.FirstToken.Mean; got > c.ttft {
			t.Errorf("%s: %.2f of the time to first token of the weights, want %v", c.name, got, c.ttft)
		}
		if got := r.EndToEnd.P50 / weights.EndToEnd.P50; got > c.e2e {
			t.Errorf("%s: %.2f of the time to the end of the weights, want %v", c.name, got, c.e2e)
		}
	}
	learned, override := results["prefix_learned"], results["prefix_override"]
	if learned.FirstToken.P99 < 3*override.FirstToken.P99 {
		t.Errorf("p99 %.1f s by the longest match, %.1f s with the override: want the first to flood its engines",
			learned.FirstToken.P99, override.FirstToken.P99)
	}
	if best := results["least_work_prefix"].FirstToken.Mean; best > override.FirstToken.Mean {
		t.Errorf("time to first token %.2f s with the cache taken off, %.2f s with the override", best,
			override.FirstToken.Mean)
	}
}

func TestContentIsForEngines(t *testing.T) {
	for _, p := range []Policy{named(PrefixHash), named(LeastWorkPrefix),
		{Name: "picker", Steelyard: &Steelyard{Source: AccessLog, Picker: PickerShared}}} {
		if _, err := Run(t.Context(), photoroom(), p); err == nil {
			t.Errorf("%s runs on pods with slots", p.Name)
		}
	}
	if _, err := Run(t.Context(), cachingEngines(), Policy{Name: "x",
		Steelyard: &Steelyard{Source: AccessLog, Picker: "best"}}); err == nil {
		t.Error("an unknown picker runs")
	}
}

// TestPickersWithoutContentAreAsGoodAsTheWeights: on requests of seconds, as documented.
func TestPickersWithoutContentAreAsGoodAsTheWeights(t *testing.T) {
	t.Parallel()
	s := engines()
	s.Duration, s.WarmUp = 2*time.Minute, 20*time.Second
	weights := steelyards(defaultScrape)[3]
	o := *weights.Steelyard
	o.Picker = PickerWork
	by, picker := run(t, s, weights), run(t, s, Policy{Name: "picker", Steelyard: &o})
	if picker.FirstToken.P99 > 1.2*by.FirstToken.P99 {
		t.Errorf("p99 of the time to first token %.2f s, %.2f s by the weights", picker.FirstToken.P99,
			by.FirstToken.P99)
	}
}

// TestPickersThatSeeOnlyScrapesAreAsGoodAsTheWeights, or nearly so with engines, whose loads have what the weights let
// expect. The weights are those of a proxy that takes turns by them: like a picker, it does not see requests end.
func TestPickersThatSeeOnlyScrapesAreAsGoodAsTheWeights(t *testing.T) {
	t.Parallel()
	slots := small()
	slots.Pods, slots.Load, slots.Service.Mean = []PodGroup{{Count: 8, Slots: 4}}, 0.75, 400*time.Millisecond
	for _, c := range []struct {
		name string
		Scenario
		duration time.Duration
		mean     func(*Result) float64
		most     float64 // of the mean by the weights
	}{
		{"slots", slots, 3 * time.Minute, func(r *Result) float64 { return r.Wait.Mean }, 1.05},
		{"engines", engines(), 2 * time.Minute, func(r *Result) float64 { return r.FirstToken.Mean }, 1.15},
	} {
		for _, envoys := range sampled(2, []int{10, 1}) {
			for _, byScrapes := range steelyards(defaultScrape)[:2] {
				s, weights := c.Scenario, *byScrapes.Steelyard
				s.Envoys, s.Duration, s.WarmUp = envoys, c.duration, 20*time.Second
				weights.Capacity, weights.EnvoyPolicy = true, RoundRobin
				picker := weights
				picker.Picker = PickerWork
				results := runAll(t, s, []Policy{{Name: "weights", Steelyard: &weights},
					{Name: "picker", Steelyard: &picker}})
				by, picked := c.mean(&results[0]), c.mean(&results[1])
				t.Logf("%s, %d Envoys, %s: mean %.4f, by the weights %.4f", c.name, envoys, byScrapes.Name, picked, by)
				if picked > c.most*by {
					t.Errorf("%s, %d Envoys, %s: a mean of %.4f, by the weights %.4f", c.name, envoys, byScrapes.Name,
						picked, by)
				}
			}
		}
	}
}

// TestATraceThatBeginsAgainIsAboutSomethingElse: else everything would be cached from then on.
func TestATraceThatBeginsAgainIsAboutSomethingElse(t *testing.T) {
	s := cachingEngines()
	p := newPrompts(&s)
	first := p.take()
	for range len(s.Prompts.Trace.Requests) - 1 {
		p.take()
	}
	again := p.take()
	want(t, "tokens", again.prompt, first.prompt)
	want(t, "blocks", len(again.blocks), len(first.blocks))
	for i := range again.blocks {
		if again.blocks[i] == first.blocks[i] {
			t.Fatalf("block %d is the same again", i)
		}
	}
}

func TestUpdatesReachThePickersInOrder(t *testing.T) {
	s := cachingEngines()
	p := steelyards(defaultScrape)[3]
	o := *p.Steelyard
	o.Picker = PickerPrefix
	settled := s.withDefaults()
	w := newWorld(&settled, &Policy{Steelyard: &o})
	g := w.groups[0]
	k := g.control.pickers
	for i, address := range []string{podName(3), podName(5)} {
		endpoints := []picking.Endpoint{{Address: address, Vessel: vessel}}
		k.send(picking.Update{Endpoints: endpoints, Cost: picking.Requests()}, instant(i+1))
	}
	a := arrival{}
	want(t, "before the first", k.pick(&a), -1)
	for i, pod := range []int32{3, 5} {
		w.now = instant(i + 1)
		k.receive()
		want(t, "after an update", k.pick(&a), pod)
	}
	want(t, "the lane is empty", w.at[g.lanes+lanePickers], never)
}
