package sim

import (
	"time"

	"steelyard/sim/engine"
	"steelyard/sim/trace"
)

// photoroom is twenty pods of one slot.
func photoroom() Scenario {
	return Scenario{
		Name: "photoroom", Seed: 1, Duration: time.Hour, WarmUp: time.Minute, Envoys: 10,
		Pods: []PodGroup{{Count: 20, Slots: 1}}, Load: 0.8, Service: Service{Kind: Exponential, Mean: time.Second},
	}
}

// engines is a scenario of engines that other tests change, from the trace of Azure.
func engines() Scenario {
	p := engine.Defaults()
	return Scenario{
		Name: "engines", Seed: 1, Duration: 6 * time.Minute, WarmUp: 30 * time.Second, Envoys: 6,
		Pods: []PodGroup{{Count: 12, Engine: &p}}, Load: 0.8, Prompts: &Prompts{Trace: trace.Azure()},
	}
}

// cachingEngines have prefix caches, and get conversations.
func cachingEngines() Scenario {
	s := engines()
	s.Pods[0].Engine.CacheTokens = 2_000_000
	s.Prompts.Trace, s.Duration, s.WarmUp = trace.Conversations(), 5*time.Minute, 2*time.Minute
	return s
}
