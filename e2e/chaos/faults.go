package chaos

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"steelyard/internal/api"
)

// spoiled is an invalid configuration.
const spoiled = "xds: {listen: nowhere\nclusters: 7\n"

// makeFault makes a fault and returns when it is over and the part is back.
func (f *fleet) makeFault(ctx context.Context, fault Fault) error {
	e := f.begin(fault)
	defer f.end(e)
	if err := f.make(ctx, fault); err != nil {
		return fmt.Errorf("%v: %w", fault, err)
	}
	return nil
}

func (f *fleet) make(ctx context.Context, fault Fault) error {
	switch fault.Kind {
	case Kill:
		return f.units[fault.Part].kill(ctx, fault.For)
	case Restart:
		return f.units[fault.Part].restart(ctx, fault.For)
	case Pause:
		return f.units[fault.Part].pause(ctx, fault.For)
	case Reset:
		f.links[fault.Part].Reset()
		return nil
	case Hang:
		l := f.links[fault.Part]
		l.Hang(true)
		defer l.Hang(false)
		return rest(ctx, fault.For)
	case Refuse:
		l := f.links[fault.Part]
		l.Refuse(true)
		defer l.Refuse(false)
		return rest(ctx, fault.For)
	case Stall:
		f.reader.stalled.Lock()
		defer f.reader.stalled.Unlock()
		return rest(ctx, fault.For)
	case Close:
		return f.closeLog(ctx, fault.For)
	case Replace:
		return f.replaceCertificates(ctx)
	case Change, Spoil, Remove:
		return f.rewrite(ctx, fault)
	}
	return fmt.Errorf("a fault of kind %q is not known", fault.Kind)
}

// replaceCertificates replaces the certificates and restarts Steelyard in order, because it reads them when it
// starts. An Envoy takes its own at its next restart; the authority stays the same.
func (f *fleet) replaceCertificates(ctx context.Context) error {
	if err := f.certs.replace(); err != nil {
		return err
	}
	if err := f.units[partSteelyard].restart(ctx, 0); err != nil {
		return err
	}
	if err := f.certs.shows(f.at.xds); err != nil {
		f.complain("new certificates after a restart: %v", err)
	}
	return nil
}

// closeLog closes the read end of the log pipe, which Steelyard has to report, and restarts it with another pipe.
func (f *fleet) closeLog(ctx context.Context, d time.Duration) error {
	if err := f.reader.leave(); err != nil {
		return err
	}
	if err := rest(ctx, d); err != nil {
		return err
	}
	if err := wait(ctx, silence, f.logFails); err != nil {
		f.complain("the log has had no reader for %v, and Steelyard does not report it: %v", d, err)
	}
	return f.units[partSteelyard].restart(ctx, 0)
}

// logFails wants Steelyard to report that its log cannot be written.
func (f *fleet) logFails(ctx context.Context) error {
	var status api.Status
	if err := f.api.get(ctx, "/api/v1/status", &status); err != nil {
		return err
	}
	if status.Log.Error == "" {
		return fmt.Errorf("the status has no error of the log, %d dropped lines", status.Log.DroppedLines)
	}
	return nil
}

// rewrite changes the configuration, permanently or for a while.
func (f *fleet) rewrite(ctx context.Context, fault Fault) error {
	c := f.config
	switch fault.Kind {
	case Change:
		c.capacity = slots + (c.capacity+1)%2 // to and fro
		return c.write()
	case Spoil:
		return c.whileValid(func() error {
			err := c.put(spoiled)
			if err == nil {
				err = rest(ctx, fault.For)
			}
			return errors.Join(err, c.write())
		})
	default:
		c.without = fault.Part
		err := c.write()
		if err == nil {
			err = rest(ctx, fault.For)
		}
		c.without = ""
		return errors.Join(err, c.write())
	}
}

// storm makes all faults of a schedule, each at its time, but not before the previous fault of its lane is over.
func (f *fleet) storm(ctx context.Context, schedule []Fault) error {
	start := time.Now()
	byLane := make(map[int][]Fault)
	for _, fault := range schedule {
		byLane[fault.Lane] = append(byLane[fault.Lane], fault)
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, faults := range byLane {
		group.Go(func() error {
			for _, fault := range faults {
				if err := rest(ctx, time.Until(start.Add(fault.At))); err != nil {
					return err
				}
				if err := f.makeFault(ctx, fault); err != nil {
					return err
				}
				if err := rest(ctx, leastGap); err != nil { // also in a lane that is late
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}
