package sim

import (
	"fmt"
	"slices"
	"time"

	"steelyard/weighting/sim/engine"
	"steelyard/weighting/sim/trace"
)

// builtin are the scenarios that have a name, without their traces: these are large, and every command lists the names.
func builtin() []Scenario {
	photoroom := Scenario{
		Name: "photoroom", Seed: 1, Duration: time.Hour, WarmUp: 2 * time.Minute,
		Envoys: 10, Pods: []PodGroup{{Count: 20, Slots: 1}}, Load: 0.8,
		Service: Service{Kind: Exponential, Mean: time.Second},
	}
	with := func(name string, change func(*Scenario)) Scenario {
		s := photoroom
		s.Name, s.Duration, s.WarmUp = name, 20*time.Minute, time.Minute
		s.Pods = slices.Clone(photoroom.Pods)
		change(&s)
		return s
	}
	happens := func(name string, load float64, slots int, e ...Event) Scenario {
		return with(name, func(s *Scenario) { s.Load, s.Pods[0].Slots, s.Events = load, slots, e })
	}
	const at, lasting = 10 * time.Minute, 2 * time.Minute
	llm := func(name string, pods ...PodGroup) Scenario { // six minutes are the whole trace
		return Scenario{
			Name: name, Seed: 1, Duration: 6 * time.Minute, WarmUp: 30 * time.Second,
			Envoys: 6, Pods: pods, Load: 0.8, Prompts: &Prompts{},
		}
	}
	engines := engine.Defaults()
	caching := engines
	caching.CacheTokens = 2_000_000
	return []Scenario{
		photoroom,
		llm("llm", PodGroup{Count: 12, Engine: &engines}),
		llm("llm-mixed-speed", PodGroup{Count: 8, Engine: &engines}, PodGroup{Count: 4, Speed: 0.5, Engine: &engines}),
		{
			Name: "prefix", Seed: 1, Duration: 15 * time.Minute, WarmUp: 4 * time.Minute, Envoys: 6,
			Pods: []PodGroup{{Count: 12, Engine: &caching}}, Load: 0.8,
			Prompts: &Prompts{},
		},
		with("batching", func(s *Scenario) {
			s.Pods = []PodGroup{{Count: 20, Slots: 16, Sharing: true, SlowDown: 1}}
			s.Service.Mean = 5 * time.Second
		}),
		with("mixed-speed", func(s *Scenario) {
			s.Pods = []PodGroup{{Count: 15, Slots: 4}, {Count: 5, Slots: 4, Speed: 1.0 / 3}}
		}),
		with("one-big-envoy", func(s *Scenario) { s.EnvoyShares = oneBig(s.Envoys) }),
		happens("flash-crowd", 0.5, 1, Event{At: at, Kind: FlashCrowd, Factor: 2.4, For: 30 * time.Second}),
		happens("join", 0.8, 4, Event{At: at, Kind: Join, Pods: []int{18, 19}}),
		happens("leave", 0.7, 4, Event{At: at, Kind: Leave, Pods: []int{18, 19}}),
		happens("stall", 0.7, 4, Event{At: at, Kind: Hang, Pods: []int{3}, For: lasting}),
		happens("stale", 0.8, 4, Event{At: at, Kind: StaleMetrics, Pods: []int{0, 1, 2, 3, 4}, For: lasting}),
		with("overload", func(s *Scenario) { s.Load, s.Pods[0].Slots = 2, 4 }),
		with("large", func(s *Scenario) {
			s.Envoys, s.Pods, s.Load, s.Duration = 100, []PodGroup{{Count: 200, Slots: 1}}, 0.9, 5*time.Minute
		}),
		with("short", func(s *Scenario) {
			s.Service.Mean, s.Duration, s.WarmUp = 50*time.Millisecond, 3*time.Minute, 10*time.Second
		}),
		with("log-normal", func(s *Scenario) { s.Service.Kind, s.Service.Sigma, s.Load = LogNormal, 1, 0.9 }),
		with("two-class", func(s *Scenario) {
			s.Service = Service{Kind: TwoClass, Mean: time.Second, LongShare: 0.1, LongFactor: 10}
		}),
	}
}

// oneBig gives the first Envoy half of the traffic.
func oneBig(envoys int) []float64 {
	shares := []float64{float64(envoys - 1)}
	for range envoys - 1 {
		shares = append(shares, 1)
	}
	return shares
}

// Builtin returns a scenario by its name.
func Builtin(name string) (Scenario, bool) {
	all := builtin()
	i := slices.IndexFunc(all, func(s Scenario) bool { return s.Name == name })
	if i < 0 {
		return Scenario{}, false
	}
	s := all[i]
	switch {
	case s.Prompts == nil:
	case name == "prefix":
		s.Prompts.Trace = trace.Conversations()
	default:
		s.Prompts.Trace = trace.Azure()
	}
	return s, true
}

// Names lists the built-in scenarios.
func Names() []string {
	var names []string
	for _, s := range builtin() {
		names = append(names, s.Name)
	}
	return names
}

// Policies returns the rows of the standard table of pods with slots.
func Policies() []Policy {
	policies := append([]Policy{
		named(Random), named(RoundRobin), named(LeastRequest), {Name: "free_slots@1s", Balancer: FreeSlots},
	}, steelyards(time.Second)...)
	return append(policies, named(ShortestQueue))
}

// EnginePolicies returns the rows of the standard table of engines.
func EnginePolicies() []Policy {
	policies := append([]Policy{named(RoundRobin), named(LeastRequest)}, steelyards(defaultScrape)...)
	return append(policies, named(FewestInFlight), named(LeastWork), named(LeastWorkGuessed))
}

// PrefixPolicies returns the rows of the standard table of engines with a prefix cache.
func PrefixPolicies() []Policy {
	byLog := steelyards(defaultScrape)[3]
	picker := func(name string, k Picker) Policy {
		o := *byLog.Steelyard
		o.Picker = k
		return Policy{Name: name, Steelyard: &o}
	}
	policies := []Policy{
		named(RoundRobin), named(LeastRequest), byLog, picker("steelyard_picker", PickerWork),
		picker("steelyard_prefix", PickerPrefix), picker("steelyard_prefix_shared", PickerShared),
		named(PrefixHash), named(PrefixSingle), named(PrefixLearned), named(PrefixOverride),
	}
	return append(policies, named(LeastWork), named(LeastWorkPrefix))
}

func named(b Balancer) Policy { return Policy{Name: string(b), Balancer: b} }

const defaultScrape = 250 * time.Millisecond // as configured by default

// steelyards are Steelyard as configured by default, by its sources. reconciling is the
// interval of scrapes where they are not the only source.
func steelyards(reconciling time.Duration) []Policy {
	policy := func(name string, o Steelyard) Policy {
		o.Budget, o.Deadband, o.Heartbeat, o.FallbackAfter = defaultBudget, 0.01, 500*time.Millisecond, 3*time.Second
		return Policy{Name: name, Steelyard: &o}
	}
	return []Policy{
		policy("steelyard@1s", Steelyard{Source: Scrape, ScrapeInterval: time.Second}),
		policy("steelyard@250ms", Steelyard{Source: Scrape, ScrapeInterval: defaultScrape}),
		policy("steelyard@50ms", Steelyard{Source: LoadReports, ScrapeInterval: reconciling}),
		policy("steelyard@5ms", Steelyard{Source: AccessLog, ScrapeInterval: reconciling}),
	}
}

// Matrix is every combination of service time, slots, load, speeds and shares of
// the Envoys in which least request must not win. Each has about as many requests
// as its tail needs.
func Matrix() []Scenario {
	const envoys, pods = 10, 20
	var all []Scenario
	for _, mean := range []time.Duration{50 * time.Millisecond, 500 * time.Millisecond, 5 * time.Second} {
		for _, slots := range []int{1, 4, 16} {
			for _, load := range []float64{0.5, 0.8, 0.95} {
				for _, slow := range []int{0, pods / 4} {
					for _, big := range []bool{false, true} {
						all = append(all, cell(envoys, pods, mean, slots, load, slow, big))
					}
				}
			}
		}
	}
	return all
}

// cell is one scenario of the matrix.
func cell(envoys, pods int, mean time.Duration, slots int, load float64, slow int, big bool) Scenario {
	const counted, warm = 20_000, 2_000 // requests
	s := Scenario{
		Name: fmt.Sprintf("service=%v slots=%d load=%v", mean, slots, load), Seed: 1,
		Envoys: envoys, Pods: []PodGroup{{Count: pods - slow, Slots: slots}}, Load: load,
		Service: Service{Kind: Exponential, Mean: mean},
	}
	if slow > 0 {
		s.Name += " slow"
		s.Pods = append(s.Pods, PodGroup{Count: slow, Slots: slots, Speed: 1.0 / 3})
	}
	if big {
		s.Name += " big"
		s.EnvoyShares = oneBig(envoys)
	}
	rate := s.rate(s.capacity(s.pods()))
	span := func(requests float64) time.Duration {
		return max(40*mean, time.Duration(requests/rate*float64(time.Second))).Round(time.Second)
	}
	s.WarmUp = max(20*time.Second, span(warm))
	s.Duration = s.WarmUp + span(counted)
	return s
}

// EngineMatrix is the counterpart of Matrix for engines that batch continuously: every combination of load,
// speeds and shares of the Envoys, with the built-in trace.
func EngineMatrix() []Scenario {
	const envoys, count = 6, 12
	var all []Scenario
	for _, load := range []float64{0.5, 0.8, 0.95} {
		for _, slow := range []int{0, count / 3} {
			for _, big := range []bool{false, true} {
				s, _ := Builtin("llm")
				s.Name = fmt.Sprintf("engines load=%v", load)
				s.Load, s.Envoys = load, envoys
				s.Duration, s.WarmUp = 5*time.Minute, time.Minute
				group := s.Pods[0]
				group.Count = count - slow
				s.Pods = []PodGroup{group}
				if slow > 0 {
					s.Name += " slow"
					group.Count, group.Speed = slow, 0.5
					s.Pods = append(s.Pods, group)
				}
				if big {
					s.Name += " big"
					s.EnvoyShares = oneBig(envoys)
				}
				all = append(all, s)
			}
		}
	}
	return all
}
