package sim

import "time"

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
