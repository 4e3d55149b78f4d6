package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"golang.org/x/sync/errgroup"

	"steelyard/e2e/bench/placement/fleet"
	"steelyard/e2e/bench/placement/report"
	"steelyard/e2e/rig/load"
)

// Overload is what to measure of a saturated pool: the same load with shedding
// and without, at the same time, in rows of their own. Before the overload and
// after it the load is one that the pool can carry, to see that nothing is
// refused then.
type Overload struct {
	Options               // of which Size, Seed, Lateness, Place and Log are used
	Service time.Duration // mean work of a request
	Load    float64       // offered, as a share of what the servers can do
	Calm    float64       // the same, before and after
	Target  time.Duration // wait that shedding aims at

	Before, During, After time.Duration
}

// DefaultOverload returns twice what the servers can do, for a minute.
func DefaultOverload() Overload {
	return Overload{
		Options: Default(), Service: 500 * time.Millisecond, Load: 2, Calm: 0.7, Target: 2 * time.Second,
		Before: 15 * time.Second, During: time.Minute, After: 30 * time.Second,
	}
}

// rows returns the rows of an overload.
func (o Overload) rows() []fleet.Policy {
	signals := fleet.Control{Scrape: 250 * time.Millisecond, LoadReports: true, AccessLog: true}
	shedding := signals
	shedding.TargetWait = o.Target
	return []fleet.Policy{
		{Name: "shedding", Title: "shedding", Control: &shedding},
		{Name: "no_shedding", Title: "without", Control: &signals},
	}
}

// samplePeriod is the time between two samples of the drop fraction.
const samplePeriod = 200 * time.Millisecond

// Run measures both rows.
func (o Overload) Run(ctx context.Context) (d report.OverloadDocument, err error) {
	o.Services, o.Policies, o.Size.Load = []time.Duration{o.Service}, o.rows(), o.Load
	if err := o.validate(); err != nil {
		return d, err
	}
	conditions, err := o.conditions(ctx)
	if err != nil {
		return d, err
	}
	o.say("overload of %g for %v at %v service, target wait %v", o.Load, o.During, o.Service, o.Target)
	fleets, err := fleet.StartAll(ctx, o.Place, o.Policies, o.size(o.Service))
	defer func() { err = errors.Join(err, fleet.CloseAll(fleets)) }()
	if err != nil {
		return d, err
	}
	rows := make([]report.OverloadRow, len(fleets))
	group, ctx := errgroup.WithContext(ctx)
	for i, f := range fleets {
		group.Go(func() error {
			row, err := o.measure(ctx, f)
			rows[i] = row.Figures()
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return d, err
	}
	return report.NewOverloadDocument(conditions, o.Service.Seconds(), o.Load, o.During.Seconds(), rows), nil
}

// A phase is a part of the load: from a moment on, which counts from the
// beginning of the overload, for a time.
type phase struct {
	from, lasts time.Duration
	load        float64
}

func (o Overload) phases() []phase {
	return []phase{
		{-o.Before, o.Before, o.Calm},
		{0, o.During, o.Load},
		{o.During, o.After, o.Calm},
	}
}

// measure sends all phases to one row. A phase does not wait for the answers of
// the one before it.
func (o Overload) measure(ctx context.Context, f *fleet.Fleet) (report.Overloaded, error) {
	row := report.Overloaded{
		Policy: f.Policy.Name, Title: f.Policy.Title,
		Capacity: o.Size.Capacity(), Seconds: o.During.Seconds(), TargetWait: f.Policy.Control.TargetWait.Seconds(),
	}
	begin := time.Now().Add(o.Before) // of the overload
	results := make([]load.Result, 3)
	group, ctx := errgroup.WithContext(ctx)
	watched, stop := context.WithCancel(ctx)
	defer stop()
	var watching errgroup.Group
	watching.Go(func() (err error) {
		row.DropSamples, err = watch(watched, f, begin)
		return err
	})
	for i, p := range o.phases() {
		group.Go(func() (err error) {
			if err := sleepUntil(ctx, begin.Add(p.from)); err != nil {
				return err
			}
			size := o.size(o.Service)
			size.Load = p.load
			results[i], err = load.Run(ctx, f.Plan(load.Plan{
				Rate: size.Rate(), Duration: p.lasts, Work: load.Work{Mean: o.Service},
				Seed: o.Seed + uint64(i),
				// without shedding the queues hold minutes
				Drain: 30*time.Second + 2*time.Duration(float64(o.During)*o.Load),
			}))
			return err
		})
	}
	err := group.Wait()
	stop()
	err = errors.Join(err, watching.Wait())
	for i, p := range o.phases() {
		for _, s := range results[i].Samples {
			row.Outcomes = append(row.Outcomes, outcome(p.from, s))
		}
	}
	if err != nil {
		return row, fmt.Errorf("the row %s: %w", f.Policy.Name, err)
	}
	return row, nil
}

// outcome returns a request of a phase that began at the given moment.
func outcome(from time.Duration, s load.Sample) report.Outcome {
	return report.Outcome{
		At:   (from + s.At).Seconds(),
		OK:   !s.Failed() && !math.IsNaN(s.Wait),
		Wait: s.Wait, Service: s.Service,
		Latency: s.Latency.Seconds(), Lateness: s.Lateness.Seconds(),
		Refused: s.Status == 503, Dropped: s.Dropped,
	}
}

// watch samples Steelyard's drop fraction until ctx is done.
func watch(ctx context.Context, f *fleet.Fleet, begin time.Time) ([]report.DropSample, error) {
	var samples []report.DropSample
	tick := time.NewTicker(samplePeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return samples, nil
		case <-tick.C:
		}
		u, err := f.Usage(ctx)
		if ctx.Err() != nil {
			return samples, nil
		}
		if err != nil {
			return samples, err
		}
		samples = append(samples, report.DropSample{At: u.At.Sub(begin).Seconds(), Drop: u.Control.Drop,
			Queue: float64(f.Queue())})
	}
}
