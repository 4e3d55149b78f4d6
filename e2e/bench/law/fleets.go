package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"steelyard/sim"
	"steelyard/sim/engine"
	"steelyard/sim/trace"
	"steelyard/weighting"
)

// A fleet is a scenario, and the sources of reports by which it is placed.
type fleet struct {
	set, name string
	scenario  sim.Scenario
	sources   []string
	change    func(*sim.Steelyard) // of the policy; nil: none
}

// The sources of reports.
const (
	byLog      = "log"     // access log
	byReports  = "reports" // load reports
	byPages    = "scrapes" // scrapes only: each second of pods with slots, each 250 ms of engines
	byRedis    = "redis"
	byRedisToo = "redis+scrapes"
	byItself   = "least_request" // Envoy's own policy
)

// The sets.
const (
	engines = "engines"
	slots   = "slots"
	matrix  = "matrix"
)

// policy is how requests are placed by a source.
func (f *fleet) policy(source string) sim.Policy {
	if source == byItself {
		return sim.Policy{Name: source, Balancer: sim.LeastRequest}
	}
	every := time.Second
	if f.scenario.Prompts != nil {
		every = 250 * time.Millisecond
	}
	s := map[string]sim.Steelyard{
		byLog:      {Source: sim.AccessLog, ScrapeInterval: every},
		byReports:  {Source: sim.LoadReports, ScrapeInterval: every},
		byPages:    {Source: sim.Scrape, ScrapeInterval: every},
		byRedis:    {Source: sim.Redis},
		byRedisToo: {Source: sim.Redis, ScrapeInterval: every},
	}[source]
	s.Deadband, s.Heartbeat, s.FallbackAfter = 0.01, 500*time.Millisecond, 3*time.Second
	if f.change != nil {
		f.change(&s)
	}
	return sim.Policy{Name: source, Steelyard: &s}
}

// fleets are all that is measured.
func fleets() []fleet { return slices.Concat(engineFleets(), slotFleets(), matrixFleets()) }

var (
	log         = []string{byLog}
	logAndPages = []string{byLog, byPages}
)

// change alters twelve engines that get the requests of Azure's conversations at load 0.8.
type change func(*sim.Scenario, *engine.Params)

func ofEngines(name string, sources []string, length time.Duration, with ...change) fleet {
	p := engine.Defaults()
	s := sim.Scenario{Name: name, Duration: length, WarmUp: 30 * time.Second, Envoys: 6, Load: 0.8,
		Pods: []sim.PodGroup{{Count: 12, Engine: &p}}, Prompts: &sim.Prompts{Trace: trace.Azure()}}
	for _, c := range with {
		c(&s, &p)
	}
	return fleet{set: engines, name: name, scenario: s, sources: sources}
}

func load(l float64) change { return func(s *sim.Scenario, _ *engine.Params) { s.Load = l } }

func count(n int) change { return func(s *sim.Scenario, _ *engine.Params) { s.Pods[0].Count = n } }

func late(d time.Duration) change {
	return func(s *sim.Scenario, _ *engine.Params) { s.Signals.Delay = &d }
}

func events(e ...sim.Event) change { return func(s *sim.Scenario, _ *engine.Params) { s.Events = e } }

func noTokens(s *sim.Scenario, _ *engine.Params) { s.Pods[0].Metrics.NoTokens = true }

func prompts(t *trace.Trace) change {
	return func(s *sim.Scenario, _ *engine.Params) { s.Prompts.Trace = t }
}

// someOther replaces the last n engines by others.
func someOther(n int, other func(*sim.PodGroup)) change {
	return func(s *sim.Scenario, p *engine.Params) {
		q := *p
		group := sim.PodGroup{Count: n, Engine: &q}
		other(&group)
		s.Pods[0].Count -= n
		s.Pods = append(s.Pods, group)
	}
}

// together lets n requests of the trace arrive at a time.
func together(n int) change {
	all := *trace.Azure()
	all.Requests = slices.Clone(all.Requests)
	for i := range all.Requests {
		all.Requests[i].At = all.Requests[i-i%n].At
	}
	return prompts(&all)
}

// logNormal is a size in tokens: its median, and the standard deviation of its logarithm.
type logNormal struct{ median, sigma float64 }

// made is a trace of requests of such sizes, with intervals that are exponential to a power: above 1 they come in
// bursts.
func made(power float64, prompt, output logNormal) *trace.Trace {
	random := rand.New(rand.NewPCG(5, 5)) // the same for every seed of a scenario
	draw := func(d logNormal) int32 { return max(1, int32(d.median*math.Exp(d.sigma*random.NormFloat64()))) }
	t := new(trace.Trace)
	at := 0.0
	for range 20_000 {
		at += math.Pow(random.ExpFloat64(), power)
		t.Requests = append(t.Requests, trace.Request{
			At: time.Duration(at * float64(time.Second)), Prompt: draw(prompt), Output: draw(output)})
	}
	return t
}

// shed lets Steelyard refuse requests of a pool that is full.
func shed(s *sim.Steelyard) {
	s.Params = weighting.DefaultParams()
	s.Params.Shedding.Enabled = true
}

func (f fleet) changed(c func(*sim.Steelyard)) fleet {
	f.change = c
	return f
}

func engineFleets() []fleet {
	const whole, long, medium, short = 330 * time.Second, 4 * time.Minute, 3 * time.Minute, 2 * time.Minute
	at := func(kind sim.EventKind, factor float64) change {
		return events(sim.Event{At: 80 * time.Second, Kind: kind, Pods: []int{2}, Factor: factor,
			For: 40 * time.Second})
	}
	return []fleet{
		ofEngines("llm", []string{byLog, byReports, byPages}, whole),
		ofEngines("load 0.5", logAndPages, whole, load(0.5)),
		ofEngines("load 0.95", logAndPages, whole, load(0.95)),
		ofEngines("a third half as fast", logAndPages, whole, someOther(4, func(g *sim.PodGroup) { g.Speed = 0.5 })),
		ofEngines("40 engines", log, short, count(40)),
		ofEngines("4 engines", logAndPages, whole, count(4)),
		ofEngines("KV cache short", logAndPages, medium,
			func(_ *sim.Scenario, p *engine.Params) { p.KVTokens = 30_000 }),
		ofEngines("KV cache short at some", logAndPages, medium,
			someOther(6, func(g *sim.PodGroup) { g.Engine.KVTokens = 25_000 })),
		ofEngines("chunked bodies", log, medium, func(s *sim.Scenario, _ *engine.Params) { s.Prompts.Chunked = 1 }),
		ofEngines("sizes say little", log, medium, func(s *sim.Scenario, _ *engine.Params) {
			s.Prompts.BytesSpread, s.Prompts.Chunked = 0.6, 0.3
		}),
		ofEngines("prefix caches", logAndPages, medium,
			func(s *sim.Scenario, _ *engine.Params) { s.Prompts.Cached = 0.6 }),
		ofEngines("late by 60 ms", log, long, late(60*time.Millisecond)),
		ofEngines("late by 500 ms", log, long, late(500*time.Millisecond)),
		ofEngines("pages late by 2 s", logAndPages, long, func(s *sim.Scenario, _ *engine.Params) {
			s.Pods[0].Metrics.GaugeLag, s.Pods[0].Metrics.CounterLag = 2*time.Second, 2*time.Second
		}),
		ofEngines("one hangs", logAndPages, medium, at(sim.Hang, 0)),
		ofEngines("one stalls", logAndPages, medium, at(sim.Stall, 0)),
		ofEngines("one gets slow", logAndPages, medium,
			events(sim.Event{At: time.Minute, Kind: sim.Slow, Pods: []int{2}, Factor: 3})),
		ofEngines("two join", logAndPages, medium,
			events(sim.Event{At: time.Minute, Kind: sim.Join, Pods: []int{10, 11}})),
		ofEngines("no tokens", logAndPages, whole, noTokens),
		ofEngines("no tokens, load 0.3", log, long, noTokens, load(0.3)),
		ofEngines("no tokens, late by 60 ms", log, long, noTokens, late(60*time.Millisecond)),
		ofEngines("tokens at the end", log, long, func(s *sim.Scenario, _ *engine.Params) {
			s.Pods[0].Metrics.TokensAtEnd = true
		}),
		ofEngines("3,000 tokens a second", logAndPages, medium,
			func(_ *sim.Scenario, p *engine.Params) { p.PrefillRate = 3000 }),
		ofEngines("prompts first", logAndPages, 70*time.Second, noTokens,
			func(_ *sim.Scenario, p *engine.Params) { p.PromptsFirst, p.MaxSequences = true, 512 },
			prompts(made(1, logNormal{74, 0.8}, logNormal{25, 0.6}))),
		ofEngines("ten together", []string{byLog, byReports}, 90*time.Second, together(10)),
		ofEngines("forty together", log, 90*time.Second, together(40)),
		ofEngines("long outputs", log, long, prompts(made(1.5, logNormal{300, 1}, logNormal{1200, 0.7})),
			func(s *sim.Scenario, _ *engine.Params) { s.WarmUp = 80 * time.Second }),
		ofEngines("prompts of 8,000 tokens", logAndPages, long,
			prompts(made(1, logNormal{8000, 0.5}, logNormal{200, 0.7}))),
		ofEngines("shed at load 1.5", log, medium, load(1.5)).changed(shed),
	}
}

// ofSlots are twenty pods with slots.
func ofSlots(name string, sources []string, pods []sim.PodGroup, load float64, with ...func(*sim.Scenario)) fleet {
	s := sim.Scenario{Name: name, Duration: 8 * time.Minute, WarmUp: time.Minute, Envoys: 10, Pods: pods, Load: load,
		Service: sim.Service{Kind: sim.Exponential, Mean: time.Second}}
	for _, c := range with {
		c(&s)
	}
	return fleet{set: slots, name: name, scenario: s, sources: sources}
}

func lasting(d time.Duration) func(*sim.Scenario) { return func(s *sim.Scenario) { s.Duration = d } }

func slotFleets() []fleet {
	of := func(n int) []sim.PodGroup { return []sim.PodGroup{{Count: 20, Slots: n}} }
	someSlow := func(n int) []sim.PodGroup {
		return []sim.PodGroup{{Count: 15, Slots: n}, {Count: 5, Slots: n, Speed: 1.0 / 3}}
	}
	at := func(kind sim.EventKind, after time.Duration, factor float64, pods ...int) func(*sim.Scenario) {
		return func(s *sim.Scenario) {
			s.Events = []sim.Event{{At: after, Kind: kind, Pods: pods, Factor: factor, For: time.Minute}}
		}
	}
	half := 500 * time.Millisecond
	return []fleet{
		ofSlots("1 slot", []string{byLog, byReports, byPages}, of(1), 0.8, lasting(12*time.Minute)),
		ofSlots("1 slot, load 0.95", logAndPages, of(1), 0.95),
		ofSlots("4 slots, load 0.9", logAndPages, of(4), 0.9, lasting(4*time.Minute)),
		ofSlots("16 slots of 5 s", logAndPages, of(16), 0.8,
			func(s *sim.Scenario) { s.Service.Mean = 5 * time.Second }),
		ofSlots("1 slot, a quarter slow", logAndPages, someSlow(1), 0.8),
		ofSlots("4 slots, a quarter slow", logAndPages, someSlow(4), 0.8),
		ofSlots("1 slot of 50 ms", logAndPages, of(1), 0.8, lasting(time.Minute), func(s *sim.Scenario) {
			s.Service.Mean, s.WarmUp = 50*time.Millisecond, 10*time.Second
		}),
		ofSlots("two classes", logAndPages, of(1), 0.8, func(s *sim.Scenario) {
			s.Service = sim.Service{Kind: sim.TwoClass, Mean: time.Second, LongShare: 0.05, LongFactor: 20}
		}),
		ofSlots("one hangs", logAndPages, of(4), 0.7, at(sim.Hang, 2*time.Minute, 0, 3)),
		ofSlots("one stalls", logAndPages, of(1), 0.7, at(sim.Stall, 2*time.Minute, 0, 3)),
		ofSlots("one gets slow", logAndPages, of(4), 0.7, func(s *sim.Scenario) {
			s.Events = []sim.Event{{At: 2 * time.Minute, Kind: sim.Slow, Pods: []int{3}, Factor: 4}}
		}),
		ofSlots("two join", logAndPages, of(4), 0.8, at(sim.Join, 2*time.Minute, 0, 18, 19)),
		ofSlots("two pages stop", logAndPages, of(4), 0.8, at(sim.StaleMetrics, 2*time.Minute, 0, 3, 4)),
		ofSlots("a gauge is stuck at 40", logAndPages, of(4), 0.8, func(s *sim.Scenario) {
			s.Events = []sim.Event{{At: time.Minute, Kind: sim.StuckWaiting, Pods: []int{3}, Factor: 40}}
		}),
		ofSlots("late by 500 ms", log, of(1), 0.8, func(s *sim.Scenario) { s.Signals.Delay = &half }),
		ofSlots("1 % of the counts lost", []string{byRedis, byRedisToo}, of(1), 0.8).
			changed(func(s *sim.Steelyard) { s.Loss = 0.01 }),
		ofSlots("shed at load 1.5", []string{byLog, byPages, byRedis}, of(4), 1.5,
			lasting(5*time.Minute)).changed(shed),
		ofSlots("a crowd is shed", logAndPages, of(4), 0.6, lasting(5*time.Minute),
			at(sim.FlashCrowd, 2*time.Minute, 3)).changed(shed),
		ofSlots("Steelyard away for 20 s", log, of(4), 0.8, func(s *sim.Scenario) {
			s.Events = []sim.Event{{At: 2 * time.Minute, Kind: sim.ControlPlaneAway, For: 20 * time.Second}}
		}),
	}
}

// matrixFleets are the cells of package matrix whose Envoys have equal traffic.
func matrixFleets() []fleet {
	var all []fleet
	for _, mean := range []time.Duration{50 * time.Millisecond, 500 * time.Millisecond, 5 * time.Second} {
		for _, n := range []int{1, 4, 16} {
			for _, load := range []float64{0.5, 0.8, 0.95} {
				for _, slow := range []int{0, 5} {
					all = append(all, cell(mean, n, load, slow))
				}
			}
		}
	}
	return all
}

// cell is twenty pods, some of them three times slower, for 2,000 requests and then 12,000 that count.
func cell(mean time.Duration, n int, load float64, slow int) fleet {
	s := sim.Scenario{Name: fmt.Sprintf("%v, %d slots, load %v, %d slow", mean, n, load, slow), Envoys: 10, Load: load,
		Pods:    []sim.PodGroup{{Count: 20 - slow, Slots: n}},
		Service: sim.Service{Kind: sim.Exponential, Mean: mean}}
	if slow > 0 {
		s.Pods = append(s.Pods, sim.PodGroup{Count: slow, Slots: n, Speed: 1.0 / 3})
	}
	span := func(requests float64) time.Duration {
		return max(40*mean, time.Duration(requests/s.ArrivalRate()*float64(time.Second))).Round(time.Second)
	}
	s.WarmUp = max(20*time.Second, span(2000))
	s.Duration = s.WarmUp + span(12_000)
	return fleet{set: matrix, name: s.Name, scenario: s, sources: logAndPages}
}
