package daemon

import (
	"fmt"
	"maps"
	"net"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	accessdatav3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpointservice "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	runtimev3 "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"steelyard/collectors/ledger"
	"steelyard/xds"
)

const pool = `
clusters:
- name: llama
  endpoints: {static: [{address: 10.0.0.1:80}, {address: 10.0.0.2:80}]}
  scrape: {disabled: true}
`

// dial opens a connection to the xDS port, as each worker of an Envoy does.
func dial(t *testing.T, address string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// subscribe has an Envoy follow a cluster.
func subscribe(t *testing.T, address, node, cluster string) {
	t.Helper()
	stream, err := endpointservice.NewEndpointDiscoveryServiceClient(dial(t, address)).StreamEndpoints(t.Context())
	if err == nil {
		err = stream.Send(&discoveryv3.DiscoveryRequest{Node: &corev3.Node{Id: node}, TypeUrl: resource.EndpointType, ResourceNames: []string{cluster}})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// begin has an Envoy tell of a request that began at an endpoint.
func begin(t *testing.T, address, node, endpoint string, port uint32) {
	t.Helper()
	stream, err := accesslogv3.NewAccessLogServiceClient(dial(t, address)).StreamAccessLogs(t.Context())
	if err == nil {
		err = stream.Send(&accesslogv3.StreamAccessLogsMessage{
			Identifier: &accesslogv3.StreamAccessLogsMessage_Identifier{Node: &corev3.Node{Id: node}, LogName: "steelyard"},
			LogEntries: &accesslogv3.StreamAccessLogsMessage_HttpLogs{HttpLogs: &accesslogv3.StreamAccessLogsMessage_HTTPAccessLogEntries{
				LogEntry: []*accessdatav3.HTTPAccessLogEntry{{CommonProperties: &accessdatav3.AccessLogCommon{
					AccessLogType: accessdatav3.AccessLogType_UpstreamPoolReady,
					UpstreamRemoteAddress: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
						Address: endpoint, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
					}}},
				}}},
			}},
		})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestAnEnvoyIsTheSameOnAllItsStreams: who subscribes and who tells of requests is
// one and the same, however its name and its address look.
func TestAnEnvoyIsTheSameOnAllItsStreams(t *testing.T) {
	for listen, hosts := range map[string][]string{
		"127.0.0.1:0": {"127.0.0.1"},
		"[::]:0":      {"127.0.0.1", "::1"}, // the first comes as ::ffff:127.0.0.1
	} {
		cfg := parse(t, pool)
		cfg.XDS.Listen = listen
		d, _ := serve(t, cfg)
		_, port, err := net.SplitHostPort(d.XDSAddress())
		if err != nil {
			t.Fatal(err)
		}
		count := 0.0
		for _, host := range hosts {
			for i, node := range []string{
				"envoy-1", " ", "ä/ö ü", "a\x00b\x7f\n", "\u200b", "\ufffd", "::ffff:10.0.0.1",
				strings.Repeat("x", 256), strings.Repeat("y", 300), "é" + strings.Repeat("€", 300), strings.Repeat("z", 255) + "日本",
			} {
				t.Run(fmt.Sprint(listen, " ", host, " ", i), func(t *testing.T) {
					address := net.JoinHostPort(host, port)
					subscribe(t, address, node, "llama/failsafe")
					begin(t, address, node, "10.0.0.1", 80)
					count++
					eventually(t, "the request counts", func() error {
						c := d.signals.Counts("llama", time.Now(), nil)
						if got := c.Endpoints[0].InFlight.Value; got != 1 || c.Subscribers != 1 || c.Reporting != 1 {
							return fmt.Errorf("%v in flight of %d subscribers, %d report", got, c.Subscribers, c.Reporting)
						}
						return nil
					})
					if who := d.streams.Watchers("llama"); len(who) != 1 || who[0].Host != host {
						t.Errorf("watched by %q, want one at %s", who, host)
					}
				})
				eventually(t, "it is gone", func() error {
					if n := len(d.streams.Watchers("llama")) + len(d.signals.ledger.Envoys(time.Now())); n > 0 {
						return fmt.Errorf("%d are left", n)
					}
					return nil
				})
			}
		}
	}
}

// layer is the runtime layer that an Envoy is sent at its start.
func layer(t *testing.T, address, node string) map[string]float64 {
	t.Helper()
	stream, err := runtimev3.NewRuntimeDiscoveryServiceClient(dial(t, address)).StreamRuntime(t.Context())
	if err == nil {
		err = stream.Send(&discoveryv3.DiscoveryRequest{Node: &corev3.Node{Id: node}, ResourceNames: []string{xds.RuntimeLayer}})
	}
	if err != nil {
		t.Fatal(err)
	}
	r, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	var m runtimev3.Runtime
	if err := r.GetResources()[0].UnmarshalTo(&m); err != nil {
		t.Fatal(err)
	}
	values := make(map[string]float64)
	for key, v := range m.GetLayer().GetFields() {
		values[key] = v.GetNumberValue()
	}
	return values
}

// reportOften tells the ledger of an Envoy with 300 requests a second, until it has it batch.
func reportOften(d *Daemon, who ledger.Envoy) error {
	now := time.Now()
	r := d.signals.ledger.Reporting(who, time.Second, now)
	for i := range 10 {
		r.Report(now.Add(time.Duration(i)*time.Second), time.Second, []ledger.ClusterLoad{{
			Cluster: "llama", Endpoints: []ledger.EndpointLoad{{Address: "10.0.0.1:80", Issued: 300}},
		}})
	}
	if _, modes := d.signals.ledger.Modes(); modes[who] != ledger.ModeBatched {
		return fmt.Errorf("it is in mode %v", modes[who])
	}
	return nil
}

// TestWithoutTheAccessLogEnvoysSendNone: also a busy one, which would batch it.
func TestWithoutTheAccessLogEnvoysSendNone(t *testing.T) {
	for _, disabled := range []bool{false, true} {
		cfg := parse(t, pool)
		cfg.XDS.AccessLog.Disabled = disabled
		d, _ := serve(t, cfg)
		want := map[string]float64{xds.RuntimeImmediate: 100, xds.RuntimeBatched: 0}
		if disabled {
			want[xds.RuntimeImmediate] = 0
		}
		if got := layer(t, d.XDSAddress(), "early"); !maps.Equal(got, want) {
			t.Errorf("disabled %t: the layer is %v, want %v", disabled, got, want)
		}
		if !disabled {
			want = map[string]float64{xds.RuntimeImmediate: 0, xds.RuntimeBatched: 100}
		}
		eventually(t, "it has a mode", func() error { return reportOften(d, ledger.Envoy{NodeID: "busy", Host: "127.0.0.1"}) })
		d.signals.follow()
		if got := layer(t, d.XDSAddress(), "busy"); !maps.Equal(got, want) {
			t.Errorf("disabled %t: the layer of a busy one is %v, want %v", disabled, got, want)
		}
	}
}

// TestAnEnvoyWithTrafficAndNoLogIsMissed: load reports alone do not make the access log heard.
func TestAnEnvoyWithTrafficAndNoLogIsMissed(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		status ledger.EnvoyStatus
		heard  bool
	}{
		"nothing at all":        {ledger.EnvoyStatus{}, false},
		"reports, no traffic":   {ledger.EnvoyStatus{LastReport: now}, true},
		"reports, traffic":      {ledger.EnvoyStatus{LastReport: now, RequestRate: 20}, false},
		"told to leave it off":  {ledger.EnvoyStatus{LastReport: now, RequestRate: 900, Mode: ledger.ModeReports}, true},
		"a log and traffic":     {ledger.EnvoyStatus{LastEvent: now, RequestRate: 20, Streams: 2}, true},
		"a log, it was a while": {ledger.EnvoyStatus{LastEvent: now.Add(-time.Hour), LastReport: now}, true},
	} {
		if got := !heardOfLog(c.status).IsZero(); got != c.heard {
			t.Errorf("%s: heard %t, want %t", name, got, c.heard)
		}
	}
}
