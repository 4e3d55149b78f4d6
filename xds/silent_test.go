package xds_test

import (
	"context"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"steelyard/e2e/rig/grpctest"
	"steelyard/e2e/rig/xdstest"
	"steelyard/xds"
	"steelyard/xds/port"
)

// streamMethods are all methods that the server serves.
var streamMethods = []string{
	"/envoy.service.endpoint.v3.EndpointDiscoveryService/StreamEndpoints",
	"/envoy.service.endpoint.v3.EndpointDiscoveryService/DeltaEndpoints",
	"/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources",
	"/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources",
	"/envoy.service.runtime.v3.RuntimeDiscoveryService/StreamRuntime",
}

// onPort makes a server on a port with limits. c is nil for plain text.
func onPort(t *testing.T, o port.Options, c credentials.TransportCredentials) (*testServer, *port.Listener) {
	t.Helper()
	b := &testServer{t: t, clock: &clock{now: time.Unix(1_700_000_000, 0)}, seen: &observer{}}
	b.server = xds.NewServer(xds.Options{Log: quiet(), Now: b.clock.Now, Seed: 1, Observer: b.seen})
	o.Log = quiet()
	l, err := port.Listen("127.0.0.1:0", o)
	if err != nil {
		t.Fatal(err)
	}
	b.address = l.Addr().String()
	g := grpc.NewServer(append(xds.GRPCOptions(l.Credentials(c)), grpc.StreamInterceptor(l.Intercept),
		grpc.StatsHandler(l.Deliveries()))...)
	b.server.Register(g)
	done := make(chan error, 1)
	go func() { done <- g.Serve(b.server.Listener(l)) }()
	t.Cleanup(func() {
		g.Stop()
		if err := <-done; err != nil {
			t.Errorf("serving xDS: %v", err)
		}
	})
	return b, l
}

// openStream opens a stream on a connection of its own, and sends nothing.
func (b *testServer) openStream(method string) grpc.ClientStream {
	b.t.Helper()
	conn := grpctest.Connect(b.t, b.address)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	b.t.Cleanup(cancel)
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
	if err != nil {
		b.t.Fatal(err)
	}
	return stream
}

// TestMuteStreamsKeepNoEnvoyOut: a client can open mute streams again and again, so their connections are idle, and are
// closed for an Envoy that connects, also before the streams are ended.
func TestMuteStreamsKeepNoEnvoyOut(t *testing.T) {
	const connections = 21
	b, l := onPort(t, port.Options{Connections: connections, PerAddress: 1000, Streams: 1000, FirstMessage: time.Hour},
		nil)
	b.publish("llama", equal(1))
	envoy := b.dial(xdstest.Config{Clusters: []string{"llama"}}) // may be silent after its first messages
	b.received(envoy, "llama", 1)
	for i := range connections - 1 {
		b.openStream(streamMethods[i%len(streamMethods)])
	}
	eventually(t, "all streams are open", func() bool { return l.Stats().Streams.Used == connections })
	late := b.dial(xdstest.Config{NodeID: "envoy-2", Clusters: []string{"llama"}})
	b.received(late, "llama", 1)
	b.publish("llama", equal(2))
	b.received(late, "llama", 2)
	b.received(envoy, "llama", 2)
	if s := l.Stats().Connections; s.Refused != 0 || s.Displaced == 0 {
		t.Errorf("%+v, want a connection with a mute stream closed for the Envoy that came late", s)
	}
}

func TestMuteStreamsEnd(t *testing.T) {
	b, l := onPort(t, port.Options{Connections: 100, PerAddress: 100, Streams: 1000,
		FirstMessage: 100 * time.Millisecond}, nil)
	b.publish("llama", equal(1))
	envoy := b.dial(xdstest.Config{Clusters: []string{"llama"}})
	b.received(envoy, "llama", 1)
	var mute []grpc.ClientStream
	for _, method := range streamMethods {
		mute = append(mute, b.openStream(method))
	}
	for i, s := range mute {
		err := s.RecvMsg(&discoveryv3.DiscoveryResponse{})
		const want = "the stream's first message has not arrived within 100ms"
		if status.Code(err) != codes.DeadlineExceeded || status.Convert(err).Message() != want {
			t.Errorf("%s: %v, want %q", streamMethods[i], err, want)
		}
	}
	eventually(t, "only the Envoy's stream is open", func() bool { return l.Stats().Streams.Used == 1 })
	b.publish("llama", equal(2))
	b.received(envoy, "llama", 2)
	if s := l.Stats(); int(s.SilentStreams) != len(mute) || s.LastSilentStreamAt.IsZero() || s.Streams.Refused != 0 {
		t.Errorf("%+v, want %d silent streams", s, len(mute))
	}
}

func TestAStreamWhoseFirstRequestNamesNoNodeIsRefused(t *testing.T) {
	b := newTestServer(t)
	for _, method := range streamMethods {
		var request proto.Message = &discoveryv3.DiscoveryRequest{TypeUrl: resource.EndpointType,
			ResourceNames: []string{"llama"}}
		switch {
		case strings.HasSuffix(method, "StreamRuntime"):
			request = &discoveryv3.DiscoveryRequest{TypeUrl: resource.RuntimeType,
				ResourceNames: []string{xds.RuntimeLayer}}
		case strings.Contains(method, "/Delta"):
			request = &discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.EndpointType,
				ResourceNamesSubscribe: []string{"llama"}}
		}
		stream := b.openStream(method)
		if err := stream.SendMsg(request); err != nil {
			t.Fatal(err)
		}
		err := stream.RecvMsg(&discoveryv3.DiscoveryResponse{})
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "names no node: set node.id") {
			t.Errorf("%s: %v, want a refusal that names what is missing", method, err)
		}
	}
	eventually(t, "no subscription is left",
		func() bool { return b.server.Names().Used == 0 && len(b.server.Clients()) == 0 })
}
