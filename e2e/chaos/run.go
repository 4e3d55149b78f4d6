package chaos

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"steelyard/e2e/rig/load"
)

// The load has six requests in flight at a time, on the average, one in ten of which
// takes ten times as long as the others. A part that dies usually has some of them.
const rate = 60 // requests per second

var work = load.Work{Mean: 100 * time.Millisecond, Shape: load.TwoClass}

// Options say what run to make.
type Options struct {
	Length time.Duration // of the faults
	Seed   uint64        // of the schedule of faults and of the load
	Skip   []Kind        // kinds of faults to leave out of the schedule, to find the kind that causes a failure
	Dir    string        // an existing folder for the files of the processes, the logs among them
	// Queue has requests wait in a queue of the cluster, in Envoys that find the module by the environment.
	Queue bool
	Log   func(line string)
}

// A Report is the result of a run.
type Report struct {
	Faults        int
	Account       Account
	Before, After Vitals
	Wrong         []string // failures of the fleet; empty if there were none
}

// Run makes a run. The error is about the run itself; its findings are in the report.
func Run(ctx context.Context, o Options) (Report, error) {
	schedule := slices.DeleteFunc(Schedule(o.Seed, o.Length), func(f Fault) bool {
		return slices.Contains(o.Skip, f.Kind)
	})
	j := &journal{print: o.Log, start: time.Now()}
	r := Report{Faults: len(schedule)}
	f, err := startFleet(ctx, o, j)
	if err == nil {
		err = r.fill(ctx, f, o.Length, schedule)
		r.Account = f.account
		f.close()
	}
	r.Wrong = j.wrong
	return r, err
}

// fill makes the faults between two times of calm, and compares the two.
func (r *Report) fill(ctx context.Context, f *fleet, length time.Duration, schedule []Fault) error {
	var err error
	if err = f.calm(ctx, "before"); err != nil {
		return err
	}
	if r.Before, err = f.api.vitals(ctx); err != nil {
		return err
	}
	f.begins()
	err = f.send(ctx, "storm", length, func(ctx context.Context) error { return f.storm(ctx, schedule) })
	if err != nil {
		return err
	}
	f.say("the faults are over: %v", f.account)
	if err = f.calm(ctx, "after"); err != nil {
		return err
	}
	r.After, err = f.compare(ctx, r.Before)
	f.say("Steelyard used before the faults: %v; after them: %v", r.Before, r.After)
	return err
}

// send sends requests while meanwhile runs, and judges them.
func (f *fleet) send(ctx context.Context, name string, d time.Duration, meanwhile func(context.Context) error) error {
	plan := load.Plan{Rate: rate, Duration: d, Work: work, Seed: f.seed, Picker: f.rotation, RequestIDs: name}
	for _, address := range f.at.envoys {
		plan.Targets = append(plan.Targets, "http://"+address+"/")
	}
	var result load.Result
	group, both := errgroup.WithContext(ctx)
	group.Go(func() error { return meanwhile(both) })
	group.Go(func() (err error) {
		result, err = load.Run(both, plan)
		return err
	})
	if err := group.Wait(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return f.judge(name, result)
}
