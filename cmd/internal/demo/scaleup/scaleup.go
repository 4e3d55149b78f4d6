package scaleup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"steelyard/e2e/rig/load"
	"steelyard/e2e/rig/modelsim"
)

const (
	atFirst     = 2 // replicas
	afterwards  = 5
	meanService = 400 * time.Millisecond
	overload    = 1.6 // of what the first replicas can do

	// startTimeout bounds the start of a proxy.
	startTimeout = 30 * time.Second
)

// rate is requests per second.
const rate = overload * atFirst * float64(time.Second) / float64(meanService)

// DefaultDuration is how long the load of each phase lasts.
const DefaultDuration = 20 * time.Second

// Options are the choices of a demo.
type Options struct {
	Duration time.Duration // of the load of each phase
	Out      io.Writer
	// Router runs `steelyard router` with the environment of getenv until ctx is done. Its log goes to log.
	Router func(ctx context.Context, getenv func(string) string, log io.Writer) error
}

// A proxy is what the load goes through.
type proxy interface {
	url() string
	set(ctx context.Context, replicas []string) error
	close() error
}

// Run plays the demo, and returns when everything that it started has stopped.
func Run(ctx context.Context, o Options) (err error) {
	dir, err := os.MkdirTemp("", "steelyard-demo-")
	if err != nil {
		return fmt.Errorf("making a folder for the Envoys: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	fmt.Fprintf(o.Out, `Steelyard demo: replicas that execute one request of %v (mean) at a time
Load:  %.0f requests per second, twice for %v: %.0f %% of what the first %d replicas can do
       half of the time later there are %d, which could do %.1f times as much as is sent

`, meanService, rate, o.Duration, 100*overload, atFirst, afterwards, afterwards/(overload*atFirst))
	var results []result
	for _, p := range []struct {
		name  string
		start func(context.Context) (proxy, error)
	}{
		{"round robin", func(ctx context.Context) (proxy, error) { return startRoundRobin(ctx, dir) }},
		{"router", func(ctx context.Context) (proxy, error) { return startRouter(ctx, o) }},
	} {
		r, err := phase(ctx, o, p.name, p.start)
		if err != nil {
			return err
		}
		results = append(results, r)
	}
	fmt.Fprint(o.Out, "\n", table(results))
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
func phase(ctx context.Context, o Options, name string, start func(context.Context) (proxy, error)) (
	r result, err error) {
	servers, err := startServers()
	defer func() {
		for _, s := range servers {
			err = errors.Join(err, s.Close())
		}
	}()
	if err != nil {
		return r, err
	}
	p, err := start(ctx)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	addresses := make([]string, len(servers))
	for i, s := range servers {
		addresses[i] = s.Address()
	}
	if err := p.set(ctx, addresses[:atFirst]); err != nil {
		return r, err
	}
	var meter load.Meter
	scaled := make(chan error, 1)
	watching, stop := context.WithCancel(ctx)
	go func() { scaled <- watch(watching, o, name, &meter, func() error { return p.set(ctx, addresses) }) }()
	got, err := load.Run(ctx, load.Plan{Targets: []string{p.url()}, Rate: rate, Duration: o.Duration, Seed: 1,
		Work: load.Work{Mean: meanService}, Drain: 30*time.Second + 2*o.Duration, Meter: &meter})
	stop()
	if err := errors.Join(err, <-scaled); err != nil {
		return r, err
	}
	return summarize(name, got, o.Duration/2, addresses[atFirst:]), nil
}

// watch shows the load now and then, and scales up after half of the time.
func watch(ctx context.Context, o Options, name string, meter *load.Meter, scaleUp func() error) error {
	began := time.Now()
	half, show := time.NewTimer(o.Duration/2), time.NewTicker(o.Duration/5)
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
			fmt.Fprintf(o.Out, "%-12s %3.0f s  scaled up from %d to %d replicas\n", name, time.Since(began).Seconds(),
				atFirst, afterwards)
		case <-show.C:
			s := meter.Snapshot()
			fmt.Fprintf(o.Out, "%-12s %3.0f s  %4d sent  %4d waiting or executed  %d failed\n", name,
				time.Since(began).Seconds(), s.Sent, s.Sent-s.Done, s.Errors)
		}
	}
}

func startServers() (all []*modelsim.Server, err error) {
	for range afterwards {
		s, err := modelsim.Start(modelsim.Options{Slots: 1})
		if err != nil {
			return all, err
		}
		all = append(all, s)
	}
	return all, nil
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

// rows are the lines of the comparison.
var rows = []struct {
	title string
	value func(result) string
}{
	{"before the scale-up, p50", func(r result) string { return seconds(r.before.P50) }},
	{"before the scale-up, p99", func(r result) string { return seconds(r.before.P99) }},
	{"after it, mean", func(r result) string { return seconds(r.after.Mean) }},
	{"after it, p50", func(r result) string { return seconds(r.after.P50) }},
	{"after it, p99", func(r result) string { return seconds(r.after.P99) }},
	{"last answer after", func(r result) string { return seconds(r.latest.Seconds()) }},
	{"answered by new replicas", func(r result) string { return fmt.Sprintf("%d of %d", r.byNew, r.all) }},
	{"failed", func(r result) string { return fmt.Sprint(r.failed) }},
}

func seconds(s float64) string { return fmt.Sprintf("%.2f s", s) }

// table compares the latency of requests.
func table(results []result) string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%-28s", "latency of requests")
	for _, r := range results {
		fmt.Fprintf(&b, " %14s", r.name)
	}
	for _, row := range rows {
		fmt.Fprintf(&b, "\n%-28s", row.title)
		for _, r := range results {
			fmt.Fprintf(&b, " %14s", row.value(r))
		}
	}
	b.WriteByte('\n')
	return b.String()
}
