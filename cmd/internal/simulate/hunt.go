package simulate

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"steelyard/cmd/internal/table"
	"steelyard/controlplane/config"
	"steelyard/weighting/sim"
)

// hunt runs many seeds in a row, from that of the scenario, and shows for each
// policy of Steelyard's the seed under which it does worst against least_request.
func (o *Options) hunt(ctx context.Context, s sim.Scenario, policies []sim.Policy) error {
	policies = hunted(policies)
	if len(policies) < 2 {
		return Usage{errNothing}
	}
	seeds := make([]sim.Scenario, o.Hunt)
	for i := range seeds {
		seeds[i] = s
		seeds[i].Seed = s.Seed + uint64(i)
	}
	runs, err := o.runAll(ctx, seeds, policies)
	if err != nil {
		return err
	}
	if o.JSONFile != "-" {
		fmt.Fprint(o.Out, o.huntTable(runs))
	}
	if o.JSONFile == "" {
		return nil
	}
	var out struct {
		Seeds []document `json:"seeds"`
	}
	for _, r := range runs {
		out.Seeds = append(out.Seeds, r.document())
	}
	return writeJSON(o.JSONFile, o.Out, out)
}

// hunted are the policies of a hunt: least_request first, and those of Steelyard's.
func hunted(policies []sim.Policy) []sim.Policy {
	out := []sim.Policy{{Name: string(sim.LeastRequest), Balancer: sim.LeastRequest}}
	for _, p := range policies {
		if p.Steelyard != nil {
			out = append(out, p)
		}
	}
	return out
}

// A finding is what a hunt found of one policy.
type finding struct {
	median, worst float64 // ratios
	run           run     // the one with the worst
	index         int     // of the policy
}

// findWorst looks through the seeds for the worst of a policy.
func findWorst(runs []run, index int) finding {
	f := finding{worst: math.Inf(-1), index: index}
	ratios := make([]float64, len(runs))
	for k, r := range runs {
		ratios[k] = ratio(r.tail(index).P99, r.tail(0).P99)
		if ratios[k] > f.worst {
			f.worst, f.run = ratios[k], r
		}
	}
	slices.Sort(ratios)
	f.median = ratios[(len(ratios)-1)/2]
	return f
}

func (o *Options) huntTable(runs []run) string {
	s := runs[0].scenario
	last := runs[len(runs)-1].scenario.Seed
	var findings []finding
	for i := range runs[0].policies[1:] {
		findings = append(findings, findWorst(runs, i+1))
	}
	worst := slices.MaxFunc(findings, func(a, b finding) int { return cmp.Compare(a.worst, b.worst) })
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n%s of traffic, of which the first %s does not count; seeds %d to %d\n\n", s.Name,
		summary(s), config.DurationText(s.Duration), config.DurationText(s.WarmUp), s.Seed, last)
	t := table.New("policy", ">median", ">worst", ">seed", ">p99", ">"+string(sim.LeastRequest))
	for _, f := range findings {
		t.Add(f.run.policies[f.index].Name, fmt.Sprintf("%.2f", f.median), fmt.Sprintf("%.2f", f.worst),
			fmt.Sprint(f.run.scenario.Seed),
			fmt.Sprintf("%.2f", f.run.tail(f.index).P99), fmt.Sprintf("%.2f", f.run.tail(0).P99))
	}
	t.Write(&b, 0)
	what, unit := "wait", "mean service times"
	if hasEngines(s) {
		what, unit = "time to first token", "seconds"
	}
	fmt.Fprintf(&b, "\nmedian, worst: ratio of the p99 of the %s to that of %s on the same requests, where waits "+
		"under %g\n%s count as %g. p99, %s: under the worst seed.\n",
		what, sim.LeastRequest, imperceptible, unit, imperceptible, sim.LeastRequest)
	fmt.Fprintf(&b, "\nThe worst of all again, with a picture:\n  %s\n", o.replay(worst))
	return b.String()
}

// replay is the command line that shows a finding.
func (o *Options) replay(f finding) string {
	args := []string{"steelyard simulate"}
	add := func(given bool, flag string, value ...string) {
		if given {
			args = append(append(args, flag), value...)
		}
	}
	add(o.Scenario != "", "--scenario", shellQuoted(o.Scenario))
	add(o.Trace != "", "--trace", shellQuoted(o.Trace))
	add(o.Spread, "--spread")
	add(o.Load > 0, "--load", number(o.Load))
	add(true, "--seed", fmt.Sprint(f.run.scenario.Seed))
	add(o.Duration > 0, "--duration", config.DurationText(o.Duration))
	add(o.Config != "", "--config", shellQuoted(o.Config))
	add(o.EnvoyPolicy != "", "--envoy-policy", o.EnvoyPolicy)
	add(o.Cluster != "", "--cluster", shellQuoted(o.Cluster))
	add(o.Pods > 0, "--pods", fmt.Sprint(o.Pods))
	add(true, "--policy", shellQuoted(string(sim.LeastRequest)+","+f.run.policies[f.index].Name))
	add(true, "--plot")
	return strings.Join(args, " ")
}

// shellQuoted is an argument as a shell takes it.
func shellQuoted(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
			strings.ContainsRune("-_./:,@=+", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
