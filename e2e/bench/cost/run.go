package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"steelyard/e2e/rig/modelsim"
)

// interval is how often every endpoint is scraped.
const interval = 250 * time.Millisecond

// A Setting is one size to measure.
type Setting struct {
	Name      string `json:"setting"`
	Endpoints int    `json:"endpoints"`
	Streams   int    `json:"streams"`
	// Changes: all loads stay the same, except for one change a second that causes a push. Without,
	// every server has traffic of its own.
	Changes bool `json:"-"`
	// Named: the servers are asked for the series that are read, and print no others.
	Named bool `json:"-"`
}

func settings() []Setting {
	return []Setting{
		{Name: "endpoints-20", Endpoints: 20, Streams: 10},
		{Name: "endpoints-100", Endpoints: 100, Streams: 10},
		{Name: "endpoints-1000", Endpoints: 1000, Streams: 10},
		{Name: "named-100", Endpoints: 100, Streams: 10, Named: true},
		{Name: "named-1000", Endpoints: 1000, Streams: 10, Named: true},
		{Name: "streams-10", Endpoints: 1000, Streams: 10, Changes: true},
		{Name: "streams-100", Endpoints: 1000, Streams: 100, Changes: true},
		{Name: "streams-1000", Endpoints: 1000, Streams: 1000, Changes: true},
	}
}

// A Row is what one run of a setting has measured.
type Row struct {
	Setting
	Binary  string  `json:"binary,omitempty"` // "other" for that of --against
	Seconds float64 `json:"seconds"`          // measured

	Cores      float64 `json:"steelyard_cores"` // CPU seconds per second
	BenchCores float64 `json:"bench_cores"`     // of servers, Envoys and bench together

	RSS      float64 `json:"rss_bytes"`            // largest in the window
	Growth   float64 `json:"rss_bytes_per_minute"` // least squares over the window
	HeapGrew float64 `json:"heap_bytes_grown"`     // in use, from the begin of the window to its end

	Scrapes float64 `json:"scrapes_per_second"`
	Failed  float64 `json:"failed_scrapes"`
	Steps   float64 `json:"steps_per_second"`
	Pushes  float64 `json:"pushes_per_second"`
	ACKs    float64 `json:"acks_per_second"` // of all streams
	GCs     float64 `json:"gcs_per_second"`

	Acks     Acks      `json:"acks"`
	Lateness Quantiles `json:"bench_lateness_seconds"` // of the bench's own timers
}

// Acks are how soon a change of load was acknowledged, in seconds from the change.
type Acks struct {
	Changes int       `json:"changes"`
	Missing int       `json:"missing"` // of changes times streams, acknowledged never
	All     Quantiles `json:"all"`     // each change on each stream
	Last    Quantiles `json:"last"`    // each change on the last stream that acknowledged it
	Scraped Quantiles `json:"scraped"` // each change, until a page showed it: the wait for the scrape
}

// A run is how to measure.
type run struct {
	binary string
	env    []string      // of the binary
	warmUp time.Duration // not measured: connections, first pages, what the law learns
	window time.Duration // measured
}

// measure runs one setting from start to end.
func (r run) measure(ctx context.Context, s Setting) (row Row, err error) {
	row.Setting = s
	dir, err := os.MkdirTemp("", "steelyard-cost-")
	if err != nil {
		return row, err
	}
	defer os.RemoveAll(dir)
	recording := modelsim.Recording(modelsim.VLLM)
	if s.Named {
		recording = named(recording)
	}
	servers, err := startFleet(s.Endpoints, !s.Changes, recording)
	if err != nil {
		return row, err
	}
	defer servers.close()
	starting, cancel := context.WithTimeout(ctx, 3*time.Minute) // a full machine needs it
	defer cancel()
	y, err := start(starting, r.binary, dir, s, servers, r.env)
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, y.Stop()) }()
	if err := y.ready(starting); err != nil {
		return row, err
	}
	proxies, err := connect(starting, y.xds, s.Streams, newWatch(s.Streams))
	if err != nil {
		return row, fmt.Errorf("%w\n%s", err, y.Tail())
	}
	defer proxies.close()
	if err := wait(ctx, r.warmUp); err != nil {
		return row, err
	}
	if err := r.observe(ctx, y, servers, proxies, &row); err != nil {
		return row, fmt.Errorf("%w\n%s", err, y.Tail())
	}
	return row, nil
}

// observe measures the window, and then lets the last change arrive.
func (r run) observe(ctx context.Context, y *steelyard, servers *fleet, proxies *envoys, row *Row) error {
	before, err := y.counters(ctx)
	if err != nil {
		return err
	}
	samples, err := newSampler(y.Pid())
	if err != nil {
		return err
	}
	window, cancel := context.WithTimeout(ctx, r.window)
	defer cancel()
	var work sync.WaitGroup
	if row.Changes {
		work.Go(func() { changeLoads(window, servers.servers, proxies.watch) })
	}
	err = samples.follow(window)
	work.Wait()
	if err := errors.Join(err, samples.end(row), ctx.Err()); err != nil {
		return err
	}
	after, err := y.counters(ctx)
	if err != nil {
		return err
	}
	row.count(before, after)
	settle(ctx, proxies.watch)
	row.Acks = proxies.watch.acks()
	return proxies.broken()
}

// count takes over what the process counted in the window.
func (row *Row) count(before, after counters) {
	perSecond := func(n float64) float64 { return n / row.Seconds }
	row.Scrapes, row.Failed = perSecond(after.scrapes-before.scrapes), after.failed-before.failed
	row.Steps, row.Pushes = perSecond(after.steps-before.steps), perSecond(after.pushes-before.pushes)
	row.ACKs, row.GCs = perSecond(after.acks-before.acks), perSecond(after.gcs-before.gcs)
	row.HeapGrew = after.heap - before.heap
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
