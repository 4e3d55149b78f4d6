package loadstats

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"steelyard/collectors/ledger"
	"steelyard/collectors/wire"
)

// recorded returns the messages of a real Envoy 1.40, by name.
func recorded(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "recorded", name+".bin"))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// byReference reads a report by its generated code.
func byReference(t interface {
	Helper()
	Fatal(...any)
}, data []byte) (clusters []ledger.ClusterLoad) {
	t.Helper()
	var m loadstatsv3.LoadStatsRequest
	if err := proto.Unmarshal(data, &m); err != nil {
		t.Fatal(err)
	}
	for _, c := range m.GetClusterStats() {
		load := ledger.ClusterLoad{Name: c.GetClusterName(), Cluster: c.GetClusterServiceName()}
		if load.Cluster == "" {
			load.Cluster = c.GetClusterName()
		}
		for _, d := range c.GetDroppedRequests() {
			load.Dropped += d.GetDroppedCount()
		}
		for _, locality := range c.GetUpstreamLocalityStats() {
			for _, e := range locality.GetUpstreamEndpointStats() {
				socket := e.GetAddress().GetSocketAddress()
				load.Endpoints = append(load.Endpoints, ledger.EndpointLoad{
					Address:    net.JoinHostPort(socket.GetAddress(), strconv.Itoa(int(socket.GetPortValue()))),
					InProgress: e.GetTotalRequestsInProgress(),
					Issued:     e.GetTotalIssuedRequests(),
					Succeeded:  e.GetTotalSuccessfulRequests(),
					Errors:     e.GetTotalErrorRequests(),
				})
			}
		}
		clusters = append(clusters, load)
	}
	return clusters
}

func TestWhatARealEnvoyReports(t *testing.T) {
	cases := []struct {
		recorded string
		clusters int
		want     map[string]ledger.EndpointLoad // by cluster, without the address
	}{
		{"0-node", 0, nil},
		{"1-streaming", 3, map[string]ledger.EndpointLoad{"up": {InProgress: 1, Issued: 4, Succeeded: 2, Errors: 2},
			"xds": {InProgress: 2, Issued: 1}}},
		{"2-refused", 3, map[string]ledger.EndpointLoad{"up": {Issued: 2, Succeeded: 1, Errors: 1},
			"refused": {Errors: 1}, "xds": {InProgress: 2}}},
		// Answered were OK, NOT_FOUND, UNAVAILABLE (gRPC) and 415; the Envoy's circuit breaker
		// stopped a fifth.
		{"3-errors", 2, map[string]ledger.EndpointLoad{"llama": {Issued: 4, Succeeded: 3, Errors: 2},
			"steelyard_xds": {InProgress: 4}}},
	}
	for _, c := range cases {
		t.Run(c.recorded, func(t *testing.T) {
			data := recorded(t, c.recorded)
			m := &report{wantNode: true}
			if err := m.UnmarshalWire(data); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(byReference(t, data), m.clusters, cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
			if len(m.clusters) != c.clusters || len(m.node) < 60_000 {
				t.Errorf("%d clusters, a node of %d bytes", len(m.clusters), len(m.node))
			}
			got := map[string]ledger.EndpointLoad{}
			for _, load := range m.clusters {
				for _, e := range load.Endpoints {
					e.Address = ""
					got[load.Cluster] = e
				}
			}
			if diff := cmp.Diff(c.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func address(ip string, port uint32) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: ip, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
	}}}
}

func drawCluster(t *rapid.T) *endpointv3.ClusterStats {
	endpoint := rapid.Custom(func(t *rapid.T) *endpointv3.UpstreamEndpointStats {
		return &endpointv3.UpstreamEndpointStats{
			Address: address(rapid.SampledFrom([]string{"10.0.0.1", "2001:db8::2"}).Draw(t, "ip"),
				rapid.Uint32Range(1, 65_535).Draw(t, "port")),
			TotalRequestsInProgress: rapid.Uint64().Draw(t, "in progress"),
			TotalIssuedRequests:     rapid.Uint64().Draw(t, "issued"),
			TotalSuccessfulRequests: rapid.Uint64().Draw(t, "succeeded"),
			TotalErrorRequests:      rapid.Uint64().Draw(t, "errors"),
			LoadMetricStats:         []*endpointv3.EndpointLoadMetricStats{{MetricName: "m", TotalMetricValue: 1.5}},
		}
	})
	locality := rapid.Custom(func(t *rapid.T) *endpointv3.UpstreamLocalityStats {
		return &endpointv3.UpstreamLocalityStats{
			Locality: &corev3.Locality{Zone: "z"}, TotalIssuedRequests: 7,
			UpstreamEndpointStats: rapid.SliceOfN(endpoint, 0, 3).Draw(t, "endpoints"),
		}
	})
	return &endpointv3.ClusterStats{
		ClusterName:          rapid.StringMatching(`[a-z]{1,5}`).Draw(t, "name"),
		ClusterServiceName:   rapid.SampledFrom([]string{"", "chat", "chat/failsafe"}).Draw(t, "service"),
		TotalDroppedRequests: 99,
		DroppedRequests: []*endpointv3.ClusterStats_DroppedRequests{{Category: "a",
			DroppedCount: rapid.Uint64Range(0, 9).Draw(t, "dropped")}, {Category: "b", DroppedCount: 1}},
		UpstreamLocalityStats: rapid.SliceOfN(locality, 0, 3).Draw(t, "localities"),
	}
}

// TestByHandIsAsByTheGeneratedCode: also when the memory of a report is used again.
func TestByHandIsAsByTheGeneratedCode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &report{}
		for range 3 {
			data, err := proto.Marshal(&loadstatsv3.LoadStatsRequest{
				Node:         &corev3.Node{Id: "a"},
				ClusterStats: rapid.SliceOfN(rapid.Custom(drawCluster), 0, 4).Draw(t, "clusters"),
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := m.UnmarshalWire(data); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(byReference(t, data), m.clusters, cmpopts.EquateEmpty()); diff != "" {
				t.Fatal(diff)
			}
		}
	})
}

func TestReportsAreBounded(t *testing.T) {
	nest := func(number protowire.Number, inner []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), inner)
	}
	repeat := func(n int, b []byte) []byte {
		var all []byte
		for range n {
			all = append(all, b...)
		}
		return all
	}
	endpoints := func(n int) []byte {
		return nest(requestClusters, nest(clusterLocality, repeat(n, nest(localityEndpoint, nil))))
	}
	cases := []struct {
		name string
		data []byte
		err  string
	}{
		{"as many clusters as may be", repeat(maxClusters, nest(requestClusters, nil)), ""},
		{"one cluster too many", repeat(maxClusters+1, nest(requestClusters, nil)), "more than 16384 clusters"},
		{"as many endpoints as may be", endpoints(maxEndpoints), ""},
		{"one endpoint too many", endpoints(maxEndpoints + 1), "more than 65536 endpoints"},
		{"a long name", nest(requestClusters, nest(clusterName, make([]byte, 100_000))), ""},
		{"too long", make([]byte, maxMessage+1), "want at most"},
		{"garbage", []byte("\xff\xff"), wire.ErrMalformed.Error()},
		{"a garbled cluster", nest(requestClusters, []byte("\x12\xff")), wire.ErrMalformed.Error()},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m := &report{}
			err := m.UnmarshalWire(c.data)
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("%v, want %q", err, c.err)
			}
			for _, load := range m.clusters {
				if len(load.Cluster) > maxName {
					t.Errorf("a name of %d bytes", len(load.Cluster))
				}
			}
		})
	}
}

// FuzzReport: whatever comes is read or refused.
func FuzzReport(f *testing.F) {
	for _, name := range []string{"1-streaming", "2-refused"} {
		var m loadstatsv3.LoadStatsRequest
		if err := proto.Unmarshal(recorded(f, name), &m); err != nil {
			f.Fatal(err)
		}
		m.Node = &corev3.Node{Id: "a"}
		data, err := proto.Marshal(&m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	l := ledger.New(nil)
	l.SetMembers("up", []string{"127.0.0.1:80"})
	r := l.Reporting(ledger.Envoy{NodeID: "a"}, time.Second, time.Now())
	f.Fuzz(func(t *testing.T, data []byte) {
		m := &report{wantNode: true}
		if err := m.UnmarshalWire(data); err != nil {
			if errors.Is(err, wire.ErrMalformed) && proto.Unmarshal(data, &loadstatsv3.LoadStatsRequest{}) == nil {
				t.Errorf("protobuf reads it, and not we: %v", err)
			}
			return
		}
		if m.endpoints > maxEndpoints || len(m.clusters) > maxClusters {
			t.Errorf("%d clusters, %d endpoints", len(m.clusters), m.endpoints)
		}
		r.Report(time.Now(), m.clusters)
	})
}

// BenchmarkReport is what a report costs that repeats the node of a real Envoy,
// 61 KB: read by hand, by the generated code, and the ratio of the two.
//
//	go test ./collectors/loadstats -run '^$' -bench Report -benchmem
func BenchmarkReport(b *testing.B) {
	data := recorded(b, "1-streaming")
	var hand, generated time.Duration
	b.Run("by hand", func(b *testing.B) {
		b.ReportAllocs()
		m := &report{}
		for range b.N {
			if err := m.UnmarshalWire(data); err != nil {
				b.Fatal(err)
			}
		}
		hand = b.Elapsed() / time.Duration(b.N)
	})
	b.Run("generated", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			if err := proto.Unmarshal(data, &loadstatsv3.LoadStatsRequest{}); err != nil {
				b.Fatal(err)
			}
		}
		generated = b.Elapsed() / time.Duration(b.N)
		if hand > 0 {
			b.ReportMetric(float64(generated)/float64(hand), "times-by-hand")
		}
	})
}

// A stream keeps the memory of one report, wherever in it the endpoints were.
func TestAStreamKeepsTheMemoryOfOneReport(t *testing.T) {
	const endpoints, reports = 1000, 100
	m := &report{}
	for before := range reports {
		var all loadstatsv3.LoadStatsRequest
		for range before {
			all.ClusterStats = append(all.ClusterStats, &endpointv3.ClusterStats{})
		}
		locality := &endpointv3.UpstreamLocalityStats{}
		for i := range endpoints {
			locality.UpstreamEndpointStats = append(locality.UpstreamEndpointStats, &endpointv3.UpstreamEndpointStats{
				Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
					Address: "10.0.0.1", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(i + 1)},
				}}},
			})
		}
		all.ClusterStats = append(all.ClusterStats,
			&endpointv3.ClusterStats{UpstreamLocalityStats: []*endpointv3.UpstreamLocalityStats{locality}})
		data, err := proto.Marshal(&all)
		if err == nil {
			err = m.UnmarshalWire(data)
		}
		if err != nil || len(m.clusters) != before+1 || len(m.clusters[before].Endpoints) != endpoints {
			t.Fatalf("%v, %d clusters", err, len(m.clusters))
		}
	}
	kept := cap(m.loads)
	for _, c := range m.clusters[:reports-1] {
		kept += cap(c.Endpoints)
	}
	if kept > 2*endpoints {
		t.Errorf("room for %d endpoints is kept, after reports of %d", kept, endpoints)
	}
}

// TestALargeReportLeavesNoMemoryBehind: streams are open for ever.
func TestALargeReportLeavesNoMemoryBehind(t *testing.T) {
	large := func(clusters, endpoints int) []byte {
		all := &loadstatsv3.LoadStatsRequest{}
		for i := range clusters {
			locality := &endpointv3.UpstreamLocalityStats{}
			for j := range endpoints / clusters {
				locality.UpstreamEndpointStats = append(locality.UpstreamEndpointStats,
					&endpointv3.UpstreamEndpointStats{Address: address(fmt.Sprint("10.0.0.", i%250), uint32(j+1))})
			}
			all.ClusterStats = append(all.ClusterStats,
				&endpointv3.ClusterStats{ClusterName: fmt.Sprint(i),
					UpstreamLocalityStats: []*endpointv3.UpstreamLocalityStats{locality}})
		}
		data, err := proto.Marshal(all)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	m := &report{}
	for name, data := range map[string][]byte{"endpoints": large(1, 20_000), "clusters": large(10_000, 10_000),
		"usual": large(4, 1000)} {
		if err := m.UnmarshalWire(data); err != nil {
			t.Fatal(err)
		}
		m.release()
		if cap(m.loads) > keptEndpoints || cap(m.clusters) > keptClusters || len(m.names) > keptEndpoints {
			t.Errorf("%s: room for %d endpoints, %d clusters and %d names is kept", name, cap(m.loads), cap(m.clusters),
				len(m.names))
		}
		if name == "usual" && (cap(m.loads) < 1000 || len(m.names) < 1000) {
			t.Errorf("the memory of a usual report is not kept")
		}
	}
}
