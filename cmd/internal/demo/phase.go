package demo

import (
	"context"
	"fmt"
	"time"

	"steelyard/e2e/rig/load"
	"steelyard/e2e/rig/modelsim"
)

// A policy is one way for the Envoys to choose a server.
type policy struct {
	name     string // in the JSON file
	title    string
	listener string // whose route has the policy
}

var (
	leastRequest = policy{"least_request", "least request", plainListener}
	roundRobin   = policy{"round_robin", "round robin", plainListener}
	steelyard    = policy{"steelyard", "Steelyard", weightedListener}
)

// policies are those that are compared.
func (o Options) policies() []policy {
	if o.RoundRobin {
		return []policy{roundRobin, steelyard}
	}
	return []policy{leastRequest, steelyard}
}

// A phase is the outcome of the load under one policy.
type phase struct {
	policy policy
	result load.Result
	served []uint64  // requests executed, by server
	queues []samples // of their depths, by server
}

// samples are of a number, at equal distances while the load lasted.
type samples struct {
	count    int
	sum, max float64
}

func (s *samples) add(v float64) {
	s.count++
	s.sum, s.max = s.sum+v, max(s.max, v)
}

func (s samples) mean() float64 { return s.sum / float64(max(1, s.count)) }

// How often the queues are sampled, and the picture is drawn.
const (
	samplePeriod = 100 * time.Millisecond
	drawPeriod   = time.Second
)

// phase runs the load under a policy. It ends when all servers are idle.
func (d *demo) phase(ctx context.Context, p policy, duration time.Duration) (phase, error) {
	urls, err := d.envoys.urls(ctx, p.listener, completionsPath)
	if err != nil {
		return phase{}, err
	}
	w := d.watch(p, duration)
	before := d.fleet.served()
	stop := w.run(ctx)
	plan := d.plan(urls, duration, w.meter)
	plan.Drain = 30*time.Second + 2*duration // overloaded servers need longer than the load lasted
	result, err := load.Run(ctx, plan)
	stop()
	if err != nil {
		return phase{}, err
	}
	out := phase{policy: p, result: result, queues: w.queues, served: d.fleet.served()}
	for i := range out.served {
		out.served[i] -= before[i]
	}
	d.screen.settle(fmt.Sprintf("%-13s %d requests, all queues empty again after %.1f s\n", p.title, result.Requests,
		result.Elapsed.Seconds()))
	return out, nil
}

// plan is the load for some time.
func (d *demo) plan(urls []string, duration time.Duration, meter *load.Meter) load.Plan {
	return load.Plan{Targets: urls, Rate: d.rate, Duration: duration, Seed: d.options.Seed, Meter: meter,
		Work: load.Work{Mean: meanService}}
}

// A watch samples a phase and draws it while it goes on.
type watch struct {
	demo     *demo
	policy   policy
	duration time.Duration
	start    time.Time
	meter    *load.Meter
	queues   []samples
	weights  map[string]float64 // shares of the traffic that an Envoy gives its endpoints, 0..1, by address
}

func (d *demo) watch(p policy, duration time.Duration) *watch {
	return &watch{
		demo: d, policy: p, duration: duration, start: time.Now(),
		meter: new(load.Meter), queues: make([]samples, len(d.fleet.servers)),
	}
}

// run watches until the function that it returns is called, which waits for it.
func (w *watch) run(ctx context.Context) (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		sample, draw := time.NewTicker(samplePeriod), time.NewTicker(drawPeriod)
		defer sample.Stop()
		defer draw.Stop()
		for {
			select {
			case <-end:
				return
			case <-sample.C:
				w.sample()
			case <-draw.C:
				w.weigh(ctx)
				w.demo.screen.show(w.frame())
			}
		}
	}()
	return func() {
		close(end)
		<-ended
	}
}

// over reports whether the last request has been sent.
func (w *watch) over() bool { return time.Since(w.start) > w.duration }

// weigh reads the current weights. After a failure it keeps the previous ones: the
// picture is not worth an error.
func (w *watch) weigh(ctx context.Context) {
	if w.policy != steelyard || w.over() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, drawPeriod/2)
	defer cancel()
	weights, err := w.demo.envoys.weights(ctx)
	if err == nil {
		w.weights = weights
	}
}

// sample reads the queues while requests arrive; how they drain after that is not an effect
// of the load.
func (w *watch) sample() {
	if w.over() {
		return
	}
	for i, s := range w.demo.fleet.servers {
		w.queues[i].add(float64(s.Queue()))
	}
}

// frame is the phase at this moment.
func (w *watch) frame() frame {
	f := frame{title: w.policy.title, elapsed: time.Since(w.start), duration: w.duration, load: w.meter.Snapshot()}
	for _, s := range w.demo.fleet.servers {
		f.servers = append(f.servers, gauge{endpoint: endpointOf(s), queue: s.Queue(), running: s.Running(),
			weight: w.weights[s.Address()]})
	}
	return f
}

// An endpoint is a server in the tables.
type endpoint struct {
	address string
	engine  modelsim.Engine
	speed   float64
	slots   int
}

func endpointOf(s *modelsim.Server) endpoint {
	o := s.Options()
	return endpoint{address: s.Address(), engine: o.Engine, speed: o.Speed, slots: o.Slots}
}
