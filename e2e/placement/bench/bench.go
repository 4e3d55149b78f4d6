package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"

	"steelyard/e2e/placement/fleet"
	"steelyard/e2e/placement/report"
	"steelyard/e2e/rig/load"
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
		var sections []report.Section
		busy := make(map[string]report.Number)
		for k, service := range o.Services {
			p, err := o.section(ctx, service, i)
			if err != nil {
				return report.Document{}, fmt.Errorf("run %d at %v service: %w", i+1, service, err)
			}
			s, err := o.report(p)
			if err != nil {
				return report.Document{}, err
			}
			sections = append(sections, s)
			busy[service.String()] = report.Number(p.machine.Share())
			if i == 0 {
				all = append(all, part{service: service, rows: make([]report.Measurement, len(p.rows))})
			}
			all[k].add(p)
		}
		runs = append(runs, report.NewRun(sections, busy))
	}
	whole, err := o.whole(all)
	if err != nil {
		return report.Document{}, err
	}
	return report.NewDocument(conditions, whole, runs), nil
}

// whole is the run that all runs make together.
func (o Options) whole(all []part) (report.Run, error) {
	var sections []report.Section
	busy := make(map[string]report.Number)
	for _, p := range all {
		s, err := o.report(p)
		if err != nil {
			return report.Run{}, err
		}
		sections = append(sections, s)
		busy[p.service.String()] = report.Number(p.machine.Share())
	}
	return report.NewRun(sections, busy), nil
}

func (o Options) report(p part) (report.Section, error) {
	return report.NewSection(p.service, p.rows, o.bootstrap())
}

func (o Options) conditions(ctx context.Context) (report.Conditions, error) {
	path, err := proc.Find(proc.ProgramEnvoy)
	if err != nil {
		return report.Conditions{}, err
	}
	build, err := proc.EnvoyBuild(ctx, path)
	return report.Conditions{
		Started: time.Now().UTC().Truncate(time.Second), Envoy: build, Cores: runtime.NumCPU(),
		Envoys: o.Size.Envoys, Servers: o.Size.Servers, Slots: o.Size.Slots, Slow: o.Size.Slow, Skew: o.Size.Skew, Load: o.Size.Load,
		Seed: o.Seed, WarmUp: o.WarmUp, Block: bootstrapServices, Lateness: o.Lateness,
	}, err
}

// A part is what was measured at one service time.
type part struct {
	service time.Duration
	rows    []report.Measurement
	machine fleet.Machine // busy and idle seconds while requests were counted
}

// add appends the same rows of another run or block.
func (p *part) add(other part) {
	for i, m := range other.rows {
		p.rows[i].Add(m)
	}
	p.machine = p.machine.Plus(other.machine)
}

// section runs all rows at one service time, with fleets of its own.
func (o Options) section(ctx context.Context, service time.Duration, run int) (p part, err error) {
	policies := o.policiesAt(service)
	plan := o.schedule(service, len(policies))
	o.say("run %d, %v service: %d rows, %d at a time, in %d blocks of %.0f s", run+1, service, len(policies),
		len(plan.groups[0]), plan.blocks, float64(plan.warmUp+plan.counted)/plan.rate)
	fleets, err := o.startAll(ctx, policies, o.size(service))
	defer func() { err = errors.Join(err, closeAll(fleets)) }()
	if err != nil {
		return p, err
	}
	p = part{service: service, rows: make([]report.Measurement, len(policies))}
	for block := range plan.blocks {
		seed := o.Seed + uint64(run)<<32 + uint64(block)
		for _, group := range plan.turn(block) {
			if err := o.measureGroup(ctx, &p, fleets, group, plan, seed); err != nil {
				return p, err
			}
		}
	}
	return p, nil
}

func (o Options) say(format string, args ...any) {
	if o.Log != nil {
		fmt.Fprintf(o.Log, time.Now().Format(time.TimeOnly)+" "+format+"\n", args...)
	}
}

// startAll starts the rows one after the other: their ports are looked for and
// then taken, and a start uses all cores anyway.
func (o Options) startAll(ctx context.Context, policies []fleet.Policy, size fleet.Size) ([]*fleet.Fleet, error) {
	var all []*fleet.Fleet
	for _, p := range policies {
		f, err := fleet.Start(ctx, o.Place, p, size)
		if err != nil {
			return all, err
		}
		all = append(all, f)
	}
	return all, nil
}

func closeAll(all []*fleet.Fleet) error {
	var group errgroup.Group
	for _, f := range all {
		group.Go(f.Close)
	}
	return group.Wait()
}

// measureGroup sends a block of requests to the rows of a group, all at once.
func (o Options) measureGroup(ctx context.Context, p *part, fleets []*fleet.Fleet, group []int, s schedule, seed uint64) error {
	block := load.Plan{
		Rate: s.rate, Count: s.warmUp + s.counted, Work: load.Work{Mean: p.service}, Seed: seed,
		Targets: []string{"http://any/"}, Drain: drain(p.service),
	}
	w, err := windowOf(block, s.warmUp)
	if err != nil {
		return err
	}
	results := make([]report.Measurement, len(group))
	running, ctx := errgroup.WithContext(ctx)
	for k, i := range group {
		running.Go(func() (err error) {
			results[k], err = measure(ctx, fleets[i], block, s.warmUp, w)
			return err
		})
	}
	var machine fleet.Machine
	running.Go(func() (err error) {
		machine, err = w.machine(ctx)
		return err
	})
	if err := running.Wait(); err != nil {
		return err
	}
	for k, i := range group {
		p.rows[i].Add(results[k])
	}
	p.machine = p.machine.Plus(machine)
	return nil
}

// drain is how long the last requests may take: queues of some tens, and time
// for a slow machine.
func drain(service time.Duration) time.Duration { return 60*time.Second + 60*service }

// measure sends a block to one row.
func measure(ctx context.Context, f *fleet.Fleet, block load.Plan, warmUp int, w window) (report.Measurement, error) {
	m := report.Measurement{Policy: f.Policy.Name, Title: f.Policy.Title, Service: block.Work.Mean}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var group errgroup.Group
	group.Go(func() (err error) {
		m.Cost, err = w.cost(ctx, f)
		return err
	})
	result, err := load.Run(ctx, f.Plan(block))
	if err != nil {
		cancel()
		return m, errors.Join(err, group.Wait())
	}
	for _, s := range result.Samples[min(warmUp, len(result.Samples)):] {
		take(&m, s)
	}
	return m, group.Wait()
}

// take adds a request to a measurement.
func take(m *report.Measurement, s load.Sample) {
	m.Lateness = append(m.Lateness, s.Lateness.Seconds())
	if s.Failed() || math.IsNaN(s.Wait) {
		m.Errors++
		m.Waits, m.Added = append(m.Waits, math.NaN()), append(m.Added, math.NaN())
		return
	}
	m.Waits = append(m.Waits, s.Wait)
	m.Added = append(m.Added, s.Latency.Seconds()-s.Wait-s.Service)
}
