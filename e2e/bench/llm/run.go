package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"steelyard/e2e/bench/placement/bench"
	"steelyard/e2e/bench/placement/fleet"
	"steelyard/e2e/bench/placement/report"
	"steelyard/e2e/rig/load"
	"steelyard/e2e/rig/modelsim"
	"steelyard/e2e/rig/proc"
	"steelyard/sim/trace"
)

// measureAll measures all rows, and all of them again where requests left late: something else
// wanted the machine, which shows nothing about the rows.
func (o *Options) measureAll(ctx context.Context) (report.LLMDocument, error) {
	if err := o.validate(); err != nil {
		return report.LLMDocument{}, err
	}
	rate := o.rate()
	conditions, err := o.conditions(ctx, rate)
	if err != nil {
		return report.LLMDocument{}, err
	}
	var again []string
	for attempt := 1; ; attempt++ {
		measured, machine, err := o.measure(ctx, rate)
		if err != nil {
			return report.LLMDocument{}, err
		}
		rows, err := report.NewLLMRows(measured, o.bootstrap(rate))
		if err != nil {
			return report.LLMDocument{}, err
		}
		d := report.NewLLMDocument(conditions, rows, machine.Share(), again)
		if d.Valid || attempt >= o.Attempts {
			return d, nil
		}
		again = append(again, "measured again, because requests left late: "+d.Reasons[0])
		o.say("%s", again[len(again)-1])
	}
}

func (o *Options) conditions(ctx context.Context, rate float64) (report.LLMConditions, error) {
	path, err := proc.Find(proc.ProgramEnvoy)
	if err != nil {
		return report.LLMConditions{}, err
	}
	build, err := proc.EnvoyBuild(ctx, path)
	c := report.LLMConditions{
		Started: time.Now().UTC().Truncate(time.Second), Trace: o.Trace.Name, From: o.From, Rate: rate, Load: o.Load,
		Envoys: o.Envoys, Workers: o.Workers, Engines: o.Engines, Mixed: o.Mixed, Burst: o.Burst, Chunked: o.Chunked,
		KVTokens: o.Engine.KVTokens, Sequences: o.Engine.MaxSequences, Seed: o.Seed,
		WarmUp: o.WarmUp.Seconds(), Block: bootstrapSeconds, Lateness: o.Lateness.Seconds(),
		Cores: runtime.NumCPU(), Envoy: build, Conversations: o.Cached,
	}
	if o.Trace == trace.Azure() {
		c.Source = trace.AzureSource
	}
	return c, err
}

// A row is a fleet with the requests that it gets.
type row struct {
	fleet  *fleet.Fleet
	plan   load.Plan
	warmUp int // requests that do not count
	window bench.Window
}

// measure starts all rows, sends the requests to all of them at the same time, and ends
// them. machine is while counted requests arrived.
func (o *Options) measure(ctx context.Context, rate float64) (
	_ []report.LLMMeasurement, machine fleet.Machine, err error,
) {
	fleets, err := o.start(ctx)
	defer func() { err = errors.Join(err, fleet.CloseAll(fleets)) }()
	if err != nil {
		return nil, machine, err
	}
	warmUp := int(math.Round(o.WarmUp.Seconds() * rate))
	plan := load.Plan{
		Targets: []string{"http://any/"}, Seed: o.Seed, Drain: 5 * time.Minute,
		Completions: o.completions(warmUp+o.Requests, rate),
	}
	w, err := bench.WindowOf(plan, warmUp)
	if err != nil {
		return nil, machine, err
	}
	o.say("%d rows at a time, %.1f requests/s each, for %v", len(fleets), rate, time.Until(w.To).Round(time.Second))
	measured := make([]report.LLMMeasurement, len(fleets))
	running, ctx := errgroup.WithContext(ctx)
	for i, f := range fleets {
		running.Go(func() (err error) {
			r := row{fleet: f, plan: f.Plan(plan), warmUp: warmUp, window: w}
			if f.Policy.Direct {
				r.plan.Picker = o.picker(f.Policy.Name, f.Servers())
			}
			measured[i], err = r.measure(ctx)
			return err
		})
	}
	running.Go(func() (err error) {
		machine, err = w.Machine(ctx)
		return err
	})
	return measured, machine, running.Wait()
}

// start starts the rows asked for, in the order of the table.
func (o *Options) start(ctx context.Context) ([]*fleet.Fleet, error) {
	o.say("starting %d rows of %d engines and up to %d Envoys", len(o.Policies), o.Engines, o.Envoys)
	rows := slices.DeleteFunc(policies(), func(p fleet.Policy) bool { return !slices.Contains(o.Policies, p.Name) })
	return fleet.StartAll(ctx, o.Place, rows, o.size())
}

func (o *Options) say(format string, args ...any) {
	if o.Log != nil {
		fmt.Fprintf(o.Log, time.Now().Format(time.TimeOnly)+" "+format+"\n", args...)
	}
}

// measure sends the requests to the row, and looks at it while they arrive.
func (r *row) measure(ctx context.Context) (report.LLMMeasurement, error) {
	m := report.LLMMeasurement{Policy: r.fleet.Policy.Name}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var group errgroup.Group
	group.Go(func() (err error) {
		m.Cost, err = r.window.Cost(ctx, r.fleet)
		return err
	})
	group.Go(func() (err error) {
		m.Running, err = meanRunning(ctx, r.window, r.fleet.Servers())
		return err
	})
	group.Go(func() (err error) {
		m.CachedShare, err = cachedShare(ctx, r.window, r.fleet.Servers())
		return err
	})
	result, err := load.Run(ctx, r.plan)
	if err != nil {
		cancel()
		return m, errors.Join(err, group.Wait())
	}
	for _, s := range result.Samples[min(r.warmUp, len(result.Samples)):] {
		take(&m, s)
	}
	return m, group.Wait()
}

// cachedShare returns how much of the prompts that the servers admitted in the window was in their prefix caches.
func cachedShare(ctx context.Context, w bench.Window, servers []*modelsim.Server) (float64, error) {
	var all, cached [2]float64
	for i, at := range []time.Time{w.From, w.To} {
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-time.After(time.Until(at)):
		}
		for _, s := range servers {
			t := s.Tokens()
			all[i], cached[i] = all[i]+float64(t.PromptTokens), cached[i]+float64(t.CachedTokens)
		}
	}
	return (cached[1] - cached[0]) / (all[1] - all[0]), nil
}

// take adds a request to a measurement.
func take(m *report.LLMMeasurement, s load.Sample) {
	m.Lateness = append(m.Lateness, s.Lateness.Seconds())
	first, each, end := math.NaN(), math.NaN(), math.NaN()
	if s.Failed() {
		if m.Errors++; m.Errors == 1 {
			m.FirstError = s.Failure()
		}
	} else {
		first, end = s.FirstByte.Seconds(), s.Latency.Seconds()
		if n := s.Completion.Output; n > 1 {
			each = (end - first) / float64(n-1)
		}
	}
	m.FirstToken = append(m.FirstToken, first)
	m.PerToken = append(m.PerToken, each)
	m.EndToEnd = append(m.EndToEnd, end)
}

// runningPeriod is how often the requests running at the engines are looked at.
const runningPeriod = 500 * time.Millisecond

// meanRunning returns how many requests run at each server, on average over the window.
func meanRunning(ctx context.Context, w bench.Window, servers []*modelsim.Server) ([]float64, error) {
	sums := make([]float64, len(servers))
	tick := time.NewTicker(runningPeriod)
	defer tick.Stop()
	n := 0.0
	for now := time.Now(); now.Before(w.To); {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case now = <-tick.C:
		}
		if now.Before(w.From) {
			continue
		}
		n++
		for i, s := range servers {
			sums[i] += float64(s.Running())
		}
	}
	for i := range sums {
		sums[i] /= n // NaN for a window without a sample
	}
	return sums, nil
}
