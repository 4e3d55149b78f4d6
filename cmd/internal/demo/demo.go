package demo

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"golang.org/x/sync/errgroup"

	"steelyard/e2e/rig/load"
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
	files   folder
	envoys  *envoys
	behind  *proc.Envoy // without requests, and stopped by Trouble; nil without
	control Handle
	rate    float64 // of the load, in requests per second
}

// run starts the parts in order of dependence, plays, and stops them in the
// opposite order. A part that ends on its own ends the demo.
func (d *demo) run(ctx context.Context) (err error) {
	if d.fleet, err = startFleet(d.options.Endpoints); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.fleet.close()) }()
	d.files, err = newFolder()
	defer func() { err = errors.Join(err, d.files.remove()) }()
	if err != nil {
		return err
	}
	d.rate = d.options.Load * d.fleet.capacity()
	text := d.fleet.config(d.files.tokens())
	if err := d.files.write(d.files.config(), string(text)); err != nil {
		return err
	}
	return d.options.ControlPlane.during(ctx, text, d.play, d.fleet.counter.Run)
}

// play starts the Envoys, runs the phases and shows the results.
func (d *demo) play(ctx context.Context, control Handle) (err error) {
	d.control = control
	if d.envoys, err = d.startEnvoys(ctx); err != nil {
		return err
	}
	defer func() {
		if d.behind != nil { // before its folder
			err = errors.Join(err, d.behind.Kill())
		}
		err = errors.Join(err, d.envoys.close())
	}()
	d.introduce()
	var phases []phase
	for _, p := range d.options.policies() {
		result, err := d.phase(ctx, p, d.options.Duration)
		if err != nil {
			return err
		}
		phases = append(phases, result)
	}
	r := report{phases: phases, endpoints: d.fleet.endpoints()}
	d.screen.printf("\n%s", r.text())
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
Files:     %s
           %s
Servers:   %d slots each, %v of work per request on average; %d of %d at %g of the speed
Load:      %.0f requests per second, %.0f %% of what all servers together can do
           an equal share of it is %.0f %% of what a slow server can do
Phases:    %s each, the same requests in both

`, d.dashboard(), d.files.config(), d.files.tokens(), slots, meanService, slow, len(d.fleet.servers), slowSpeed,
		d.rate, 100*d.options.Load, 100*d.fleet.equalSplit(d.rate), d.options.Duration)
}

// trouble makes a server stall, and an Envoy that no request goes through hang. The load becomes the same share of what
// the other servers can do: with a pool that is too small, nobody would see what these two cost.
func (d *demo) trouble(ctx context.Context) (err error) {
	if d.behind, err = d.envoys.start(ctx, len(d.envoys.all)); err != nil {
		return err
	}
	if err := awaitWeights(ctx, d.behind, len(d.fleet.servers)); err != nil {
		return err
	}
	d.fleet.servers[0].SetFrozen(true)
	if err := d.behind.Pause(); err != nil {
		return err
	}
	d.rate *= 1 - d.fleet.capacityOf(d.fleet.servers[0])/d.fleet.capacity()
	d.screen.printf("\nFrom now on a server and an Envoy are in trouble. Which ones, and why? The load is %.0f\n"+
		"requests per second, %.0f %% of what the other servers can do.\n", d.rate, 100*d.options.Load)
	return nil
}

// commands are what to try in another terminal.
func (d *demo) commands() string {
	return fmt.Sprintf(`
Try in another terminal, in this folder:

  export STEELYARD_ADMIN=http://%[1]s STEELYARD_TOKEN_FILE=%[2]s
  bin/steelyard status                      # what is in trouble and why, which Envoy is behind
  bin/steelyard top %[3]s                    # what part of the traffic each endpoint really got
  bin/steelyard explain %[3]s %[4]s
  bin/steelyard events
  sed 's/capacity: %[5]d/capacity: %[6]d/' %[7]s | bin/steelyard diff -   # twice the slots, everywhere
  sed 's/"%[4]s"/&, capacity: %[6]d/' %[7]s | bin/steelyard diff -   # of one endpoint
  bin/steelyard drain %[3]s %[4]s --for 1m --reason "trying it"

`, d.control.AdminAddress(), d.files.tokens(), clusterName, d.fleet.servers[len(d.fleet.servers)-1].Address(),
		slots, 2*slots, d.files.config())
}

// keepChunk is how long one plan of the load lasts that is kept up: it bounds the
// memory of a run. Its requests that are out at the end are waited for as long.
const keepChunk = 10 * time.Minute

// keep continues the load under Steelyard until ctx ends.
func (d *demo) keep(ctx context.Context) error {
	urls, err := d.envoys.urls(ctx, steelyard.listener, completionsPath)
	if err != nil {
		return err
	}
	d.screen.printf("\nThe load continues under Steelyard's weights until Ctrl-C.\n"+
		"For a minute, the served shares still include requests from %s.\n"+
		"Dashboard: %s\n",
		d.options.policies()[0].title, d.dashboard())
	for i, e := range d.envoys.all {
		d.screen.printf("Envoy %d:   http://%s/\n", i+1, e.Admin())
	}
	if d.options.Trouble {
		if err := d.trouble(ctx); err != nil {
			return err
		}
	}
	d.screen.printf("%s", d.commands())
	d.screen.calm()
	w := d.watch(steelyard, math.MaxInt64)
	defer w.run(ctx)()
	plan := d.plan(urls, keepChunk, w.meter)
	plan.Drain = keepChunk
	if err := keepSending(ctx, plan); ctx.Err() == nil || !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// keepSending sends the requests of a plan, each time with another seed, until ctx ends. There is no gap between two
// plans: the next one does not wait for the last answers, which a server that stalls may never give.
func keepSending(ctx context.Context, plan load.Plan) error {
	group, ctx := errgroup.WithContext(ctx)
	next := time.NewTicker(plan.Duration)
	defer next.Stop()
	for {
		plan.Seed++
		once := plan
		group.Go(func() error {
			_, err := load.Run(ctx, once)
			return err
		})
		select {
		case <-ctx.Done():
			return group.Wait()
		case <-next.C:
		}
	}
}
