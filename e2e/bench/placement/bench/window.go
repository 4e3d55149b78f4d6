package bench

import (
	"context"
	"fmt"
	"time"

	"steelyard/e2e/bench/placement/fleet"
	"steelyard/e2e/bench/placement/report"
	"steelyard/e2e/rig/load"
)

// A Window is the time in which the counted requests of a block arrive, as
// moments from now.
type Window struct{ From, To time.Time }

// WindowOf finds the window of a block that begins at this moment.
func WindowOf(block load.Plan, warmUp int) (Window, error) {
	arrivals, err := block.Arrivals()
	if err != nil {
		return Window{}, err
	}
	now, n := time.Now(), 0
	var w Window
	for a := range arrivals {
		if n == warmUp {
			w.From = now.Add(a.At)
		}
		w.To = now.Add(a.At)
		n++
	}
	return w, nil
}

// Cost returns what a row uses in the window.
func (w Window) Cost(ctx context.Context, f *fleet.Fleet) (report.Cost, error) {
	before, err := w.usage(ctx, f, w.From)
	if err != nil {
		return report.Cost{}, err
	}
	after, err := w.usage(ctx, f, w.To)
	if err != nil {
		return report.Cost{}, err
	}
	c := report.Cost{Seconds: after.At.Sub(before.At).Seconds()}
	for i := range after.Envoys {
		c.Envoys = append(c.Envoys, after.Envoys[i]-before.Envoys[i])
	}
	if a, b := after.Control, before.Control; a != nil {
		c.Control = true
		c.ControlCPU = a.CPU - b.CPU
		c.ControlRSS = max(a.RSS, b.RSS)
		c.Pushes = a.Pushes - b.Pushes
		c.Suppressed = a.Suppressed - b.Suppressed
	}
	return c, nil
}

func (w Window) usage(ctx context.Context, f *fleet.Fleet, at time.Time) (fleet.Usage, error) {
	if err := sleepUntil(ctx, at); err != nil {
		return fleet.Usage{}, err
	}
	u, err := f.Usage(ctx)
	if err != nil {
		return u, fmt.Errorf("the row %s: %w", f.Policy.Name, err)
	}
	return u, nil
}

// Machine returns how busy all cores are in the window.
func (w Window) Machine(ctx context.Context) (fleet.Machine, error) {
	var times [2]fleet.Machine
	for i, at := range []time.Time{w.From, w.To} {
		if err := sleepUntil(ctx, at); err != nil {
			return fleet.Machine{}, err
		}
		var err error
		if times[i], err = fleet.ReadMachine(); err != nil {
			return fleet.Machine{}, err
		}
	}
	return times[1].Minus(times[0]), nil
}

func sleepUntil(ctx context.Context, at time.Time) error {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
