package simulate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"steelyard/controlplane/config"
	"steelyard/sim"
)

// steelyardAt is how the names of policies with an interval begin.
const steelyardAt = "steelyard@"

// choose finds the policies of the names among the known ones. A steelyard@ with
// an interval that is not among them uses the access log and pushes at most that
// often. No names mean all.
func choose(known []sim.Policy, names []string) ([]sim.Policy, error) {
	if len(names) == 0 {
		return known, nil
	}
	var chosen []sim.Policy
	for _, name := range names {
		p, ok := find(known, name)
		if !ok {
			return nil, Usage{fmt.Errorf("--policy %s: there is no such policy: write one of %s, or %s with another "+
				"interval such as %s20ms",
				name, strings.Join(policyNames(known), ", "), steelyardAt, steelyardAt)}
		}
		if !slices.ContainsFunc(chosen, func(c sim.Policy) bool { return c.Name == p.Name }) {
			chosen = append(chosen, p)
		}
	}
	return chosen, nil
}

func find(known []sim.Policy, name string) (sim.Policy, bool) {
	text, isAt := strings.CutPrefix(name, steelyardAt)
	interval, err := time.ParseDuration(text)
	isInterval := isAt && err == nil
	if isInterval {
		name = steelyardAt + config.DurationText(interval) // 1000ms is 1s
	}
	if i := slices.IndexFunc(known, func(p sim.Policy) bool { return p.Name == name }); i >= 0 {
		return known[i], true
	}
	if !isInterval || interval < time.Millisecond || interval > time.Minute {
		return sim.Policy{}, false
	}
	for _, p := range known {
		if p.Steelyard != nil && p.Steelyard.Source == sim.AccessLog {
			other := *p.Steelyard
			other.MinInterval = interval
			return sim.Policy{Name: name, Steelyard: &other}, true
		}
	}
	return sim.Policy{}, false
}

// PolicyNames returns the names of the policies of all scenarios.
func PolicyNames() []string {
	names := policyNames(slices.Concat(sim.Policies(), sim.EnginePolicies(), sim.PrefixPolicies()))
	slices.Sort(names)
	return slices.Compact(names)
}

func policyNames(policies []sim.Policy) []string {
	names := make([]string, len(policies))
	for i, p := range policies {
		names[i] = p.Name
	}
	return names
}

// isBound reports whether this policy is a bound: it sees every pod for every request, which no
// policy of an Envoy does.
func isBound(p sim.Policy) bool {
	bounds := []sim.Balancer{sim.ShortestQueue, sim.FewestInFlight, sim.LeastWork, sim.LeastWorkGuessed,
		sim.LeastWorkPrefix}
	return p.Steelyard == nil && slices.Contains(bounds, p.Balancer)
}

// described returns what the name of a policy leaves out.
func described(p sim.Policy) string {
	y := p.Steelyard
	if y == nil {
		return balancers[p.Balancer]
	}
	var by []string
	if source := sources[y.Source]; source != "" {
		by = append(by, source)
	}
	if y.ScrapeInterval > 0 {
		by = append(by, "scrapes every "+config.DurationText(y.ScrapeInterval))
	}
	text := "Steelyard's weights by " + strings.Join(by, " and ")
	text += pickers[y.Picker]
	if y.MinInterval > 0 {
		text += ", pushed at most every " + config.DurationText(y.MinInterval)
	}
	return text
}

var balancers = map[sim.Balancer]string{
	sim.RoundRobin:    "Envoy's ROUND_ROBIN without weights",
	sim.LeastRequest:  "Envoy's LEAST_REQUEST without weights: two choices, by the Envoy's own requests",
	sim.Random:        "Envoy's RANDOM",
	sim.FreeSlots:     "weights by the slots that look free now: how not to do it",
	sim.ShortestQueue: "one view of all pods for each request: the bound",

	sim.FewestInFlight:   "for each request the engine with the fewest in flight",
	sim.LeastWork:        "for each request the engine with the least known work: a bound",
	sim.LeastWorkGuessed: "the same, with the prompts' lengths estimated from content-length",

	sim.PrefixHash:      "the engine by a hash of the first 2,048 tokens",
	sim.PrefixSingle:    "the engine that answered the longest known prompt that this one goes on from, else by a hash",
	sim.PrefixLearned:   "the same, by routes learned at the end of every message",
	sim.PrefixOverride:  "the same, but fewest in flight where that engine has more than twice the median in flight",
	sim.LeastWorkPrefix: "the engine with the least known work, the part of the prompt cached there taken off: a bound",
}

var pickers = map[sim.Picker]string{
	sim.PickerWork:   ", and pickers in the Envoys, by the size of each request",
	sim.PickerPrefix: ", and pickers by what of its prompt is cached, as each Envoy has learned by itself",
	sim.PickerShared: ", and pickers by what of its prompt is cached, as all Envoys have learned together",
}

var sources = map[sim.Source]string{
	sim.AccessLog:   "Envoys' upstream access log",
	sim.LoadReports: "Envoys' load reports",
	sim.Redis:       "counts in Redis",
}
