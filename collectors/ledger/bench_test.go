package ledger

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"steelyard/weighting/flight"
)

// sizes are a fleet's: the usual one, and the largest.
var sizes = []struct{ envoys, endpoints int }{{10, 20}, {1000, 1000}}

// fleet is Envoys that all watch one cluster, with a log stream and load reports
// each, and an account with every endpoint.
type fleet struct {
	ledger    *Ledger
	now       time.Time
	addresses []string
	streams   []*Stream
	reports   []*Reports
	full      []ClusterLoad // of every endpoint
}

func newFleet(envoys, endpoints int) *fleet {
	f := &fleet{ledger: New(func(string) {}), now: start}
	load := ClusterLoad{Cluster: "chat"}
	for i := range endpoints {
		address := fmt.Sprintf("10.1.%d.%d:8000", i/250, i%250)
		f.addresses = append(f.addresses, address)
		load.Endpoints = append(load.Endpoints, EndpointLoad{Address: address, InProgress: 1, Issued: 1})
	}
	f.full = []ClusterLoad{load}
	f.ledger.SetMembers("chat", f.addresses)
	var watchers []Envoy
	for i := range envoys {
		node := Envoy{NodeID: strconv.Itoa(i), Host: "10.0.0.1"}
		watchers = append(watchers, node)
		f.streams = append(f.streams, f.ledger.Open(node, f.now))
		f.reports = append(f.reports, f.ledger.Reporting(node, time.Second, f.now))
	}
	f.ledger.SetWatchers("chat", watchers)
	for _, r := range f.reports {
		r.Report(f.now, f.full)
	}
	f.ledger.Tick(f.now)
	return f
}

// BenchmarkEvents: a beginning and an end, with as many requests open as there
// are Envoys. Baseline is the smaller fleet: the cost of an event does not grow with it, but
// for the caches of the machine.
func BenchmarkEvents(b *testing.B) {
	for _, size := range sizes {
		b.Run(fmt.Sprintf("%dx%d", size.envoys, size.endpoints), func(b *testing.B) {
			f := newFleet(size.envoys, size.endpoints)
			events := make([]Event, 2)
			id := make([]byte, 36)
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				copy(id, strconv.Itoa(i))
				address := []byte(f.addresses[i*7%len(f.addresses)])
				events[0] = Event{ID: id, Address: address}
				events[1] = Event{ID: id, Address: address, Ended: true,
					Outcome: Outcome{Status: 200, Latency: time.Second}}
				f.streams[i%len(f.streams)].Events(f.now, events)
				i++
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(2*b.N), "ns/event")
		})
	}
}

// BenchmarkRead is what a step of a cluster's loop asks for.
func BenchmarkRead(b *testing.B) {
	for _, size := range sizes {
		b.Run(fmt.Sprintf("%dx%d", size.envoys, size.endpoints), func(b *testing.B) {
			f := newFleet(size.envoys, size.endpoints)
			var counts []flight.Counts
			b.ReportAllocs()
			for b.Loop() {
				counts = f.ledger.Read("chat", f.now, counts)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*size.endpoints), "ns/endpoint")
		})
	}
}

// BenchmarkReport is a report of all endpoints.
func BenchmarkReport(b *testing.B) {
	for _, size := range sizes {
		b.Run(fmt.Sprintf("%dx%d", size.envoys, size.endpoints), func(b *testing.B) {
			f := newFleet(size.envoys, size.endpoints)
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				f.reports[i%len(f.reports)].Report(f.now, f.full)
				i++
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*size.endpoints), "ns/endpoint")
		})
	}
}
