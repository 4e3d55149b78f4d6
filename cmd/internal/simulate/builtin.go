package simulate

import (
	"embed"

	"steelyard/sim"
)

// scenarios are the built-in scenarios, each a file as --print shows it.
//
//go:embed scenarios
var scenarios embed.FS

// ScenarioNames lists the built-in scenarios.
func ScenarioNames() []string {
	return []string{
		"photoroom", "llm", "llm-mixed-speed", "prefix", "batching", "mixed-speed", "one-big-envoy", "flash-crowd",
		"join", "leave", "stall", "stale", "overload", "large", "short", "log-normal", "two-class",
	}
}

// builtin reads a built-in scenario.
func builtin(name string) (sim.Scenario, error) {
	text, err := scenarios.ReadFile("scenarios/" + name + ".yaml")
	if err != nil {
		return sim.Scenario{}, err
	}
	return parse(name+".yaml", text)
}
