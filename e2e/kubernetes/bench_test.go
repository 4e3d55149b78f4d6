package kubernetes

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"steelyard/e2e/rig/proc"
	"steelyard/e2e/rig/xdstest"
)

// BenchmarkChangeToAck measures the time from a change of an EndpointSlice, before it is sent to the API server, until
// the last of 10 Envoys has acknowledged the assignment that has it. There are 100 endpoints.
//
//	make bench-kubernetes
func BenchmarkChangeToAck(b *testing.B) {
	const envoys, patience = 10, 30 * time.Second
	var changing = []byte("10.9.9.9")
	r := newRoom(b, client(b, apiServer(b)))
	r.account()
	r.grant(r.name, readSlices, readPods)
	most := entries(0, 100)
	r.slice("llama", "llama", httpPort, most...)
	p := r.serve(fmt.Sprintf("endpoints: {kubernetes: {service: llama, namespace: %s}}\n  warm_up: 0s\n"+
		"  scrape: {disabled: true}", r.name))
	type ack struct {
		envoy int
		has   bool
		at    time.Time
	}
	acks := make(chan ack, 1000)
	for i := range envoys {
		c, err := xdstest.Dial(xdstest.Config{
			Address: p.xds, NodeID: fmt.Sprintf("envoy-%d", i), Clusters: []string{"llama"}, Extensions: 400,
			Accepted: func(_, _ string, message []byte) {
				acks <- ack{i, bytes.Contains(message, changing), time.Now()}
			},
		})
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
	}
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		want := i%2 == 0
		set := most
		if want {
			set = slices.Concat(most, []entry{{address: string(changing)}})
		}
		began := time.Now()
		r.slice("llama", "llama", httpPort, set...)
		var last time.Time
		have := make(map[int]bool)
		for deadline := time.After(patience); len(have) < envoys; {
			select {
			case a := <-acks:
				if a.has == want && !have[a.envoy] { // later ones are heartbeats
					have[a.envoy], last = true, a.at
				}
			case <-deadline:
				b.Fatalf("%d of %d Envoys have acknowledged the change", len(have), envoys)
			}
		}
		took = append(took, last.Sub(began))
	}
	slices.Sort(took)
	for name, q := range map[string]float64{"p50-ms": 0.5, "p90-ms": 0.9, "p99-ms": 0.99, "max-ms": 1} {
		b.ReportMetric(float64(took[int(q*float64(len(took)-1))])/float64(time.Millisecond), name)
	}
}

// BenchmarkFiveThousandEndpoints states the memory of `steelyard serve` with one cluster of an InferencePool of 5,000
// Pods: not scraped, and scraped as often as two cores can bear it.
func BenchmarkFiveThousandEndpoints(b *testing.B) {
	const count = 5000
	s := apiServer(b)
	installPools(b, s)
	r := newRoom(b, client(b, s))
	r.account()
	r.grant(r.name, readPools, readPods)
	port := metricsPages(b, count)
	llama := map[string]string{"app": "llama"}
	var writing errgroup.Group
	writing.SetLimit(16)
	for i := range count {
		writing.Go(func() error {
			r.pod(pod{name: fmt.Sprintf("llama-%d", i), ips: []string{hostOf(i)}, labels: llama,
				annotations: map[string]string{"steelyard.dev/capacity": "64"}})
			return nil
		})
	}
	_ = writing.Wait()
	r.pool(s, "llama", llama, int64(port))
	endpoints := fmt.Sprintf("endpoints: {inferencePool: {name: llama, namespace: %s}}\n", r.name)
	for name, scrape := range map[string]string{
		"scrape=none": "  warm_up: 0s\n  scrape: {disabled: true}",
		"scrape=10s": "  scrape: {interval: 10s, timeout: 5s}\n" +
			"  weighting: {fresh: 15s, hold: 20s, decay: 40s}",
	} {
		b.Run(name, func(b *testing.B) { benchmarkMemory(b, r, endpoints+scrape, count) })
	}
}

// benchmarkMemory runs a cluster for a while. The admin API is asked only at the end, because its answers for thousands
// of endpoints take memory too.
func benchmarkMemory(b *testing.B, r room, cluster string, count int) {
	const limit = 300 // MiB
	r.t = b
	for b.Loop() {
		p := r.serve(cluster)
		c, err := xdstest.Dial(xdstest.Config{Address: p.xds, NodeID: "envoy", Clusters: []string{"llama"}})
		if err != nil {
			b.Fatal(err)
		}
		var most float64
		for end := time.Now().Add(45 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			most = max(most, resident(b, p.control))
		}
		c.Close()
		v, err := p.view()
		if err != nil || v.Counts.Total != count {
			b.Fatalf("%d of %d endpoints are there: %v", v.Counts.Total, count, err)
		}
		b.ReportMetric(most, "MiB")
		b.ReportMetric(float64(v.Counts.Stale), "stale")
		if most > limit {
			b.Errorf("%.0f MiB, want at most %d", most, limit)
		}
	}
}

// hostOf returns the loopback address of a Pod.
func hostOf(i int) string { return fmt.Sprintf("127.1.%d.%d", i/250, 1+i%250) }

// metricsPages serves a recorded metrics page on one port of each Pod's address, and returns the port.
func metricsPages(b *testing.B, count int) int {
	page, err := os.ReadFile("../rig/modelsim/recordings/vllm-0.32.0-loaded.prom")
	if err != nil {
		b.Fatal(err)
	}
	free, err := proc.FreeAddress()
	if err != nil {
		b.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(free)
	server := &http.Server{ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain; version=0.0.4")
			_, _ = w.Write(page)
		})}
	for i := range count {
		l, err := net.Listen("tcp", net.JoinHostPort(hostOf(i), port))
		if err != nil {
			b.Fatal(err)
		}
		inBackground(b, func(ctx context.Context) {
			defer context.AfterFunc(ctx, func() { server.Close() })()
			_ = server.Serve(l)
		})
	}
	number, _ := strconv.Atoi(port)
	return number
}

// resident returns the memory of a process, in MiB.
func resident(b *testing.B, p *proc.Process) float64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Pid()))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	fields := strings.Fields(rest)
	kib, err := strconv.Atoi(cmp.Or(strings.Join(fields[:min(1, len(fields))], ""), "none"))
	if err != nil {
		b.Fatal(err)
	}
	return float64(kib) / 1024
}
