package xds_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"steelyard/e2e/rig/grpctest"
	"steelyard/e2e/rig/xdstest"
	"steelyard/xds"
)

// BenchmarkPublish measures the time from a push of 1000 endpoints until the last of 100 streams has acknowledged it,
// over loopback, including the work of the clients.
//
//	go test ./xds -run '^$' -bench Publish -count 6 | benchstat -
func BenchmarkPublish(b *testing.B) {
	for _, delta := range []bool{false, true} {
		b.Run(map[bool]string{false: "sotw", true: "delta"}[delta],
			func(b *testing.B) { benchmarkPublish(b, 1000, 100, delta) })
	}
}

func benchmarkPublish(b *testing.B, endpoints, streams int, delta bool) {
	acked := make(chan struct{}, streams)
	server := xds.NewServer(xds.Options{Log: quiet(), Observer: signal(acked)})
	address, _ := grpctest.Serve(b, server.Register, xds.GRPCOptions(nil)...)
	d := equal(endpoints)
	server.Push("llama", d, 0)
	var client *xdstest.Client
	for i := range streams {
		c, err := xdstest.Dial(xdstest.Config{Address: address, NodeID: fmt.Sprint("envoy-", i), Delta: delta,
			Clusters: []string{"llama"}})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(c.Close)
		client = c
	}
	wait := func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		for range streams {
			select {
			case <-acked:
			case <-ctx.Done():
				b.Fatal("not all streams have acknowledged")
			}
		}
	}
	wait()
	b.ReportAllocs()
	for b.Loop() {
		d.Endpoints[0].Share, d.Endpoints[1].Share = d.Endpoints[1].Share*1.5, d.Endpoints[0].Share/1.5
		if _, err := server.Push("llama", d, 0); err != nil {
			b.Fatal(err)
		}
		wait()
	}
	b.ReportMetric(float64(len(client.State().Messages["llama"])), "bytes/assignment")
}

// signal is an observer that passes every ACK on.
type signal chan struct{}

func (s signal) Acked(string, time.Duration) { s <- struct{}{} }
func (signal) Nacked(string)                 {}

// BenchmarkPublishToVariants measures what a push of 1000 endpoints under all names of a cluster costs before it
// reaches a stream, depending on which names have subscribers.
func BenchmarkPublishToVariants(b *testing.B) {
	for _, suffixes := range [][]string{nil, {""}, {"/failsafe", "/fallback"}, {"", "/failsafe", "/fallback"}} {
		b.Run(fmt.Sprintf("subscribed=%q", suffixes), func(b *testing.B) {
			server := xds.NewServer(xds.Options{Log: quiet()})
			b.Cleanup(server.Close)
			address, _ := grpctest.Serve(b, server.Register, xds.GRPCOptions(nil)...)
			d := equal(1000)
			server.Push("llama", d, 0)
			for _, suffix := range suffixes {
				// It receives and never answers, so that the benchmark measures only the server.
				c, err := xdstest.Dial(xdstest.Config{Address: address, NodeID: "envoy" + suffix,
					Clusters: []string{"llama" + suffix}, HoldAnswers: true})
				if err != nil {
					b.Fatal(err)
				}
				b.Cleanup(c.Close)
				eventually(b, "subscribed", func() bool { return c.State().Responses > 0 })
			}
			b.ReportAllocs()
			for b.Loop() {
				d.Endpoints[0].Share, d.Endpoints[1].Share = d.Endpoints[1].Share*1.5, d.Endpoints[0].Share/1.5
				if _, err := server.Push("llama", d, 0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
