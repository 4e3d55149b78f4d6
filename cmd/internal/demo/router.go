package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"steelyard/e2e/rig/load"
	"steelyard/e2e/rig/modelsim"
)

// The demo of the router.
const (
	replicasBefore = 2
	replicasAfter  = 5
	routerService  = 400 * time.Millisecond // mean of a request
	routerOverload = 1.6                    // of what the first replicas can do

	requestsPerSecond = routerOverload * replicasBefore * float64(time.Second) / float64(routerService)
)

// A proxy is what the load of the demo of the router goes through.
type proxy interface {
	url() string
	set(ctx context.Context, replicas []string) error
	close() error
}

// Scaling plays the demo of the router, with phases of length d.
func Scaling(ctx context.Context, out io.Writer, d time.Duration, s Steelyard) (err error) {
	dir, err := os.MkdirTemp("", "steelyard-demo-")
	if err != nil {
		return fmt.Errorf("making a folder for the Envoys: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	fmt.Fprintf(out, `Steelyard demo: replicas that execute one request of %v (mean) at a time
Load:  %.0f requests per second, twice for %v: %.0f %% of what the first %d replicas can do
       half of the time later there are %d, which could do %.1f times as much as is sent

`, routerService, requestsPerSecond, d, 100*routerOverload, replicasBefore, replicasAfter,
		replicasAfter/(routerOverload*replicasBefore))
	return compare(out, scalingTable, []scaling{
		{out, d, "round robin", func() (proxy, error) { return startFileRouted(ctx, dir) }},
		{out, d, "router", func() (proxy, error) { return startRouter(ctx, out, s.Router) }},
	}, func(p scaling) (scalingResult, error) { return p.play(ctx) })
}

// A scaling is the load through one proxy, while replicas are added.
type scaling struct {
	out      io.Writer
	duration time.Duration // of the load
	name     string
	start    func() (proxy, error)
}

// A scalingResult is the outcome of the load through one proxy.
type scalingResult struct {
	load.Result
	name          string
	before, after load.Summary // latency in seconds of the requests that arrived before and after the scale-up
	byNew         int          // requests that replicas of the scale-up answered
}

// play sends the load to replicas of its own.
func (s scaling) play(ctx context.Context) (r scalingResult, err error) {
	servers, err := modelsim.StartServers(replicasAfter, oneSlot)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, servers.Close()) }()
	p, err := s.start()
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	addresses := servers.Addresses()
	if err := p.set(ctx, addresses[:replicasBefore]); err != nil {
		return r, err
	}
	var meter load.Meter
	scaled := make(chan error, 1)
	watching, stop := context.WithCancel(ctx)
	go func() { scaled <- s.watch(watching, &meter, func() error { return p.set(ctx, addresses) }) }()
	got, err := load.Run(ctx, load.Plan{Targets: []string{p.url()}, Rate: requestsPerSecond, Duration: s.duration,
		Work: load.Work{Mean: routerService}, Seed: 1, Drain: 30*time.Second + 2*s.duration, Meter: &meter})
	stop()
	if err := errors.Join(err, <-scaled); err != nil {
		return r, err
	}
	return summarize(s.name, got, s.duration/2, addresses[replicasBefore:]), nil
}

// watch shows the load now and then, and scales up after half of the time.
func (s scaling) watch(ctx context.Context, meter *load.Meter, scaleUp func() error) error {
	began := time.Now()
	half, show := time.NewTimer(s.duration/2), time.NewTicker(s.duration/5)
	defer half.Stop()
	defer show.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-half.C:
			if err := scaleUp(); err != nil {
				return err
			}
			fmt.Fprintf(s.out, "%-12s %3.0f s  scaled up from %d to %d replicas\n", s.name, time.Since(began).Seconds(),
				replicasBefore, replicasAfter)
		case <-show.C:
			now := meter.Snapshot()
			fmt.Fprintf(s.out, "%-12s %3.0f s  %4d sent  %4d waiting or executed  %d failed\n", s.name,
				time.Since(began).Seconds(), now.Sent, now.Sent-now.Done, now.Errors)
		}
	}
}

func summarize(name string, got load.Result, half time.Duration, added []string) scalingResult {
	r := scalingResult{Result: got, name: name}
	var before, after []float64
	for _, s := range got.Samples {
		switch {
		case s.Failed():
		case s.At < half:
			before = append(before, s.Latency.Seconds())
		default:
			after = append(after, s.Latency.Seconds())
		}
	}
	for _, address := range added {
		r.byNew += got.Servers[address]
	}
	r.before, r.after = load.Summarize(before), load.Summarize(after)
	return r
}

var scalingTable = table[scalingResult]{first: 28, other: 14}.
	with("latency of requests", func(r scalingResult) string { return r.name }).
	with("before the scale-up, p50", func(r scalingResult) string { return inSeconds(r.before.P50) }).
	with("before the scale-up, p99", func(r scalingResult) string { return inSeconds(r.before.P99) }).
	with("after it, mean", func(r scalingResult) string { return inSeconds(r.after.Mean) }).
	with("after it, p50", func(r scalingResult) string { return inSeconds(r.after.P50) }).
	with("after it, p99", func(r scalingResult) string { return inSeconds(r.after.P99) }).
	with("last answer after", func(r scalingResult) string { return inSeconds(r.Elapsed.Seconds()) }).
	with("answered by new replicas", func(r scalingResult) string {
		return fmt.Sprintf("%d of %d", r.byNew, r.Requests)
	}).
	with("failed", func(r scalingResult) string { return fmt.Sprint(r.Errors) })
