package simulate

import (
	"context"
	"fmt"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"steelyard/cmd/internal/table"
	"steelyard/controlplane/config"
	"steelyard/weighting/sim"
)

// Run simulates by the options. Errors of type Usage are mistakes in the options.
func Run(ctx context.Context, o Options) error {
	if err := o.check(); err != nil {
		return err
	}
	if o.List {
		return o.list()
	}
	s, err := o.scenario(ctx)
	if err != nil {
		return err
	}
	policies, own, err := o.rows(&s)
	if err != nil {
		return err
	}
	if err := checkRequests(s); err != nil {
		return err
	}
	if o.Print {
		fmt.Fprint(o.Out, printed(s))
		return nil
	}
	if own != nil && o.JSONFile != "-" {
		fmt.Fprint(o.Out, own.explanation())
	}
	if o.Hunt > 0 {
		return o.hunt(ctx, s, policies)
	}
	return o.compare(ctx, s, policies)
}

// compare runs the policies on one seed and shows them side by side.
func (o *Options) compare(ctx context.Context, s sim.Scenario, policies []sim.Policy) error {
	pods, err := o.pods(s)
	if err != nil {
		return err
	}
	if o.Plot {
		s.SampleEvery = sampleEvery(s.Duration)
	}
	runs, err := o.runAll(ctx, []sim.Scenario{s}, policies)
	if err != nil {
		return err
	}
	r := runs[0]
	if o.JSONFile != "-" {
		fmt.Fprint(o.Out, r.table())
		if o.Plot {
			over := typical(policies)
			if len(o.Policies) > 0 {
				over = func(sim.Policy) bool { return true }
			}
			fmt.Fprint(o.Out, r.plots(over, pods))
		}
	}
	if o.JSONFile == "" {
		return nil
	}
	return writeJSON(o.JSONFile, o.Out, r.document())
}

// pods are those to draw.
func (o *Options) pods(s sim.Scenario) ([]int, error) {
	if len(o.PlotPods) == 0 {
		return interesting(s), nil
	}
	last := len(podsOf(s)) - 1
	for _, pod := range o.PlotPods {
		if pod < 0 || pod > last {
			return nil, usage("--plot-pods %d: the pods are numbered from 0 to %d", pod, last)
		}
	}
	return o.PlotPods, nil
}

// runAll runs all policies on all scenarios, as many at a time as there are
// processors.
func (o *Options) runAll(ctx context.Context, scenarios []sim.Scenario, policies []sim.Policy) ([]run, error) {
	progress := newProgress(o.Err, len(scenarios)*len(policies))
	defer progress.clear()
	runs := make([]run, len(scenarios))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for k, s := range scenarios {
		runs[k] = run{scenario: s, policies: policies, results: make([]sim.Result, len(policies))}
		for i, p := range policies {
			group.Go(func() (err error) {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				runs[k].results[i], err = sim.Run(ctx, s, p)
				progress.done()
				return err
			})
		}
	}
	return runs, group.Wait()
}

// list writes the built-in scenarios and the policies, one line each.
func (o *Options) list() error {
	t := table.New("SCENARIO", "LENGTH", "WHAT")
	for _, name := range ScenarioNames() {
		s, err := builtin(name)
		if err != nil {
			return err
		}
		t.Add(name, config.DurationText(s.Duration), summary(s))
	}
	t.Write(o.Out, 0)
	fmt.Fprintln(o.Out)
	t = table.New("POLICY", "WHAT")
	var listed []string
	for _, p := range slices.Concat(sim.Policies(), sim.EnginePolicies(), sim.PrefixPolicies()) {
		if !slices.Contains(listed, p.Name) {
			listed = append(listed, p.Name)
			t.Add(p.Name, described(p))
		}
	}
	t.Write(o.Out, 0)
	return nil
}
