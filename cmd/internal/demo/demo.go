package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"steelyard/e2e/rig/proc"
)

// Run plays the demo and returns when everything it started has stopped. When
// ctx ends it stops at once and returns the cause, except while Keep keeps it
// up: then that is how it is meant to end.
func Run(ctx context.Context, o Options) error {
	o, err := o.withDefaults()
	if err != nil {
		return err
	}
	envoy, err := proc.Find(proc.ProgramEnvoy)
	if err != nil {
		return fmt.Errorf("the demo needs a real Envoy %s (`make tools` fetches one): %w", proc.EnvoyVersion, err)
	}
	d := &demo{options: o, screen: newScreen(o.Out)}
	d.screen.printf("Steelyard demo: %d simulated model servers, %d Envoys (%s), one load, twice\n", o.Endpoints,
		o.Envoys, envoy)
	return d.run(ctx)
}

// A demo is one run.
type demo struct {
	options Options
	screen  *screen

	fleet   *fleet
	envoys  *envoys
	control Handle
	rate    float64 // of the load, in requests per second
}

// run starts the parts in order of dependence, plays, and stops them in the
// opposite order. A part that ends on its own ends the demo.
func (d *demo) run(ctx context.Context) (err error) {
	d.fleet, err = startFleet(d.options.Endpoints, d.options)
	defer func() { err = errors.Join(err, d.fleet.close()) }()
	if err != nil {
		return err
	}
	d.rate = d.options.Load * d.fleet.capacity()
	if d.control, err = d.options.ControlPlane(ctx, d.fleet.config()); err != nil {
		return fmt.Errorf("starting Steelyard: %w", err)
	}

	// The control plane outlives the Envoys and, with them, the caller's context.
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	group, failed := errgroup.WithContext(background)
	group.Go(func() error { return d.control.Run(failed) })
	group.Go(func() error { return d.fleet.count(failed) })
	playing, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(failed, func() { end(errors.New("a part of the demo ended early")) })()

	err = d.play(playing)
	stop()
	return errors.Join(err, group.Wait())
}

// play starts the Envoys, runs the phases and shows the results.
func (d *demo) play(ctx context.Context) (err error) {
	d.envoys, err = startEnvoys(ctx, d.options.Envoys, d.control.XDSAddress(), d.fleet.addresses())
	defer func() { err = errors.Join(err, d.envoys.close()) }()
	if err != nil {
		return err
	}
	d.introduce()
	var phases []phase
	for _, p := range policies {
		result, err := d.phase(ctx, p, d.options.Duration)
		if err != nil {
			return err
		}
		phases = append(phases, result)
	}
	r := report{phases: phases, endpoints: d.fleet.endpoints()}
	d.screen.printf("\n%s\nDashboard: %s\n", r.text(), d.dashboard())
	if d.options.JSONFile != "" {
		if err := r.writeJSON(d.options.JSONFile); err != nil {
			return err
		}
	}
	if d.options.Keep {
		return d.keep(ctx)
	}
	return nil
}

func (d *demo) dashboard() string { return "http://" + d.control.AdminAddress() + "/" }

// introduce prints what there is and what will happen.
func (d *demo) introduce() {
	slow := 0
	for _, e := range d.fleet.endpoints() {
		if e.speed < 1 {
			slow++
		}
	}
	d.screen.printf(`
Dashboard: %s
Servers:   %d slots each, %v of work per request on average; %d of %d at %g of the speed
Load:      %.0f requests per second, %.0f %% of what all servers together can do
           an equal share of it is %.0f %% of what a slow server can do
Phases:    %s each, the same requests in both

`, d.dashboard(), slots, meanService, slow, len(d.fleet.servers), slowSpeed,
		d.rate, 100*d.options.Load, 100*d.fleet.equalSplit(d.rate), d.options.Duration)
}

// keepChunk is how long one plan of the load lasts that is kept up: it bounds the
// memory of a run.
const keepChunk = 10 * time.Minute

// keep continues the load under Steelyard until ctx ends.
func (d *demo) keep(ctx context.Context) error {
	d.screen.printf("\nThe load continues under Steelyard's weights until Ctrl-C.\n")
	for i, e := range d.envoys.all {
		d.screen.printf("Envoy %d:   http://%s/\n", i+1, e.Admin())
	}
	d.screen.printf("\n")
	d.screen.calm()
	for {
		d.options.Seed++
		if _, err := d.phase(ctx, steelyard, keepChunk); errors.Is(err, context.Canceled) && ctx.Err() != nil {
			return nil
		} else if err != nil {
			return err
		}
	}
}
