package simulate

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"steelyard/controlplane/config"
	"steelyard/internal/files"
	"steelyard/sim"
	"steelyard/sim/trace"
)

// Options select what to simulate and what to show.
type Options struct {
	Scenario string        // name of a built-in one, or the path of a file; empty with Trace: llm
	Trace    string        // path of a trace of prompts, in place of the built-in one
	Spread   bool          // of requests whose times are rounded to seconds
	Load     float64       // instead of the scenario's; 0: its own
	Seed     uint64        // instead of the scenario's, with Seeded
	Seeded   bool          // Seed is given
	Duration time.Duration // instead of the scenario's; 0: its own
	Policies []string      // rows, by name; empty: all

	List, Print bool   // the built-in scenarios; one of them, as a file
	JSONFile    string // where the rows also go; "-" for Out instead of the table

	Config, Cluster string // the user's own deployment
	Pods            int    // endpoints of it, where only DNS has them
	EnvoyPolicy     string // under the weights; empty: least_request

	Out, Err io.Writer // results; progress, if it is a terminal
}

// The bounds of the simulated time, as in a file.
const (
	shortest = time.Second
	longest  = 24 * time.Hour
)

// The bounds of a load, as in a file.
const (
	leastLoad = 0.01
	mostLoad  = 10.0
)

// largestSeed is the largest that a file can have.
const largestSeed uint64 = math.MaxInt64

// check refuses options that make no sense, by themselves or together.
func (o *Options) check() error {
	balancers := []string{string(sim.RoundRobin), string(sim.LeastRequest), string(sim.Random)}
	if err := o.checkIgnored(); err != nil || o.List {
		return err
	}
	switch {
	case o.Scenario == "" && o.Trace == "":
		return usage("--scenario is missing: write one of %s, or the path of a file, or a --trace",
			strings.Join(ScenarioNames(), ", "))
	case o.Load != 0 && !(o.Load >= leastLoad && o.Load <= mostLoad):
		return usage("--load %s: write %s to %s", number(o.Load), number(leastLoad), number(mostLoad))
	case o.Duration != 0 && o.Duration < shortest:
		return usage("--duration %s is too short: write at least %s", o.Duration, shortest)
	case o.Duration > longest:
		return usage("--duration %s is too long: write at most %s", config.DurationText(o.Duration),
			config.DurationText(longest))
	case o.Config == "" && o.Cluster != "":
		return usage("--cluster needs --config with the file that the cluster is in")
	case o.Config == "" && o.Pods != 0:
		return usage("--pods needs --config: the pods of a scenario are in its file (--print shows it)")
	case o.Config == "" && o.EnvoyPolicy != "":
		return usage("--envoy-policy needs --config: it sets the policy of the configuration's row, and the rows of " +
			"a scenario have least_request")
	case o.Pods < 0 || o.Pods > mostPods:
		return usage("--pods %d: write 1 to %d", o.Pods, mostPods)
	case o.EnvoyPolicy != "" && !slices.Contains(balancers, o.EnvoyPolicy):
		return usage("--envoy-policy %s: write one of %s", o.EnvoyPolicy, strings.Join(balancers, ", "))
	}
	return o.checkJSONFile()
}

// checkIgnored refuses flags that another one leaves without effect.
func (o *Options) checkIgnored() error {
	type flag struct {
		name  string
		given bool
	}
	traced := []flag{{"--trace", o.Trace != ""}, {"--spread", o.Spread}}
	running := []flag{
		{"--policy", len(o.Policies) > 0}, {"--json", o.JSONFile != ""}, {"--envoy-policy", o.EnvoyPolicy != ""},
	}
	choosing := []flag{
		{"--scenario", o.Scenario != ""}, {"--print", o.Print}, {"--seed", o.Seeded}, {"--duration", o.Duration != 0},
		{"--config", o.Config != ""}, {"--cluster", o.Cluster != ""}, {"--pods", o.Pods != 0}, {"--load", o.Load != 0},
	}
	for _, by := range []struct {
		flag
		does    string
		ignores []flag
	}{
		{flag{"--list", o.List}, "lists what there is and exits", slices.Concat(choosing, traced, running)},
		{flag{"--print", o.Print}, "shows the scenario, which has no trace, and exits",
			slices.Concat(traced, running)},
	} {
		for _, f := range by.ignores {
			if by.given && f.given {
				return usage("%s %s: remove it, or %s", by.name, by.does, f.name)
			}
		}
	}
	return nil
}

// checkJSONFile finds out before a long run that the rows cannot be written.
func (o *Options) checkJSONFile() error {
	if o.JSONFile == "" || o.JSONFile == "-" {
		return nil
	}
	if at, err := os.Stat(o.JSONFile); err == nil && at.IsDir() {
		return usage("--json %s is a directory: write the name of a file", o.JSONFile)
	}
	if _, err := os.Stat(filepath.Dir(o.JSONFile)); err != nil {
		return usage("--json %s: there is no such directory: make it, or write another", o.JSONFile)
	}
	return nil
}

// scenario finds the scenario and changes what the options change.
func (o *Options) scenario(ctx context.Context) (sim.Scenario, error) {
	s, err := o.named(ctx)
	if err != nil {
		return s, err
	}
	if o.Seeded {
		s.Seed = o.Seed
	}
	if o.Load > 0 {
		s.Load, s.Rate = o.Load, 0
	}
	if err := o.prompts(ctx, &s); err != nil {
		return s, err
	}
	if s.Seed > largestSeed {
		return s, usage("seed %d is too large: write --seed with 0 to %d, so that a file can hold it", s.Seed,
			largestSeed)
	}
	if o.Duration > 0 {
		s.Duration = o.Duration
		s.WarmUp = min(s.WarmUp, s.Duration/longestWarmUp)
	}
	for _, e := range s.Events {
		if e.At >= s.Duration {
			return s, usage("--duration %s ends before %s happens, at %s: write a longer one",
				config.DurationText(s.Duration), e.Kind,
				config.DurationText(e.At))
		}
	}
	return s, nil
}

// prompts puts the trace of the options into the scenario, and checks that the engines
// can execute it.
func (o *Options) prompts(ctx context.Context, s *sim.Scenario) error {
	if s.Prompts == nil {
		if o.Trace != "" || o.Spread {
			return usage("--trace and --spread need engines, and the pods of %s have slots: write --scenario llm, or "+
				"another with engines", s.Name)
		}
		return nil
	}
	p := *s.Prompts
	if o.Trace != "" {
		var err error
		if p.Trace, err = readTrace(ctx, o.Trace); err != nil {
			return err
		}
	}
	if p.Spread = o.Spread; o.Spread && p.Trace.Rounded() == 0 {
		return usage("--spread: the times of %s are not rounded to seconds: remove it", p.Trace.Name)
	}
	s.Prompts = &p
	if err := s.Check(); err != nil {
		return fmt.Errorf("scenario %s with the requests of %s: %w", s.Name, p.Trace.Name, err)
	}
	return nil
}

func readTrace(ctx context.Context, path string) (*trace.Trace, error) {
	f, err := files.Open(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("reading the trace: %w", err)
	}
	defer func() { _ = f.Close() }() // only read
	return trace.Read(path, f)
}

// checkRequests bounds the requests of a run, from both sides: --duration and the user's own
// deployment change what was checked in the file.
func checkRequests(s sim.Scenario) error {
	switch n := requests(s); {
	case n == 0:
		return usage("no endpoint is there at the start, so a load of it is nothing: write a scenario with rate: " +
			"instead of load:, or one where fewer join later")
	case n > mostRequests:
		return usage("%.0f million requests would arrive in %s: write a shorter --duration, for at most %d million",
			n/1e6, config.DurationText(s.Duration), int(mostRequests/1e6))
	}
	return nil
}

func (o *Options) named(ctx context.Context) (sim.Scenario, error) {
	if o.Scenario == "" {
		return builtin("llm")
	}
	if strings.ContainsAny(o.Scenario, `/\.`) {
		return readFile(ctx, o.Scenario)
	}
	if !slices.Contains(ScenarioNames(), o.Scenario) {
		return sim.Scenario{}, usage("--scenario %s: there is no such scenario: write one of %s, or the path of a "+
			"file (./%s)", o.Scenario, strings.Join(ScenarioNames(), ", "), o.Scenario)
	}
	return builtin(o.Scenario)
}

// rows are the policies to run, and the deployment if there is one. The scenario is
// changed to that of the deployment.
func (o *Options) rows(s *sim.Scenario) ([]sim.Policy, *deployment, error) {
	known := sim.Policies()
	if s.Prompts != nil {
		known = sim.EnginePolicies()
	}
	if hasContents(*s) {
		known = sim.PrefixPolicies()
	}
	if o.Config == "" {
		policies, err := choose(known, o.Policies)
		return policies, nil, err
	}
	f, err := newDeployment(o.Config, o.Cluster)
	if err != nil {
		return nil, nil, err
	}
	if *s, err = f.place(*s, o.Pods); err != nil {
		return nil, nil, err
	}
	own := f.policy(*s, cmp.Or(sim.Balancer(o.EnvoyPolicy), sim.LeastRequest))
	names := o.Policies
	if len(names) == 0 {
		names = []string{string(sim.RoundRobin), string(sim.LeastRequest), own.Name}
		for _, p := range known {
			if isBound(p) {
				names = append(names, p.Name)
			}
		}
	}
	policies, err := choose(append(known, own), names)
	if err == nil && !slices.ContainsFunc(policies, func(p sim.Policy) bool { return p.Name == own.Name }) {
		policies = append(policies, own)
	}
	return policies, f, err
}
