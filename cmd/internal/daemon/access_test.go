package daemon

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"steelyard/internal/api"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	accessdatav3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	endpointservice "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"

	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"

	runtimev3 "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	grpccredentials "google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"steelyard/collectors/ledger"
	"steelyard/controlplane/config"
	"steelyard/e2e/rig/grpctest"
	"steelyard/xds/loads/loadsv1"
)

const twoPools = `
clusters:
- {name: a, endpoints: {static: [{address: 10.0.0.1:80}, {address: 10.0.0.3:80}]}, scrape: {disabled: true}}
- {name: b, endpoints: {static: [{address: 10.0.0.2:80}, {address: 10.0.0.3:80}]}, scrape: {disabled: true}}
`

// A guarded is a daemon that knows its clients by certificates.
type guarded struct {
	t      *testing.T
	cfg    *config.Config
	daemon *Daemon
	base   string
	ca     *x509.Certificate
	caKey  *ecdsa.PrivateKey
}

func newGuarded(t *testing.T, rules ...config.ClientRule) *guarded {
	t.Helper()
	w := &guarded{t: t, cfg: parse(t, twoPools)}
	var caFile string
	w.ca, w.caKey, caFile, _ = identity(t, "authority", nil, nil)
	_, _, cert, key := identity(t, "steelyard", w.ca, w.caKey)
	w.cfg.XDS.TLS = &config.ServerTLS{CertFile: cert, KeyFile: key, ClientCAFile: caFile}
	w.cfg.XDS.Clients = rules
	w.daemon, w.base = serve(t, w.cfg)
	eventually(t, "the endpoints are known", func() error { // also to the guard, which gets them before the loops
		for _, cluster := range []string{"a", "b"} {
			if c := w.daemon.signals.Counts(cluster, time.Now(), nil); len(c.Endpoints) == 0 {
				return errors.New("no endpoints yet")
			}
		}
		return nil
	})
	return w
}

// client connects with a certificate of its own that has this name.
func (w *guarded) client(name string) *grpc.ClientConn {
	w.t.Helper()
	_, _, cert, key := identity(w.t, name, w.ca, w.caKey)
	roots := x509.NewCertPool()
	roots.AddCert(w.ca)
	return grpctest.Connect(w.t, w.daemon.XDSAddress(),
		grpc.WithTransportCredentials(grpccredentials.NewTLS(&tls.Config{RootCAs: roots, ServerName: "127.0.0.1",
			Certificates: []tls.Certificate{pairOf(w.t, cert, key)}})))
}

var nodeOne = &corev3.Node{Id: "envoy-1"}

// watchers open a stream in each protocol, subscribe, and return what receives the next response.
var watchers = map[string]func(context.Context, *grpc.ClientConn, ...string) (func() (string, error), error){
	"eds": func(ctx context.Context, c *grpc.ClientConn, names ...string) (func() (string, error), error) {
		s, err := endpointservice.NewEndpointDiscoveryServiceClient(c).StreamEndpoints(ctx)
		if err != nil {
			return nil, err
		}
		receive := func() (string, error) { r, err := s.Recv(); return fmt.Sprint(len(r.GetResources())), err }
		return receive, s.Send(&discoveryv3.DiscoveryRequest{Node: nodeOne, ResourceNames: names})
	},
	"ads": func(ctx context.Context, c *grpc.ClientConn, names ...string) (func() (string, error), error) {
		s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(c).StreamAggregatedResources(ctx)
		if err != nil {
			return nil, err
		}
		receive := func() (string, error) { r, err := s.Recv(); return fmt.Sprint(len(r.GetResources())), err }
		return receive, s.Send(&discoveryv3.DiscoveryRequest{Node: nodeOne, TypeUrl: resource.EndpointType,
			ResourceNames: names})
	},
	"eds-delta": func(ctx context.Context, c *grpc.ClientConn, names ...string) (func() (string, error), error) {
		s, err := endpointservice.NewEndpointDiscoveryServiceClient(c).DeltaEndpoints(ctx)
		if err != nil {
			return nil, err
		}
		receive := func() (string, error) { r, err := s.Recv(); return fmt.Sprint(len(r.GetResources())), err }
		return receive, s.Send(&discoveryv3.DeltaDiscoveryRequest{Node: nodeOne, ResourceNamesSubscribe: names})
	},
	"ads-delta": func(ctx context.Context, c *grpc.ClientConn, names ...string) (func() (string, error), error) {
		s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(c).DeltaAggregatedResources(ctx)
		if err != nil {
			return nil, err
		}
		receive := func() (string, error) { r, err := s.Recv(); return fmt.Sprint(len(r.GetResources())), err }
		return receive, s.Send(&discoveryv3.DeltaDiscoveryRequest{Node: nodeOne, TypeUrl: resource.EndpointType,
			ResourceNamesSubscribe: names})
	},
}

// denied wants the status of a stream that the rules do not allow.
func denied(t *testing.T, what string, err error, says string) {
	t.Helper()
	if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), says) {
		t.Errorf("%s: %v, want PERMISSION_DENIED with %q", what, err, says)
	}
}

func (w *guarded) wantDenied(want map[string]uint64, problem string) {
	w.t.Helper()
	eventually(w.t, "it is counted and shown", func() error {
		var s api.Status
		if err := get(w.base, "/api/v1/status", &s); err != nil {
			return err
		}
		for _, d := range s.XDSAccess.Denied {
			if d.Count != want[d.Kind] || d.Count > 0 && (d.LastClient == "" || d.LastPeer == "" || d.LastAt.IsZero()) {
				return fmt.Errorf("%+v, want %d", d, want[d.Kind])
			}
		}
		if a := s.XDSAccess; !a.Loopback || !a.TLS || !a.ClientCertificates || a.Insecure {
			return fmt.Errorf("%+v", a)
		}
		return hasProblem(s, problem)
	})
}

func TestAClientWatchesTheClustersOfItsRulesOnly(t *testing.T) {
	w := newGuarded(t, config.ClientRule{SAN: "*.edge.example.com", Clusters: []string{"a"}},
		config.ClientRule{SAN: "spiffe://prod/ns/*/sa/envoy", Clusters: []string{"*"}})
	edge, all, nobody := w.client("one.edge.example.com"), w.client("spiffe://prod/ns/x/sa/envoy"), w.client("nobody")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for transport, watch := range watchers {
		// A * subscribes to nothing. It is no way around the rules.
		receive, err := watch(ctx, edge, "*", "a", "a/failsafe")
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; ; i++ { // the responses may come one by one
			n, err := receive()
			if err != nil || n != "1" && n != "2" {
				t.Fatalf("%s: %s resources, %v", transport, n, err)
			}
			if n == "2" || i == 1 || strings.Contains(transport, "eds") {
				break
			}
		}
		receive, err = watch(ctx, edge, "a", "b/failsafe")
		if err == nil {
			_, err = receive()
		}
		denied(t, transport, err, "no rule of xds.clients lets one.edge.example.com watch cluster b/failsafe")
		receive, err = watch(ctx, all, "b")
		if err == nil {
			_, err = receive()
		}
		if err != nil {
			t.Errorf("%s: the other client: %v", transport, err)
		}
		receive, err = watch(ctx, nobody, "a") // which may find that the stream has ended already
		if receive == nil {
			t.Fatal(err)
		}
		_, err = receive()
		denied(t, transport, err, "no rule of xds.clients names CN=nobody")
	}
	runtime, err := runtimev3.NewRuntimeDiscoveryServiceClient(nobody).StreamRuntime(ctx)
	if err == nil {
		_, err = runtime.Recv()
	}
	denied(t, "runtime", err, "no rule of xds.clients names CN=nobody")
	w.wantDenied(map[string]uint64{"watch": 4, "stream": 5}, "clients are denied by xds.clients (watch): 4 times")
}

// entry is an access log message about a request at an endpoint.
func entry(ip, id string, kind accessdatav3.AccessLogType) *accesslogv3.StreamAccessLogsMessage {
	return &accesslogv3.StreamAccessLogsMessage{
		Identifier: &accesslogv3.StreamAccessLogsMessage_Identifier{Node: nodeOne, LogName: "steelyard"},
		LogEntries: &accesslogv3.StreamAccessLogsMessage_HttpLogs{HttpLogs: &httpEntries{
			LogEntry: []*accessdatav3.HTTPAccessLogEntry{{CommonProperties: &accessdatav3.AccessLogCommon{
				AccessLogType: kind, StreamId: id, UpstreamRemoteAddress: socket(ip, 80), UpstreamCluster: "a",
			}}},
		}},
	}
}

func TestAClientReportsOnTheClustersOfItsRulesOnly(t *testing.T) {
	w := newGuarded(t, config.ClientRule{SAN: "edge.example.com", Clusters: []string{"a"}})
	edge := w.client("edge.example.com")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	log, err := accesslogv3.NewAccessLogServiceClient(edge).StreamAccessLogs(ctx)
	if err != nil {
		t.Fatal(err)
	}
	reports, err := loadstatsv3.NewLoadReportingServiceClient(edge).StreamLoadStats(ctx)
	if err != nil {
		t.Fatal(err)
	}
	report := func(ip string) error {
		return reports.Send(&loadstatsv3.LoadStatsRequest{Node: nodeOne, ClusterStats: []*endpointv3.ClusterStats{{
			ClusterName: "a", UpstreamLocalityStats: []*endpointv3.UpstreamLocalityStats{{
				UpstreamEndpointStats: []*endpointv3.UpstreamEndpointStats{{Address: socket(ip, 80),
					TotalRequestsInProgress: 1, TotalIssuedRequests: 1}}}}}}})
	}
	if err := report("10.0.0.1"); err != nil { // the first message names the node
		t.Fatal(err)
	}
	if _, err := reports.Recv(); err != nil { // asked for reports
		t.Fatal(err)
	}
	// Its own, one that both clusters have, and one that Steelyard does not serve.
	for i, ip := range []string{"10.0.0.1", "10.0.0.3", "192.0.2.1"} {
		if err := errors.Join(report(ip),
			log.Send(entry(ip, fmt.Sprint(i), accessdatav3.AccessLogType_UpstreamPoolReady))); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "they are taken in", func() error {
		entries, reports := w.daemon.signals.ledger.Totals().Received, w.daemon.signals.loadReports.Stats().Reports
		if entries != 3 || reports != 3 {
			return fmt.Errorf("%d entries, %d reports", entries, reports)
		}
		return nil
	})
	if err := errors.Join(report("10.0.0.2"),
		log.Send(entry("10.0.0.2", "x", accessdatav3.AccessLogType_UpstreamPoolReady))); err != nil {
		t.Fatal(err)
	}
	_, err = log.CloseAndRecv()
	denied(t, "access log", err, "no rule of xds.clients lets edge.example.com report on cluster b")
	for err = nil; err == nil; {
		_, err = reports.Recv()
	}
	denied(t, "load reports", err, "no rule of xds.clients lets edge.example.com report on cluster b")
	w.wantDenied(map[string]uint64{"report": 2}, "reported on an endpoint of cluster b")
}

// TestNarrowedRulesEndOpenStreams: without a request of the client, and only those that the rules no longer allow.
func TestNarrowedRulesEndOpenStreams(t *testing.T) {
	w := newGuarded(t) // all may use everything
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	edge, other := w.client("edge.example.com"), w.client("other.example.com")
	type open struct {
		receive func() (string, error)
		want    string // empty: it stays
	}
	streams := map[string]open{}
	for transport, watch := range watchers {
		for cluster, want := range map[string]string{"a": "", "b": "lets edge.example.com watch cluster b"} {
			receive, err := watch(ctx, edge, cluster)
			if err == nil {
				_, err = receive()
			}
			if err != nil {
				t.Fatal(err)
			}
			streams[transport+" edge "+cluster] = open{receive, want}
		}
		receive, err := watch(ctx, other, "b")
		if err == nil {
			_, err = receive()
		}
		if err != nil {
			t.Fatal(err)
		}
		streams[transport+" other b"] = open{receive, "no rule of xds.clients names other.example.com"}
	}
	narrowed := *w.cfg
	narrowed.XDS.Clients = []config.ClientRule{{SAN: "edge.example.com", Clusters: []string{"a"}}}
	began := time.Now()
	if err := w.daemon.Apply(&narrowed); err != nil {
		t.Fatal(err)
	}
	for name, s := range streams {
		if s.want == "" {
			continue
		}
		err := error(nil)
		for err == nil {
			_, err = s.receive()
		}
		denied(t, name, err, s.want)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
	w.wantDenied(map[string]uint64{"watch": 4, "stream": 4}, "and no rule names it")
	want := []string{"ads edge.example.com a", "ads-delta edge.example.com a", "eds edge.example.com a",
		"eds-delta edge.example.com a"}
	eventually(t, "the others stay", func() error { // the handlers return after their streams have ended
		var left []string
		for _, c := range w.daemon.streams.Clients() {
			for _, s := range c.Subscriptions {
				left = append(left, c.Transport+" "+c.Certificate+" "+s.Cluster)
			}
		}
		if slices.Sort(left); !slices.Equal(left, want) {
			return fmt.Errorf("left are %q, want %q", left, want)
		}
		return nil
	})
}

// TestAPickerFollowsTheClustersOfItsRulesOnly: loads are streamed by a service of its own, on the same port.
func TestAPickerFollowsTheClustersOfItsRulesOnly(t *testing.T) {
	w := newGuarded(t, config.ClientRule{SAN: "edge.example.com", Clusters: []string{"a"}},
		config.ClientRule{SAN: "all.example.com", Clusters: []string{"*"}})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	follow := func(client string, clusters ...string) error {
		s, err := loadsv1.NewLoadsClient(w.client(client)).Follow(ctx, &loadsv1.FollowRequest{Clusters: clusters})
		if err == nil {
			_, err = s.Recv()
		}
		return err
	}
	for name, err := range map[string]error{"its cluster": follow("edge.example.com", "a"),
		"all, by a rule for all": follow("all.example.com")} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	denied(t, "another cluster", follow("edge.example.com", "b"), "lets edge.example.com watch cluster b")
	denied(t, "one of two", follow("edge.example.com", "a", "b"), "lets edge.example.com watch cluster b")
	denied(t, "all", follow("edge.example.com"), "lets edge.example.com watch cluster *")
	denied(t, "no rule", follow("other.example.com", "a"), "no rule of xds.clients names other.example.com")
	w.wantDenied(map[string]uint64{"watch": 3, "stream": 1}, "and no rule names it")
}

// TestNarrowedRulesEndStreamsOfLoads: a picker asks once, so nothing that it sends would show that it may no longer.
func TestNarrowedRulesEndStreamsOfLoads(t *testing.T) {
	rule := func(name string, clusters ...string) config.ClientRule {
		return config.ClientRule{SAN: name + ".example.com", Clusters: clusters}
	}
	w := newGuarded(t, rule("edge", "a", "b"), rule("all", "*"), rule("gone", "a"))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	open := func(picker, client string, clusters ...string) loadsv1.Loads_FollowClient {
		t.Helper()
		s, err := loadsv1.NewLoadsClient(w.client(client+".example.com")).Follow(ctx,
			&loadsv1.FollowRequest{Picker: picker, Clusters: clusters})
		if err == nil {
			_, err = s.Recv()
		}
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	stays := open("stays", "edge", "a")
	ends := map[string]loadsv1.Loads_FollowClient{
		"lets edge.example.com watch cluster b":         open("one of two", "edge", "a", "b"),
		"lets all.example.com watch cluster *":          open("all", "all"),
		"no rule of xds.clients names gone.example.com": open("nameless", "gone", "a"),
	}
	narrowed := *w.cfg
	narrowed.XDS.Clients = []config.ClientRule{rule("edge", "a"), rule("all", "a", "b")}
	if err := w.daemon.Apply(&narrowed); err != nil {
		t.Fatal(err)
	}
	for says, s := range ends {
		err := error(nil)
		for err == nil {
			_, err = s.Recv()
		}
		denied(t, "loads", err, says)
	}
	w.wantDenied(map[string]uint64{"watch": 2, "stream": 1}, "and no rule names it")
	eventually(t, "the other stays", func() error {
		var left []string
		for _, f := range w.daemon.loads.Followers() {
			left = append(left, f.Name)
		}
		if !slices.Equal(left, []string{"stays"}) {
			return fmt.Errorf("left are %q", left)
		}
		return nil
	})
	for range 3 { // more than can have been on their way
		if _, err := stays.Recv(); err != nil {
			t.Errorf("the stream that is still allowed: %v", err)
		}
	}
}

// TestRequestsWaitInTheQueuesOfTheirClientsRulesOnly: no cluster has a queue here, which is the answer to a client that
// may ask.
func TestRequestsWaitInTheQueuesOfTheirClientsRulesOnly(t *testing.T) {
	w := newGuarded(t, config.ClientRule{SAN: "edge.example.com", Clusters: []string{"a"}})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	wait := func(client, cluster string) error {
		s, err := loadsv1.NewQueueClient(w.client(client)).Wait(ctx)
		if err != nil {
			return err
		}
		if err := s.Send(&loadsv1.WaitRequest{Cluster: cluster}); err != nil {
			return err
		}
		_, err = s.Recv()
		return err
	}
	if err := wait("edge.example.com", "a"); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("its cluster: %v", err)
	}
	denied(t, "another cluster", wait("edge.example.com", "b"), "lets edge.example.com watch cluster b")
	denied(t, "no rule", wait("other.example.com", "a"), "no rule of xds.clients names other.example.com")
}

// TestNoOtherClientReportsForAnEnvoyByItsNodeID: another client has a certificate of the same authority, the same
// address and may use the same cluster, and gives the Envoy's node id. The Envoy's next process has its certificate.
func TestNoOtherClientReportsForAnEnvoyByItsNodeID(t *testing.T) {
	w := newGuarded(t, config.ClientRule{SAN: "*.example.com", Clusters: []string{"a"}})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	envoy, again, thief := w.client("envoy.example.com"), w.client("envoy.example.com"), w.client("thief.example.com")
	openLog := func(c *grpc.ClientConn) accesslogv3.AccessLogService_StreamAccessLogsClient {
		t.Helper()
		log, err := accesslogv3.NewAccessLogServiceClient(c).StreamAccessLogs(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return log
	}
	send := func(log accesslogv3.AccessLogService_StreamAccessLogsClient, m *accesslogv3.StreamAccessLogsMessage) {
		t.Helper()
		if err := log.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	const begins, ends = accessdatav3.AccessLogType_UpstreamPoolReady, accessdatav3.AccessLogType_UpstreamEnd
	inFlight := func(what string, want float64, entries uint64) {
		t.Helper()
		eventually(t, what, func() error {
			got := w.daemon.signals.Counts("a", time.Now(), nil).Endpoints[0].InFlight.Value
			if n := w.daemon.signals.ledger.Totals().Received; n != entries || got != want {
				return fmt.Errorf("%v in flight after %d entries, want %v after %d", got, n, want, entries)
			}
			return nil
		})
	}
	if _, err := watchers["eds"](ctx, envoy, "a"); err != nil {
		t.Fatal(err)
	}
	want := ledger.Envoy{NodeID: "envoy-1", Host: "127.0.0.1", Certificate: "envoy.example.com"}
	eventually(t, "the Envoy watches", func() error {
		if all := w.daemon.streams.Watchers("a"); !slices.Equal(all, []ledger.Envoy{want}) {
			return fmt.Errorf("%v", all)
		}
		if n := w.daemon.signals.ledger.Cluster("a", time.Now()).Watching; n != 1 {
			return fmt.Errorf("%d in the ledger", n)
		}
		return nil
	})
	own, stolen := openLog(envoy), openLog(thief)
	send(own, entry("10.0.0.1", "r1", begins))
	inFlight("the request counts", 1, 1)
	send(stolen, entry("10.0.0.1", "r1", ends))
	inFlight("the thief takes nothing off", 1, 2)
	send(stolen, entry("10.0.0.1", "r2", begins))
	inFlight("the thief puts nothing on", 1, 3)
	if _, err := watchers["eds"](ctx, thief, "a"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the thief watches, as an Envoy of its own", func() error {
		if n := w.daemon.signals.ledger.Cluster("a", time.Now()).Watching; n != 2 {
			return fmt.Errorf("%d watch", n)
		}
		return nil
	})
	inFlight("its own request counts from then on", 2, 3)
	send(stolen, entry("10.0.0.1", "r1", ends))
	inFlight("the thief takes nothing off, though it watches", 2, 4)
	next := openLog(again)
	send(next, entry("10.0.0.1", "r3", begins))
	inFlight("the Envoy's next process counts for it", 3, 5)
	send(next, entry("10.0.0.1", "r1", ends)) // over another stream than its beginning
	inFlight("the Envoy's own end counts", 2, 6)
}

// TestAnUnknownClusterLeadsToNoNameThatTheClientMayNotUse: neither as what was meant nor in a list.
func TestAnUnknownClusterLeadsToNoNameThatTheClientMayNotUse(t *testing.T) {
	w := newGuarded(t, config.ClientRule{SAN: "edge.example.com", Clusters: []string{"a", "aa*"}},
		config.ClientRule{SAN: "other.example.com", Clusters: []string{"*"}},
		config.ClientRule{SAN: "none.example.com", Clusters: []string{"c*"}})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	follow := func(name, cluster string) error {
		stream, err := loadsv1.NewLoadsClient(w.client(name)).Follow(ctx,
			&loadsv1.FollowRequest{Clusters: []string{cluster}})
		if err == nil {
			_, err = stream.Recv()
		}
		return err
	}
	for _, c := range []struct {
		client, cluster string
		code            codes.Code
		says            string
	}{
		{"other.example.com", "model-7", codes.NotFound, `no cluster "model-7" is configured; there are: a, b`},
		{"other.example.com", "bb", codes.NotFound, `no cluster "bb" is configured: did you mean b?`},
		{"edge.example.com", "aa-model", codes.NotFound, `no cluster "aa-model" is configured; there are: a`},
		{"none.example.com", "c", codes.NotFound, `no cluster "c" is configured`},
		{"edge.example.com", "b", codes.PermissionDenied,
			"no rule of xds.clients lets edge.example.com watch cluster b"},
		{"edge.example.com", "bb", codes.PermissionDenied,
			"no rule of xds.clients lets edge.example.com watch cluster bb"},
	} {
		if err := follow(c.client, c.cluster); status.Code(err) != c.code || status.Convert(err).Message() != c.says {
			t.Errorf("%s asks for %s: %v, want %v: %s", c.client, c.cluster, err, c.code, c.says)
		}
	}
}
