package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"steelyard/controlplane"
	"steelyard/controlplane/config"
	"steelyard/e2e/latency"
	"steelyard/e2e/rig/load"
	"steelyard/e2e/rig/modelsim"
	"steelyard/e2e/rig/proc"
	"steelyard/e2e/rig/proc/proctest"
	envoybootstrap "steelyard/envoy-bootstrap"
	"steelyard/weighting"
	"steelyard/weighting/flight"
	"steelyard/xds/envoyspec"
)

const (
	latencyEnvoys    = 10
	latencyEndpoints = 20
	latencyLoad      = 0.8
	latencyPatience  = 30 * time.Second // for what must happen
)

// BenchmarkArrivalToAck measures the time from a request reaching an endpoint until the last of
// 10 real Envoys has acknowledged weights that know it: 20 endpoints of one slot, load
// 0.8, exponential services, with the access log on. It prints a histogram for each mean service.
//
//	make bench-latency
//
// Package steelyard/e2e/latency explains how requests are distinguished.
func BenchmarkArrivalToAck(b *testing.B) {
	for _, service := range []time.Duration{time.Second, 250 * time.Millisecond} {
		b.Run(fmt.Sprint("service=", service), func(b *testing.B) { benchmarkLatency(b, service) })
	}
}

func benchmarkLatency(b *testing.B, service time.Duration) {
	book := latency.NewBook(latencyEnvoys, 1<<16)
	servers := latencyServers(b, book)
	d := latencyDaemon(b, book, servers)
	plan := load.Plan{
		Targets: latencyFleet(b, d), Rate: latencyLoad * latencyEndpoints / service.Seconds(), Duration: time.Hour,
		Work: load.Work{Mean: service, Shape: load.Exponential}, Seed: 1,
	}
	waitFor(b, "all Envoys watch", func() bool { return len(d.streams.Watchers("llama")) == latencyEnvoys })
	run := background(b, func(ctx context.Context) { followAcks(ctx, d, book) })
	defer run()
	ctx, stop := context.WithCancel(b.Context())
	done := make(chan load.Result, 1)
	go func() {
		result, _ := load.Run(ctx, plan) // ends because it is stopped
		done <- result
	}()
	for range int(5*time.Second/service) + 20 { // until the pool is as full as it will be
		<-book.Samples()
	}
	var samples []latency.Sample
	pushes := pushesOf(d)
	began := time.Now()
	for b.Loop() {
		samples = append(samples, <-book.Samples())
	}
	b.ReportMetric(float64(pushesOf(d)-pushes)/time.Since(began).Seconds(), "pushes/s")
	stop()
	result := <-done
	checkCounts(b, book)
	report := latency.NewReport(samples)
	for name, q := range map[string]float64{"p50-ms": 0.5, "p90-ms": 0.9, "p99-ms": 0.99} {
		b.ReportMetric(float64(latency.Quantile(report.All, q))/float64(time.Millisecond), name)
	}
	if len(samples) >= 100 { // fewer are the benchmark's own probing
		// Not b.Log, which cuts what a benchmark says after some lines.
		fmt.Fprintf(os.Stderr, "\n%d Envoys, %d endpoints, mean service %v, load %.1f; the generator was late by "+
			"%.1f ms at p99\n%s\n",
			latencyEnvoys, latencyEndpoints, service, latencyLoad, 1000*result.Lateness.P99, report)
	}
}

// latencyServers are model servers that record each arrival in the book.
func latencyServers(b *testing.B, book *latency.Book) []*modelsim.Server {
	servers := make([]*modelsim.Server, latencyEndpoints)
	for i := range servers {
		var err error
		if servers[i], err = modelsim.Start(modelsim.Options{Slots: 1, Observer: arrivals{book}}); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { servers[i].Close() })
	}
	return servers
}

type arrivals struct{ book *latency.Book }

func (a arrivals) Begin(address string) { a.book.Arrived(address, time.Now()) }
func (a arrivals) End(string)           {}

// latencyDaemon runs a daemon whose loop is observed.
func latencyDaemon(b *testing.B, book *latency.Book, servers []*modelsim.Server) *Daemon {
	const listeners = "xds: {listen: 127.0.0.1:0}\nadmin: {listen: 127.0.0.1:0}\n"
	body := listeners + "clusters:\n- name: llama\n  engine: vllm\n  endpoints:\n    static:\n"
	for _, s := range servers {
		body += "    - {address: " + s.Address() + "}\n"
	}
	cfg, err := config.Parse("latency.yaml", []byte(body))
	if err != nil {
		b.Fatal(err)
	}
	empty := *cfg
	empty.Clusters = nil
	d, err := New(&empty, Options{Version: "latency", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	// Nothing runs yet: the manager is replaced by one with an observer at both ends of its loop.
	d.manager.Close()
	o := &observedLoop{signals: d.signals, observer: d.observer(), book: book}
	d.manager = controlplane.NewManager(d.publisher(), envoyspec.PushCost, o, o,
		d.outdated, d.monitor, d.options.Log)
	if err := d.Apply(cfg); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(background(b, func(ctx context.Context) {
		if err := d.Run(ctx); err != nil {
			b.Errorf("Run returned %v", err)
		}
	}))
	return d
}

// observedLoop is both ends of the loop: what it reads and what becomes of it. A step reads, and is reported
// when it is over, in one goroutine.
type observedLoop struct {
	*signals
	observer
	book   *latency.Book
	issued map[string]uint64 // as of the latest reading
}

func (o *observedLoop) Counts(cluster string, now time.Time, into []flight.Counts) controlplane.ProxyCounts {
	c := o.signals.Counts(cluster, now, into)
	o.issued = make(map[string]uint64, len(c.Endpoints))
	for _, e := range c.Endpoints {
		if e.Proxies.Issued.Known() {
			o.issued[e.Address] = uint64(e.Proxies.Issued.Value)
		}
	}
	return c
}

func (o *observedLoop) Stepped(cluster string, before, d weighting.Decision, p controlplane.Push, took time.Duration) {
	o.observer.Stepped(cluster, before, d, p, took)
	o.book.Decided(o.issued, time.Now(), p.Pushed, sequence(p.Version))
}

// sequence is the number at the end of a version; 0 of none.
func sequence(version string) uint64 {
	n, _ := strconv.ParseUint(version[strings.LastIndexByte(version, '.')+1:], 10, 64)
	return n
}

// latencyFleet starts Envoys as `steelyard bootstrap` configures them, in turns for each of the replicas, and returns
// their URLs.
func latencyFleet(b *testing.B, replicas ...*Daemon) []string {
	dir := proctest.Dir(b)
	urls := make([]string, latencyEnvoys)
	for i := range urls {
		name := fmt.Sprint("envoy-", i)
		bootstrap, err := envoybootstrap.Render(envoybootstrap.Options{
			Cluster: "llama", XDS: replicas[i%len(replicas)].XDSAddress(), NodeID: name,
			Listen: "127.0.0.1:0", Admin: "127.0.0.1:0",
		})
		if err != nil {
			b.Fatal(err)
		}
		e := proctest.Envoy(b, proc.EnvoyConfig{Bootstrap: bootstrap, Dir: dir, Name: name})
		listener, err := e.Listener(b.Context(), "ingress")
		if err != nil {
			b.Fatal(err)
		}
		urls[i] = "http://" + listener
	}
	return urls
}

// followAcks records in the book which versions the Envoys have acknowledged.
func followAcks(ctx context.Context, d *Daemon, book *latency.Book) {
	ticker := time.NewTicker(500 * time.Microsecond)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		for _, c := range d.streams.Clients() {
			for _, s := range c.Subscriptions {
				if s.Resource == "llama/failsafe" && s.VersionAcked != "" {
					book.Acked(c.NodeID, sequence(s.VersionAcked), s.LastAck.Time)
				}
			}
		}
	}
}

// pushesOf is how many assignments were pushed.
func pushesOf(d *Daemon) uint64 {
	c, _ := d.Cluster("llama")
	return c.Pushes
}

// checkCounts waits until the loop knows of as many requests as have reached the
// endpoints: otherwise the k-th one known is not the k-th that came.
func checkCounts(b *testing.B, book *latency.Book) {
	b.Helper()
	var wrong error
	for deadline := time.Now().Add(latencyPatience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		arrived, decided := book.Counts()
		wrong = nil
		for address, n := range arrived {
			if decided[address] != n {
				wrong = errors.Join(wrong,
					fmt.Errorf("%s: %d requests arrived, and %d are known", address, n, decided[address]))
			}
		}
		if wrong == nil {
			return
		}
	}
	b.Errorf("the times mean nothing: %v", wrong)
}

func waitFor(b *testing.B, what string, holds func() bool) {
	b.Helper()
	for deadline := time.Now().Add(latencyPatience); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.Fatalf("never: %s", what)
		}
	}
}

// background runs f until the returned function is called, which waits for it.
func background(b *testing.B, f func(ctx context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}
