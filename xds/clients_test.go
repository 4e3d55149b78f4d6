package xds_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"steelyard/internal/api"
	"steelyard/xds"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	endpointservice "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"

	runtimeservice "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"steelyard/e2e/rig/certs"
	"steelyard/e2e/rig/grpctest"
	"steelyard/e2e/rig/xdstest"
)

func TestEnvoysUnderOneNodeIDAreShownAsDuplicates(t *testing.T) {
	b := newTestServer(t)
	b.publish("llama", equal(2))
	twin := b.dial(xdstest.Config{NodeID: "twin", Clusters: []string{"llama"}})
	b.dial(xdstest.Config{NodeID: "twin", Clusters: []string{"llama", "mistral"}})
	// Without a common cluster: one Envoy may have two connections.
	b.dial(xdstest.Config{NodeID: "twin", Clusters: []string{"other"}})
	b.dial(xdstest.Config{NodeID: "single", Clusters: []string{"llama"}})
	var clients []api.Connection
	eventually(t, "four clients", func() bool {
		clients = b.server.Clients()
		n := 0
		for _, c := range clients {
			n += len(c.Subscriptions)
		}
		return len(clients) == 4 && n == 5
	})
	if clients[0].NodeID != "single" || clients[0].Duplicates != 0 {
		t.Errorf("first client %+v, want the single one without duplicates", clients[0])
	}
	for _, c := range clients[1:] {
		want := 1
		if c.Subscriptions[0].Resource == "other" {
			want = 0
		}
		if c.NodeID != "twin" || c.Duplicates != want {
			t.Errorf("%+v: want a twin with %d duplicates", c, want)
		}
	}
	twin.Close()
	eventually(t, "no duplicates once one has gone", func() bool {
		for _, c := range b.server.Clients() {
			if c.Duplicates != 0 {
				return false
			}
		}
		return true
	})
}

func TestStreamsOfOneConnectionAreOneClient(t *testing.T) {
	b := newTestServer(t)
	b.publish("b", equal(2))
	conn := b.connect()
	for _, cluster := range []string{"b", "a"} {
		stream := b.open(conn)
		request := &discoveryv3.DiscoveryRequest{Node: node("envoy-1"), ResourceNames: []string{cluster}}
		if err := stream.Send(request); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "one client with two sorted subscriptions", func() bool {
		c := b.server.Clients()
		return len(c) == 1 && c[0].Duplicates == 0 && len(c[0].Subscriptions) == 2 &&
			c[0].Subscriptions[0].Resource == "a" && c[0].Subscriptions[1].Resource == "b"
	})
}

func TestThePropertiesOfANodeAreLimitedInLength(t *testing.T) {
	b := newTestServer(t)
	stream := b.open(b.connect())
	long := strings.Repeat("ü", 1000)
	n := node(long)
	n.Cluster = long
	n.UserAgentVersionType = &corev3.Node_UserAgentVersion{UserAgentVersion: long}
	n.Locality.Zone = long
	if err := stream.Send(&discoveryv3.DiscoveryRequest{Node: n, ResourceNames: []string{"llama"}}); err != nil {
		t.Fatal(err)
	}
	var c api.Connection
	eventually(t, "the client is seen", func() bool {
		cs := b.server.Clients()
		if len(cs) == 1 && cs[0].NodeID != "" {
			c = cs[0]
		}
		return c.NodeID != ""
	})
	for what, got := range map[string]string{"node id": c.NodeID, "node cluster": c.NodeCluster, "version": c.Version,
		"locality": c.Locality} {
		if len(got) > 256 || len(got) < 250 || !strings.HasSuffix(got, "ü") {
			t.Errorf("%s has %d bytes and ends in %q, want at most 256 and a whole rune", what, len(got),
				got[len(got)-2:])
		}
	}
}

func TestStreamsThatAskForTooMuchAreClosedWithTheReason(t *testing.T) {
	many := func(n int) []string {
		names := make([]string, n)
		for i := range names {
			names[i] = fmt.Sprint("cluster-", i)
		}
		return names
	}
	for name, c := range map[string]struct {
		requests []*discoveryv3.DiscoveryRequest
		code     codes.Code
	}{
		"too many clusters": {[]*discoveryv3.DiscoveryRequest{{TypeUrl: xdstest.EndpointType,
			ResourceNames: many(10_001)}}, codes.ResourceExhausted},
		"a long name": {[]*discoveryv3.DiscoveryRequest{{TypeUrl: xdstest.EndpointType,
			ResourceNames: []string{strings.Repeat("x", 1025)}}}, codes.InvalidArgument},
		"a long type": {[]*discoveryv3.DiscoveryRequest{{TypeUrl: strings.Repeat("x", 1025)}},
			codes.ResourceExhausted},
		"no type": {[]*discoveryv3.DiscoveryRequest{{}}, codes.InvalidArgument},
		"too many types": {func() (rs []*discoveryv3.DiscoveryRequest) {
			for _, n := range many(33) {
				rs = append(rs, &discoveryv3.DiscoveryRequest{TypeUrl: n})
			}
			return rs
		}(), codes.ResourceExhausted},
		"a large message": {[]*discoveryv3.DiscoveryRequest{requestOf(1<<20 + 1)}, codes.ResourceExhausted},
	} {
		t.Run(name, func(t *testing.T) {
			b := newTestServer(t)
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(b.connect()).StreamAggregatedResources(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if c.requests[0].Node == nil {
				c.requests[0].Node = &corev3.Node{Id: "envoy-1"}
			}
			for _, r := range c.requests {
				if err := stream.Send(r); err != nil {
					break // already closed; Recv returns the reason
				}
			}
			_, err = stream.Recv()
			if status.Code(err) != c.code {
				t.Errorf("the stream ended with %v, want %v", err, c.code)
			}
			eventually(t, "the client is forgotten", func() bool { return len(b.server.Clients()) == 0 })
		})
	}
}

// TestTheSubscriptionsOfAllStreamsAreLimited: an unknown client subscribes to as much as it can over many connections,
// of each transport; an Envoy keeps its subscriptions and can add others.
func TestTheSubscriptionsOfAllStreamsAreLimited(t *testing.T) {
	const limit, names = 2000, 100
	b := newTestServer(t)
	b.server = xds.NewServer(xds.Options{Log: quiet(), Now: b.clock.Now, Names: limit})
	b.address, b.stop = grpctest.Serve(t, b.server.Register, xds.GRPCOptions(nil)...)
	b.publish("llama", equal(1))
	envoy := b.dial(xdstest.Config{NodeID: "envoy", Clusters: []string{"llama"}})
	b.received(envoy, "llama", 1)
	var strangers []*xdstest.Client
	transports(t, func(t *testing.T, c xdstest.Config, _ string) {
		for i := range 3 {
			c.NodeID, c.Clusters = fmt.Sprint("stranger-", i), nil
			for k := range names {
				c.Clusters = append(c.Clusters, fmt.Sprintf("%s-%d", c.NodeID, k))
			}
			strangers = append(strangers, b.dial(c))
		}
	})
	eventually(t, "all of the strangers are in or refused", func() bool {
		in, refused := 0, 0
		for _, c := range b.server.Clients() {
			if c.NodeID != "envoy" {
				in += len(c.Subscriptions)
			}
		}
		for _, s := range strangers {
			if err := s.State().Err; err != nil {
				refused++
				if status.Code(err) != codes.ResourceExhausted {
					t.Fatalf("a stream ended with %v", err)
				}
			}
		}
		u := b.server.Names()
		return in+names*refused == names*len(strangers) && u.Used == in+1 && refused > 0 && u.Used <= limit
	})
	if u := b.server.Names(); u.Limit != limit || u.Refused == 0 || u.LastRefused.IsZero() {
		t.Errorf("%+v, want the refusals counted", u)
	}
	b.publish("llama", shares(0.3, 0.7))
	b.received(envoy, "llama", 2)
	again := b.dial(xdstest.Config{NodeID: "again", Clusters: []string{"llama", "llama/fallback"}})
	b.received(again, "llama", 1)
	for _, s := range strangers {
		s.Close()
	}
	eventually(t, "what the strangers had is given back", func() bool { return b.server.Names().Used == 3 })
}

// requestOf makes a request for llama of that many bytes on the wire.
func requestOf(size int) *discoveryv3.DiscoveryRequest {
	r := &discoveryv3.DiscoveryRequest{
		Node: node("envoy-1"), TypeUrl: xdstest.EndpointType, ResourceNames: []string{"llama"},
		VersionInfo: strings.Repeat("x", size/2), // half, so that its length has as many digits as in the end
	}
	r.VersionInfo += strings.Repeat("x", size-proto.Size(r))
	return r
}

func TestARequestOfOneMebibyteIsNotTooLarge(t *testing.T) {
	b := newTestServer(t)
	b.publish("llama", equal(1))
	stream := b.open(b.connect())
	if err := stream.Send(requestOf(1 << 20)); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Errorf("the stream ended with %v, want the assignment", err)
	}
}

// TestASubscriptionToAllNamesThatCanBeServedIsNotTooLarge: a configuration has at most 1000 clusters, with names of at
// most 256 bytes.
func TestASubscriptionToAllNamesThatCanBeServedIsNotTooLarge(t *testing.T) {
	b := newTestServer(t)
	var names []string
	for i := range 1000 {
		cluster := fmt.Sprintf("%0256d", i)
		names = append(names, cluster, cluster+"/failsafe", cluster+"/fallback")
	}
	b.publish(names[0], equal(1))
	client := b.dial(xdstest.Config{ADS: true, Clusters: names, Extensions: 500})
	b.received(client, names[0], 1)
}

func TestTenThousandClustersAreNotTooMany(t *testing.T) {
	b := newTestServer(t)
	names := make([]string, 10_000)
	for i := range names {
		names[i] = fmt.Sprint("cluster-", i)
	}
	client := b.dial(xdstest.Config{Clusters: names})
	b.subscription("envoy-1", "cluster-9999", "held", func(s api.Subscription) bool { return !s.Known })
	b.publish("cluster-5000", equal(1))
	b.received(client, "cluster-5000", 1)
}

// A real Envoy's node is 61 KB on the wire. The parsed messages of a thousand Envoys would take hundreds of megabytes.
func TestTheNodesExtensionsAreNotKept(t *testing.T) {
	b := newTestServer(t)
	b.publish("llama", equal(2))
	const envoys = 30
	before := heap()
	for i := range envoys {
		id := fmt.Sprint("envoy-", i)
		b.dial(xdstest.Config{NodeID: id, Clusters: []string{"llama"}, Extensions: 3000})
		b.subscription(id, "llama", "in sync", inSync)
	}
	perEnvoy := (int64(heap()) - int64(before)) / envoys
	t.Logf("%d bytes per Envoy, both ends of the connection together", perEnvoy)
	if perEnvoy > 350<<10 {
		t.Errorf("%d bytes per Envoy: the node is kept", perEnvoy)
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestPollingIsNotServed: a server that stops would wait for unary calls whose request never arrives.
func TestPollingIsNotServed(t *testing.T) {
	b := newTestServer(t)
	b.publish("llama", equal(1))
	r := &discoveryv3.DiscoveryRequest{ResourceNames: []string{"llama"}}
	_, endpoints := endpointservice.NewEndpointDiscoveryServiceClient(b.connect()).
		FetchEndpoints(context.Background(), r)
	_, layers := runtimeservice.NewRuntimeDiscoveryServiceClient(b.connect()).FetchRuntime(context.Background(), r)
	if status.Code(endpoints) != codes.Unimplemented || status.Code(layers) != codes.Unimplemented {
		t.Errorf("polling: %v and %v, want both unimplemented", endpoints, layers)
	}
}

func TestGRPCOptionsWithTLS(t *testing.T) {
	own := selfSigned()
	server := xds.NewServer(xds.Options{Log: quiet()})
	serverTLS := xds.NewHandshakes(quiet()).Credentials(&tls.Config{Certificates: []tls.Certificate{own.TLS()}})
	address, _ := grpctest.Serve(t, server.Register, xds.GRPCOptions(serverTLS)...)
	conn := grpctest.Connect(t, address,
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: own.Pool(), ServerName: "steelyard"})))
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	stream, err := endpointservice.NewEndpointDiscoveryServiceClient(conn).StreamEndpoints(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&discoveryv3.DiscoveryRequest{Node: &corev3.Node{Id: "envoy-1"},
		ResourceNames: []string{"llama"}}); err != nil {
		t.Fatal(err)
	}
	server.Push("llama", equal(1), 0)
	if _, err := stream.Recv(); err != nil {
		t.Errorf("over TLS: %v", err)
	}
}

func selfSigned() *certs.Pair {
	return certs.New("steelyard", nil, func(c *x509.Certificate) { c.DNSNames = []string{"steelyard"} })
}

// connect and open are for tests that send the requests themselves.
func (b *testServer) connect() *grpc.ClientConn {
	b.t.Helper()
	return grpctest.Connect(b.t, b.address)
}

func (b *testServer) open(conn *grpc.ClientConn) endpointservice.EndpointDiscoveryService_StreamEndpointsClient {
	b.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	b.t.Cleanup(cancel)
	stream, err := endpointservice.NewEndpointDiscoveryServiceClient(conn).StreamEndpoints(ctx)
	if err != nil {
		b.t.Fatal(err)
	}
	return stream
}
