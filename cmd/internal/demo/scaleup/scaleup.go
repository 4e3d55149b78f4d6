package scaleup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"steelyard/cmd/internal/demo"
	"steelyard/e2e/rig/load"
	"steelyard/e2e/rig/modelsim"
)

const (
	atFirst     = 2 // replicas
	afterwards  = 5
	meanService = 400 * time.Millisecond
	overload    = 1.6 // of what the first replicas can do
)

// rate is requests per second.
const rate = overload * atFirst * float64(time.Second) / float64(meanService)

// DefaultDuration is how long the load of each phase lasts.
const DefaultDuration = 20 * time.Second

// A Router runs `steelyard router` with the environment of getenv until ctx is done. Its log goes to log.
type Router func(ctx context.Context, getenv func(string) string, log io.Writer) error

// A stage is what both phases share.
type stage struct {
	out      io.Writer
	duration time.Duration // of the load of each phase
}

// A proxy is what the load goes through.
type proxy interface {
	url() string
	set(ctx context.Context, replicas []string) error
	close() error
}

// Run plays the demo, and returns when everything that it started has stopped.
func Run(ctx context.Context, out io.Writer, d time.Duration, run Router) (err error) {
	dir, err := os.MkdirTemp("", "steelyard-demo-")
	if err != nil {
		return fmt.Errorf("making a folder for the Envoys: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	fmt.Fprintf(out, `Steelyard demo: replicas that execute one request of %v (mean) at a time
Load:  %.0f requests per second, twice for %v: %.0f %% of what the first %d replicas can do
       half of the time later there are %d, which could do %.1f times as much as is sent

`, meanService, rate, d, 100*overload, atFirst, afterwards, afterwards/(overload*atFirst))
	s := stage{out, d}
	var results []result
	for _, p := range []struct {
		name  string
		start func(context.Context) (proxy, error)
	}{
		{"round robin", func(ctx context.Context) (proxy, error) { return startRoundRobin(ctx, dir) }},
		{"router", func(ctx context.Context) (proxy, error) { return startRouter(ctx, out, run) }},
	} {
		r, err := s.phase(ctx, p.name, p.start)
		if err != nil {
			return err
		}
		results = append(results, r)
	}
	fmt.Fprint(out, "\n", comparison.Text(results))
	return nil
}

// A result is the outcome of the load through one proxy.
type result struct {
	name          string
	before, after load.Summary // latency in seconds of the requests that arrived before and after the scale-up
	byNew         int          // requests that replicas of the scale-up answered
	failed, all   int
	latest        time.Duration // when the last answer came
}

// phase plays the load through a proxy, with replicas of its own.
func (s stage) phase(ctx context.Context, name string, start func(context.Context) (proxy, error)) (
	r result, err error) {
	servers, err := modelsim.StartServers(afterwards, func(int) modelsim.Options { return modelsim.Options{Slots: 1} })
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, servers.Close()) }()
	p, err := start(ctx)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	addresses := servers.Addresses()
	if err := p.set(ctx, addresses[:atFirst]); err != nil {
		return r, err
	}
	var meter load.Meter
	scaled := make(chan error, 1)
	watching, stop := context.WithCancel(ctx)
	go func() { scaled <- s.watch(watching, name, &meter, func() error { return p.set(ctx, addresses) }) }()
	got, err := load.Run(ctx, load.Plan{Targets: []string{p.url()}, Rate: rate, Duration: s.duration, Seed: 1,
		Work: load.Work{Mean: meanService}, Drain: 30*time.Second + 2*s.duration, Meter: &meter})
	stop()
	if err := errors.Join(err, <-scaled); err != nil {
		return r, err
	}
	return summarize(name, got, s.duration/2, addresses[atFirst:]), nil
}

// watch shows the load now and then, and scales up after half of the time.
func (s stage) watch(ctx context.Context, name string, meter *load.Meter, scaleUp func() error) error {
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
			fmt.Fprintf(s.out, "%-12s %3.0f s  scaled up from %d to %d replicas\n", name, time.Since(began).Seconds(),
				atFirst, afterwards)
		case <-show.C:
			now := meter.Snapshot()
			fmt.Fprintf(s.out, "%-12s %3.0f s  %4d sent  %4d waiting or executed  %d failed\n", name,
				time.Since(began).Seconds(), now.Sent, now.Sent-now.Done, now.Errors)
		}
	}
}

func summarize(name string, got load.Result, half time.Duration, added []string) result {
	r := result{name: name, failed: got.Errors, all: got.Requests, latest: got.Elapsed}
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

// comparison is the table of the latency of requests.
var comparison = demo.Table[result]{First: 28, Other: 14}.
	With("latency of requests", func(r result) string { return r.name }).
	With("before the scale-up, p50", func(r result) string { return demo.Seconds(r.before.P50) }).
	With("before the scale-up, p99", func(r result) string { return demo.Seconds(r.before.P99) }).
	With("after it, mean", func(r result) string { return demo.Seconds(r.after.Mean) }).
	With("after it, p50", func(r result) string { return demo.Seconds(r.after.P50) }).
	With("after it, p99", func(r result) string { return demo.Seconds(r.after.P99) }).
	With("last answer after", func(r result) string { return demo.Seconds(r.latest.Seconds()) }).
	With("answered by new replicas", func(r result) string { return fmt.Sprintf("%d of %d", r.byNew, r.all) }).
	With("failed", func(r result) string { return fmt.Sprint(r.failed) })
