package simulate

import (
	"context"
	"fmt"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"steelyard/cmd/internal/table"
	"steelyard/controlplane/config"
	"steelyard/sim"
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
	return o.compare(ctx, s, policies)
}

// compare runs the policies on one seed and shows them side by side.
func (o *Options) compare(ctx context.Context, s sim.Scenario, policies []sim.Policy) error {
	r, err := o.run(ctx, s, policies)
	if err != nil {
		return err
	}
	if o.JSONFile != "-" {
		fmt.Fprint(o.Out, r.table())
	}
	if o.JSONFile == "" {
		return nil
	}
	return writeJSON(o.JSONFile, o.Out, r.document())
}

// run runs all policies, as many at a time as there are processors.
func (o *Options) run(ctx context.Context, s sim.Scenario, policies []sim.Policy) (run, error) {
	progress := newProgress(o.Err, len(policies))
	defer progress.clear()
	r := run{scenario: s, policies: policies, results: make([]sim.Result, len(policies))}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, p := range policies {
		group.Go(func() (err error) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			r.results[i], err = sim.Run(ctx, s, p)
			progress.done()
			return err
		})
	}
	return r, group.Wait()
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
