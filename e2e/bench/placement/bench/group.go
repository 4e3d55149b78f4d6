package bench

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"steelyard/e2e/bench/placement/fleet"
	"steelyard/e2e/bench/placement/report"
	"steelyard/e2e/rig/load"
)

// A group is rows of one service time that are measured together.
type group struct {
	schedule
	title    string // for people
	number   int    // from 1
	service  time.Duration
	seed     uint64
	policies []fleet.Policy

	rows    []report.Measurement // of the policies
	machine fleet.Machine        // busy and idle seconds while requests were counted
}

// measure runs the group, with fleets of its own that are gone afterwards.
func (g *group) measure(ctx context.Context, o Options) (err error) {
	fleets, err := fleet.StartAll(ctx, o.Place, g.policies, o.size(g.service))
	defer func() { err = errors.Join(err, fleet.CloseAll(fleets)) }()
	if err != nil {
		return err
	}
	g.rows, g.machine = make([]report.Measurement, len(fleets)), fleet.Machine{}
	for block := range g.blocks {
		for _, turn := range g.order(block) {
			if err := g.send(ctx, fleets, turn, g.seed+uint64(block)); err != nil {
				return err
			}
		}
	}
	return nil
}

// late reports whether a row's requests left later, at p99, than a share of the mean
// service.
func (g *group) late(limit float64) bool {
	return slices.ContainsFunc(g.rows, func(m report.Measurement) bool {
		return !(load.Summarize(slices.Clone(m.Lateness)).P99 <= limit*g.service.Seconds())
	})
}

// send sends a block of requests to some of the rows, all at once.
func (g *group) send(ctx context.Context, fleets []*fleet.Fleet, turn []int, seed uint64) error {
	block := load.Plan{
		Rate: g.rate, Count: g.warmUp + g.counted, Work: load.Work{Mean: g.service}, Seed: seed,
		Targets: []string{"http://any/"}, Drain: drain(g.service),
	}
	w, err := WindowOf(block, g.warmUp)
	if err != nil {
		return err
	}
	results := make([]report.Measurement, len(turn))
	running, ctx := errgroup.WithContext(ctx)
	for k, i := range turn {
		running.Go(func() (err error) {
			results[k], err = measure(ctx, fleets[i], block, g.warmUp, w)
			results[k].Group = g.number
			return err
		})
	}
	var machine fleet.Machine
	running.Go(func() (err error) {
		machine, err = w.Machine(ctx)
		return err
	})
	if err := running.Wait(); err != nil {
		return err
	}
	for k, i := range turn {
		g.rows[i].Add(results[k])
	}
	g.machine = g.machine.Plus(machine)
	return nil
}

// drain returns how long the last requests may take: queues of some tens, and time
// for a slow machine.
func drain(service time.Duration) time.Duration { return 60*time.Second + 60*service }

// measure sends a block to one row.
func measure(ctx context.Context, f *fleet.Fleet, block load.Plan, warmUp int, w Window) (report.Measurement, error) {
	m := report.Measurement{Policy: f.Policy.Name, Title: f.Policy.Title, Service: block.Work.Mean}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var group errgroup.Group
	group.Go(func() (err error) {
		m.Cost, err = w.Cost(ctx, f)
		return err
	})
	result, err := load.Run(ctx, f.Plan(block))
	if err != nil {
		cancel()
		return m, errors.Join(err, group.Wait())
	}
	for _, s := range result.Samples[min(warmUp, len(result.Samples)):] {
		take(&m, s, f.Policy.Queued())
	}
	return m, group.Wait()
}

// take adds a request to a measurement. One that waits in its Envoy has waited for all of its latency but the service:
// the way there and back cannot be told from the wait, and counts against the queue.
func take(m *report.Measurement, s load.Sample, queued bool) {
	m.Lateness = append(m.Lateness, s.Lateness.Seconds())
	wait, added := s.Wait, s.Latency.Seconds()-s.Wait-s.Service
	switch {
	case s.Failed() || math.IsNaN(s.Wait):
		if m.Errors++; m.Errors == 1 {
			m.FirstError = s.Failure()
		}
		wait, added = math.NaN(), math.NaN()
	case queued:
		wait, added = s.Latency.Seconds()-s.Service, math.NaN()
	}
	m.Waits, m.Added = append(m.Waits, wait), append(m.Added, added)
}
