package sim

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"steelyard/sim/engine"
	"steelyard/sim/trace"
)

// The policies that see engines for every request, and Envoy's own, against a
// simulation of another hand: p99 of the time to first token, in seconds.
func TestEnginesAgreeWithAnotherSimulation(t *testing.T) {
	t.Parallel()
	for _, c := range sampled(2, []struct {
		name   string
		change func(*Scenario, *engine.Params)
		p99    map[Balancer]float64
	}{
		{"load 0.8", func(s *Scenario, _ *engine.Params) { s.Rate = 53.8 },
			map[Balancer]float64{LeastRequest: 1.65, FewestInFlight: 1.04, LeastWork: 0.74}},
		{"every third half as fast", func(s *Scenario, p *engine.Params) {
			s.Pods, s.Rate = []PodGroup{{Count: 8, Engine: p}, {Count: 4, Speed: 0.5, Engine: p}}, 53.8*10/12
		}, map[Balancer]float64{LeastRequest: 2.81, FewestInFlight: 1.51, LeastWork: 0.87}},
		{"KV cache of 30,000 tokens", func(_ *Scenario, p *engine.Params) { p.KVTokens = 30_000 },
			map[Balancer]float64{LeastRequest: 1.08, FewestInFlight: 0.59, LeastWork: 0.49}},
		{"16 sequences", func(_ *Scenario, p *engine.Params) { p.MaxSequences = 16 },
			map[Balancer]float64{LeastRequest: 0.91, FewestInFlight: 0.56, LeastWork: 0.47}},
	}) {
		s, p := engines(), engine.Defaults()
		s.Pods, s.WarmUp = []PodGroup{{Count: 12, Engine: &p}}, 0
		c.change(&s, &p)
		for balancer, p99 := range c.p99 {
			r := run(t, s, Policy{Balancer: balancer})
			t.Logf("%s: %s %.2f, %v by the other", c.name, balancer, r.FirstToken.P99, p99)
			wantNear(t, fmt.Sprintf("%s: p99 of %s", c.name, balancer), r.FirstToken.P99, p99, 0.27)
		}
	}
}

// Load 1 is what engines complete that never lack work, by the pace of each.
func TestLoadOfEngines(t *testing.T) {
	t.Parallel()
	s := engines()
	wantNear(t, "requests per second at load 0.8 of 12 engines", s.ArrivalRate(), 53.8, 0.03)
	mixed := engines()
	all := mixed.Pods[0].Engine
	mixed.Pods = []PodGroup{{Count: 8, Engine: all}, {Count: 4, Speed: 0.5, Engine: all}}
	wantNear(t, "with four of them half as fast", mixed.ArrivalRate(), s.ArrivalRate()*10/12, 1e-6)
	s.Events = []Event{{At: time.Minute, Kind: Join, Pods: []int{0, 1, 2}}}
	wantNear(t, "with three of them yet to join", s.ArrivalRate(), 53.8*9/12, 0.03)
	s = engines()
	s.Prompts = &Prompts{Trace: trace.Azure(), Cached: 0.6}
	if got := s.ArrivalRate(); got < 1.3*53.8 {
		t.Errorf("with 0.6 of each prompt cached %.1f, want more", got)
	}
	s = engines()
	s.Load = 1.3 // more than they can do
	r := run(t, s, Policy{Balancer: FewestInFlight})
	// a part of the trace is not its beginning
	wantNear(t, "goodput of engines that never lack work", r.Goodput, 1, 0.12)
	want(t, "they are busy all the time", r.Utilization > 0.999, true)
}

// The intervals of the trace keep their proportions at any rate, and the requests
// their order; after the last comes the first again.
func TestATraceIsPlayedAtAnotherPace(t *testing.T) {
	s := engines()
	s.Prompts = &Prompts{Trace: &trace.Trace{Requests: []trace.Request{{At: 0, Prompt: 100, Output: 1},
		{At: time.Second, Prompt: 200, Output: 2}, {At: 4 * time.Second, Prompt: 300, Output: 3}}}}
	s.Rate = 5 // the trace's own is one in two seconds
	s = s.withDefaults()
	a := newArrivals(&s, s.Rate)
	var at []time.Duration
	for i := range 7 {
		at = append(at, a.at.duration())
		if got := a.take().prompt; got.prompt != 100*(1+i%3) || got.output != 1+i%3 {
			t.Errorf("request %d is %+v", i, got)
		}
	}
	const ms = time.Millisecond
	want(t, "arrivals", fmt.Sprint(at),
		fmt.Sprint([]time.Duration{200 * ms, 300 * ms, 600 * ms, 800 * ms, 900 * ms, 1200 * ms, 1400 * ms}))
	a.surge(2, a.at)
	was := a.at
	a.take()
	want(t, "the next interval under twice the rate", (a.at - was).duration(), 150*ms)
}

// The sizes of prompts, and the cached part of them, are as configured.
func TestSizesOfPrompts(t *testing.T) {
	s := engines()
	for _, c := range []struct{ cached, chunked, spread float64 }{{0, 0, 0}, {0.3, 0.25, 0.5}, {0.9, 1, -1},
		{1, 0, 0}} {
		s.Prompts = &Prompts{Trace: trace.Azure(), Cached: c.cached, Chunked: c.chunked, BytesSpread: c.spread}
		s := s.withDefaults()
		p := newPrompts(&s)
		var tokens, cached, bytes, with float64
		n := len(s.Prompts.Trace.Requests)
		for range n {
			r := p.take()
			if r.cached%16 != 0 || r.cached >= r.prompt {
				t.Fatalf("%d of %d tokens cached", r.cached, r.prompt)
			}
			cached += float64(r.cached) / float64(r.prompt)
			if r.bytes > 0 {
				with++
				tokens += float64(r.prompt)
				bytes += r.bytes
			}
		}
		name := fmt.Sprintf("%+v: ", c)
		if got := cached / float64(n); got > c.cached || got < c.cached-0.05 {
			t.Errorf("%smean share cached %.3f", name, got)
		}
		if got := 1 - with/float64(n); math.Abs(got-c.chunked) > 0.01 {
			t.Errorf("%sshare without a length %.3f", name, got)
		}
		if with > 0 {
			wantNear(t, name+"bytes per token", bytes/tokens, 4.2, 0.02)
		}
	}
}

// What happens to pods happens to engines.
func TestEventsOfEngines(t *testing.T) {
	t.Parallel()
	played := func(events ...Event) Result {
		s := engines()
		s.Duration, s.WarmUp, s.Load, s.Events = 3*time.Minute, 30*time.Second, 0.5, events
		return run(t, s, Policy{Balancer: RoundRobin})
	}
	const from, lasts = time.Minute, 20 * time.Second
	usual := played()
	want(t, "requests", usual.Requests > 0, true)
	for _, kind := range []EventKind{Stall, Hang} {
		r := played(Event{At: from, Kind: kind, Pods: []int{3}, For: lasts})
		want(t, fmt.Sprintf("%s: some request waits for as long", kind),
			r.FirstToken.Max > lasts.Seconds() && r.FirstToken.Max < 2*lasts.Seconds(), true)
		want(t, fmt.Sprintf("%s: requests are those of before", kind), r.Requests, usual.Requests)
	}
	recovered := played(Event{At: from, Kind: Stall, Pods: []int{3}},
		Event{At: from + lasts, Kind: Recover, Pods: []int{3}})
	want(t, "a stall that is recovered from is one that ends",
		reflect.DeepEqual(recovered, played(Event{At: from, Kind: Stall, Pods: []int{3}, For: lasts})), true)
	slow := played(Event{At: from, Kind: Slow, Factor: 3, Pods: []int{3}})
	want(t, "slow: more requests in the pod", slow.Loads[3] > 1.5*usual.Loads[3] && slow.Loads[4] == usual.Loads[4],
		true)
	left := played(Event{At: from, Kind: Leave, Pods: []int{3}})
	want(t, "leave: fewer in the pod", left.Loads[3] < usual.Loads[3]/2, true)
	crowd := played(Event{At: from, Kind: FlashCrowd, Factor: 2, For: 30 * time.Second})
	wantNear(t, "flash crowd: more requests", float64(crowd.Requests), float64(usual.Requests)*1.2, 0.05)
}

// Whatever counts is played to its end, unless nothing ends.
func TestRequestsToEnginesAreFollowedToTheirEnd(t *testing.T) {
	t.Parallel()
	s := engines()
	s.Duration, s.WarmUp = time.Minute, 10*time.Second
	r := run(t, s, Policy{Balancer: FewestInFlight})
	if longest := r.EndToEnd.Max; longest < 20 || r.FirstToken.Max > 10 {
		t.Errorf("the longest takes %.1f s, the longest to its first token %.1f s", longest, r.FirstToken.Max)
	}
	s.Events = []Event{{At: 30 * time.Second, Kind: Stall}}
	r = run(t, s, Policy{Balancer: FewestInFlight})
	wantNear(t, "a request that never gets a token has waited to the end: first token", r.FirstToken.Max, 90, 0.01)
	want(t, "end to end", r.EndToEnd.Max >= r.FirstToken.Max, true)
}

func TestUnsoundScenariosOfEngines(t *testing.T) {
	small := engine.Defaults()
	small.KVTokens = 10_000
	bad := engine.Defaults()
	bad.TokenBudget = 0
	for _, c := range []struct {
		change func(*Scenario)
		policy Balancer
		says   string
	}{
		{func(s *Scenario) { s.Prompts = nil }, Random,
			"pods, group 0: engines need prompts, and pods with slots take none"},
		{func(s *Scenario) { s.Pods = append(s.Pods, PodGroup{Count: 1, Slots: 1}) }, Random,
			"pods, group 1: engines need prompts, and pods with slots take none"},
		{func(s *Scenario) { s.Pods[0].Engine = &bad }, Random, "pods, group 0: token budget 0"},
		{func(s *Scenario) { s.Pods[0].Engine = &small }, Random,
			"pods, group 0: the largest request, of 14050 and 39 tokens, does not fit into the KV cache: it has to " +
				"be of 14089 tokens at least"},
		{func(s *Scenario) { s.Prompts = &Prompts{} }, Random, "prompts: a trace with two moments is needed"},
		{func(*Scenario) {}, ShortestQueue, "shortest_queue needs slots, and the pods are engines"},
		{func(*Scenario) {}, FreeSlots, "free_slots needs slots, and the pods are engines"},
	} {
		s := engines()
		p := *s.Prompts
		s.Prompts, s.Pods = &p, append([]PodGroup(nil), s.Pods...)
		c.change(&s)
		if _, err := Run(context.Background(), s, Policy{Name: "p", Balancer: c.policy}); err == nil ||
			!strings.Contains(err.Error(), c.says) {
			t.Errorf("error = %v, want it to say %q", err, c.says)
		}
	}
	for _, b := range []Balancer{LeastWork, LeastWorkGuessed} {
		if _, err := Run(context.Background(), Scenario{}, Policy{Balancer: b}); err == nil ||
			!strings.Contains(err.Error(), "needs prompts, and the pods are no engines") {
			t.Errorf("%s of slots: error = %v", b, err)
		}
	}
}

// All policies get the same requests, and again the same result.
func TestSameSeedSameResultOfEngines(t *testing.T) {
	t.Parallel()
	s := engines()
	s.Duration, s.WarmUp, s.Prompts = 20*time.Second, 5*time.Second,
		&Prompts{Trace: trace.Azure(), Cached: 0.2, Chunked: 0.1}
	first := runAll(t, s, EnginePolicies())
	for i, p := range EnginePolicies() {
		want(t, p.Name+": the same again", reflect.DeepEqual(first[i], run(t, s, p)), true)
		want(t, p.Name+": requests", first[i].Requests, first[0].Requests)
		want(t, p.Name+": Steelyard pushes", first[i].Pushes > 0, p.Steelyard != nil)
	}
	s.Seed = 2
	want(t, "the same with another seed", reflect.DeepEqual(first[0], run(t, s, EnginePolicies()[0])), false)
}

// go test -run '^$' -bench Engines ./sim
func BenchmarkEngines(b *testing.B) {
	s := engines()
	for _, p := range EnginePolicies() {
		b.Run(p.Name, func(b *testing.B) {
			for b.Loop() {
				if _, err := Run(context.Background(), s, p); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)*s.Duration.Hours()/b.Elapsed().Seconds(), "simulated-hours/s")
		})
	}
}

// TestEntriesCarryTheSizesOfPrompts: as content-length does, and a chunked prompt has none.
func TestEntriesCarryTheSizesOfPrompts(t *testing.T) {
	t.Parallel()
	s := engines()
	prompts := *s.Prompts
	prompts.Chunked = 0.25
	s.Prompts, s.Duration, s.WarmUp = &prompts, 30*time.Second, 0
	p := steelyard("log", Steelyard{Source: AccessLog}).withDefaults()
	d := s.withDefaults()
	w := newWorld(&d, &p)
	if err := w.run(context.Background()); err != nil {
		t.Fatal(err)
	}
	var sized, issued, bytes, tokens float64
	for i := range w.groups[0].control.proxies {
		sums := &w.groups[0].control.proxies[i].sums
		sized, issued, bytes = sized+float64(sums.Sized), issued+float64(sums.Issued), bytes+sums.Bytes
	}
	for _, r := range prompts.Trace.Requests[:int(issued)] {
		tokens += float64(r.Prompt)
	}
	wantNear(t, "share of requests with a size", sized/issued, 0.75, 0.05)
	wantNear(t, "bytes of a prompt", bytes/sized, DefaultBytesPerToken*tokens/issued, 0.1)
}
