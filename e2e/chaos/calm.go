package chaos

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"steelyard/internal/api"
)

// calmsDown bounds the time that Steelyard needs after the last fault to see that it is over. It is above the 15 s
// after which it gives up an Envoy that vanished.
const calmsDown = 20 * time.Second

// Bounds of what Steelyard may use more after the faults than before.
const (
	moreResident    = 16 << 20 // bytes
	moreGoroutines  = 5
	moreDescriptors = 5
)

// Vitals are the resources that a process uses.
type Vitals struct {
	Resident    float64 // bytes of memory
	Goroutines  float64
	Descriptors float64 // open files and sockets
}

// within reports whether v is as before, except for differences between two processes and two moments: the timing of
// the garbage collector, idle connections.
func (v Vitals) within(before Vitals) bool {
	return v.Resident <= before.Resident+moreResident &&
		v.Goroutines <= before.Goroutines+moreGoroutines &&
		v.Descriptors <= before.Descriptors+moreDescriptors
}

func (v Vitals) String() string {
	return fmt.Sprintf("%.1f MiB resident, %.0f goroutines, %.0f descriptors",
		v.Resident/(1<<20), v.Goroutines, v.Descriptors)
}

// vitals reads Steelyard's /metrics.
func (a caller) vitals(ctx context.Context) (Vitals, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	response, err := a.ask(ctx, "/metrics")
	if err != nil {
		return Vitals{}, err
	}
	defer response.Body.Close()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		return Vitals{}, err
	}
	gauge := func(name string) float64 {
		for _, m := range families[name].GetMetric() {
			return m.GetGauge().GetValue()
		}
		err = errors.Join(err, fmt.Errorf("/metrics has no %s", name))
		return 0
	}
	v := Vitals{
		Resident:   gauge("process_resident_memory_bytes"),
		Goroutines: gauge("go_goroutines"), Descriptors: gauge("process_open_fds"),
	}
	return v, err
}

// healthy wants the admin API to show no problem of Steelyard or of a part, and the current configuration.
func (f *fleet) healthy(ctx context.Context) error {
	var status api.Status
	if err := f.api.get(ctx, "/api/v1/status", &status); err != nil {
		return err
	}
	c, err := f.api.cluster(ctx)
	if err != nil {
		return err
	}
	errs := []error{problems("steelyard", status.Problems), problems("cluster", c.Problems), f.envoysHealthy(ctx)}
	if !status.LastReload.OK {
		errs = append(errs, fmt.Errorf("the last reload failed: %s", status.LastReload.Error))
	}
	if len(c.Endpoints) != servers {
		errs = append(errs, fmt.Errorf("%d endpoints, want %d", len(c.Endpoints), servers))
	}
	for _, e := range c.Endpoints {
		name, got, want := f.serverAt(e.Address), e.Slots.Or(0), float64(f.config.capacity)
		errs = append(errs, problems(name, e.Problems))
		if e.Overloaded {
			errs = append(errs, fmt.Errorf("%s is flagged: %s", name, e.OverloadReason))
		}
		if got != want {
			errs = append(errs, fmt.Errorf("%s has %v slots, the configuration says %v", name, got, want))
		}
	}
	return errors.Join(errs...)
}

// envoysHealthy wants every Envoy to be connected, in sync and reporting.
func (f *fleet) envoysHealthy(ctx context.Context) error {
	var answer struct{ Clients []api.Client }
	if err := f.api.get(ctx, "/api/v1/clients", &answer); err != nil {
		return err
	}
	var errs []error
	if len(answer.Clients) != envoys {
		errs = append(errs, fmt.Errorf("%d Envoys are connected, want %d", len(answer.Clients), envoys))
	}
	for _, c := range answer.Clients {
		errs = append(errs, problems(c.NodeID, c.Problems))
		if c.Signals.State != api.SignalOK {
			errs = append(errs, fmt.Errorf("%s: its signals are %s", c.NodeID, c.Signals.State))
		}
		for _, s := range c.Subscriptions {
			if !s.InSync {
				errs = append(errs, fmt.Errorf("%s: %s is not in sync", c.NodeID, s.Resource))
			}
		}
	}
	return errors.Join(errs...)
}

func problems(of string, all []api.Problem) error {
	var errs []error
	for _, p := range all {
		errs = append(errs, fmt.Errorf("%s: %s", of, p.Message))
	}
	return errors.Join(errs...)
}

// idle wants every endpoint to have 0 requests in flight, from a known source, and none to wait.
func (f *fleet) idle(ctx context.Context) error {
	c, err := f.api.cluster(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range c.Endpoints {
		for _, field := range []string{"in_flight", "running", "queue"} {
			if in := e.Input(field); in.Value.Or(-1) != 0 {
				errs = append(errs, fmt.Errorf("%s: %s is %v (%s, source of in_flight %q), want 0",
					f.serverAt(e.Address), field, in.Value.Or(-1), in.State, e.InFlightSource))
			}
		}
	}
	if q := c.Queue; q != nil {
		if waiting := q.Classes[0].Waiting; waiting > 0 || q.InFlight.Or(-1) != 0 || q.Envoys != envoys {
			errs = append(errs, fmt.Errorf("queue: %d wait and %v are in flight, of %d Envoys; want 0, 0 and %d",
				waiting, q.InFlight.Or(-1), q.Envoys, envoys))
		}
	}
	if (c.Queue != nil) != f.queue {
		errs = append(errs, fmt.Errorf("the cluster has a queue: %t, want %t", c.Queue != nil, f.queue))
	}
	return errors.Join(errs...)
}

// calm sends requests, none of which may fail, until the fleet is healthy; then it waits until none is in flight.
func (f *fleet) calm(ctx context.Context, name string) error {
	const slice = 2 * time.Second
	unhealthy := errors.New("not checked yet")
	for round, end := 0, time.Now().Add(patience); unhealthy != nil && time.Now().Before(end); round++ {
		err := f.send(ctx, fmt.Sprintf("%s-%d", name, round), slice, func(ctx context.Context) error {
			if err := rest(ctx, slice/2); err != nil {
				return err
			}
			unhealthy = wait(ctx, slice/2, f.healthy)
			return nil
		})
		if err != nil {
			return err
		}
	}
	if unhealthy != nil {
		f.complain("%s: the fleet is not healthy: %v", name, unhealthy)
	}
	if err := wait(ctx, calmsDown, f.idle); err != nil {
		f.complain("%s: Steelyard shows requests in flight, and there are none: %v", name, err)
	}
	return ctx.Err()
}

// compare waits until Steelyard uses no more than before, and complains if it goes on using more. It takes Steelyard a
// while to notice that connections are dead.
func (f *fleet) compare(ctx context.Context, before Vitals) (Vitals, error) {
	var after Vitals
	err := wait(ctx, calmsDown, func(ctx context.Context) (err error) {
		if after, err = f.api.vitals(ctx); err == nil && !after.within(before) {
			err = fmt.Errorf("%v; before: %v", after, before)
		}
		return err
	})
	if err != nil {
		f.complain("Steelyard uses more than before the faults: %v", err)
	}
	return after, ctx.Err()
}
