package bench

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"steelyard/e2e/bench/placement/fleet"
	"steelyard/e2e/bench/placement/report"
	"steelyard/e2e/rig/proc"
)

// Run measures all rows at all service times, as many times as there are runs.
func Run(ctx context.Context, o Options) (report.Document, error) {
	if err := o.validate(); err != nil {
		return report.Document{}, err
	}
	conditions, err := o.conditions(ctx)
	if err != nil {
		return report.Document{}, err
	}
	var (
		runs []report.Run
		all  []part // of all runs together
	)
	for i := range o.Runs {
		var parts []part
		for _, service := range o.Services {
			p, err := o.section(ctx, service, i)
			if err != nil {
				return report.Document{}, fmt.Errorf("run %d at %v service: %w", i+1, service, err)
			}
			parts = append(parts, p)
			if i == 0 {
				all = append(all, part{service: service, rows: make([]report.Measurement, len(p.rows))})
			}
			all[len(parts)-1].add(p)
		}
		run, err := o.run(parts)
		if err != nil {
			return report.Document{}, err
		}
		runs = append(runs, run)
	}
	whole, err := o.run(all)
	if err != nil {
		return report.Document{}, err
	}
	return report.NewDocument(conditions, whole, runs), nil
}

// run returns what one run measured, or all of them together.
func (o Options) run(parts []part) (report.Run, error) {
	var sections []report.Section
	var again []string
	busy := make(map[string]report.Number)
	for _, p := range parts {
		s, err := report.NewSection(p.service, p.rows, o.bootstrap())
		if err != nil {
			return report.Run{}, err
		}
		sections = append(sections, s)
		again = append(again, p.again...)
		busy[p.service.String()] = report.Number(p.machine.Share())
	}
	return report.NewRun(sections, busy, again), nil
}

func (o Options) conditions(ctx context.Context) (report.Conditions, error) {
	path, err := proc.Find(proc.ProgramEnvoy)
	if err != nil {
		return report.Conditions{}, err
	}
	build, err := proc.EnvoyBuild(ctx, path)
	return report.Conditions{
		Started: time.Now().UTC().Truncate(time.Second), Envoy: build, Cores: runtime.NumCPU(),
		Envoys: o.Size.Envoys, Servers: o.Size.Servers, Slots: o.Size.Slots, Slow: o.Size.Slow, Skew: o.Size.Skew,
		Load: o.Size.Load,
		Seed: o.Seed, WarmUp: o.WarmUp, Block: bootstrapServices, Lateness: o.Lateness,
	}, err
}

// A part is what was measured at one service time.
type part struct {
	service time.Duration
	rows    []report.Measurement // in the order of the policies, each with all groups that have it
	machine fleet.Machine        // busy and idle seconds while requests were counted
	again   []string             // groups that were measured more than once
}

// add appends the same rows of another run.
func (p *part) add(other part) {
	for i, m := range other.rows {
		p.rows[i].Add(m)
	}
	p.machine = p.machine.Plus(other.machine)
	p.again = append(p.again, other.again...)
}

// section measures all rows at one service time, one group after the other.
func (o Options) section(ctx context.Context, service time.Duration, run int) (part, error) {
	p := part{service: service}
	policies := o.policiesAt(service)
	rows := make([][]report.Measurement, len(policies)) // of each policy, one for each group that has it
	groups := o.groups(policies)
	for i, members := range groups {
		title := fmt.Sprintf("run %d of %d, %v service, group %d of %d", run+1, o.Runs, service, i+1, len(groups))
		g := group{title: title, number: i + 1, service: service, seed: o.Seed + uint64(run)<<32,
			schedule: o.schedule(service, len(members))}
		for _, k := range members {
			g.policies = append(g.policies, policies[k])
		}
		again, err := o.attempt(ctx, &g)
		if err != nil {
			return p, err
		}
		p.again = append(p.again, again...)
		for j, k := range members {
			rows[k] = append(rows[k], g.rows[j])
		}
		p.machine = p.machine.Plus(g.machine)
	}
	p.rows = slices.Concat(rows...)
	return p, nil
}

// attempt measures a group, and again where its requests left late: something else
// wanted the machine, which makes the rows meaningless. Its result reports that.
func (o Options) attempt(ctx context.Context, g *group) (again []string, err error) {
	for attempt := 1; ; attempt++ {
		o.say("%s: %d rows, %d at a time, %v of requests", g.title, len(g.policies), len(g.turns[0]),
			g.lasts().Round(time.Second))
		if err := g.measure(ctx, o); err != nil {
			return nil, err
		}
		if attempt >= o.Attempts || !g.late(o.Lateness) {
			return again, nil
		}
		again = append(again, g.title+": measured again, because requests left late")
		o.say("%s", again[len(again)-1])
	}
}

func (o Options) say(format string, args ...any) {
	if o.Log != nil {
		fmt.Fprintf(o.Log, time.Now().Format(time.TimeOnly)+" "+format+"\n", args...)
	}
}
