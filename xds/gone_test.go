package xds_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"steelyard/internal/api"
	"steelyard/xds"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	endpointservice "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// listened makes a testServer that sees how connections end.
func listened(t *testing.T) *testServer {
	t.Helper()
	b := &testServer{t: t, clock: &clock{now: time.Unix(1_700_000_000, 0)}, seen: &observer{}}
	b.server = xds.NewServer(xds.Options{Log: quiet(), Now: b.clock.Now, Seed: 1, Observer: b.seen})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b.address = l.Addr().String()
	g := grpc.NewServer(xds.GRPCOptions(nil)...)
	b.server.Register(g)
	done := make(chan error, 1)
	go func() { done <- g.Serve(b.server.Listener(l)) }()
	b.stop = g.Stop
	t.Cleanup(func() {
		g.Stop()
		if err := <-done; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Errorf("serving xDS: %v", err)
		}
	})
	return b
}

// An envoy is one stream of a client whose connection can be cut under it.
type envoy struct {
	peer string
	raw  *net.TCPConn
	stop func() // ends the stream as an Envoy does that is stopped, and then the connection
}

// connectAs opens a stream, and returns once the server has the node of the stream.
func (b *testServer) connectAs(node string) *envoy {
	b.t.Helper()
	e := &envoy{}
	connected := make(chan net.Conn, 1)
	conn, err := grpc.NewClient("passthrough:///"+b.address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
			select {
			case connected <- c:
				return c, err
			default:
				return nil, errors.New("it connects once")
			}
		}))
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	b.t.Cleanup(func() { cancel(); conn.Close() })
	stream, err := endpointservice.NewEndpointDiscoveryServiceClient(conn).StreamEndpoints(ctx)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := stream.Send(&discoveryv3.DiscoveryRequest{Node: &corev3.Node{Id: node},
		ResourceNames: []string{"llama"}}); err != nil {
		b.t.Fatal(err)
	}
	e.raw = (<-connected).(*net.TCPConn)
	e.peer = e.raw.LocalAddr().String()
	eventually(b.t, "the server has the node "+node, func() bool { return b.connected(e.peer) })
	e.stop = func() {
		cancel()
		_, _ = stream.Recv() // returns when the stream is reset
		conn.Close()
	}
	return e
}

func (b *testServer) connected(peer string) bool {
	for _, c := range b.server.Clients() {
		if c.Address == peer && c.NodeID != "" {
			return true
		}
	}
	return false
}

// forgotten waits until the server has recorded the end of the connection.
func (b *testServer) forgotten(e *envoy) {
	b.t.Helper()
	eventually(b.t, e.peer+" is no longer connected", func() bool { return !b.connected(e.peer) })
}

func (b *testServer) gone(t *testing.T, want ...api.GoneEnvoy) {
	t.Helper()
	if want == nil {
		want = []api.GoneEnvoy{}
	}
	if diff := cmp.Diff(want, append([]api.GoneEnvoy{}, b.server.Gone()...)); diff != "" {
		t.Errorf("gone (-want +got):\n%s", diff)
	}
}

func TestAnEnvoyWhoseConnectionEndsUnderItsStreamIsGone(t *testing.T) {
	for cause, linger := range map[string]int{"the connection was closed": -1, "the connection was reset": 0} {
		b := listened(t)
		since := b.clock.Now()
		e, other := b.connectAs("edge-1"), b.connectAs("edge-2")
		if err := errors.Join(e.raw.SetLinger(linger), e.raw.Close()); err != nil {
			t.Fatal(err)
		}
		b.forgotten(e)
		b.gone(t, api.GoneEnvoy{NodeID: "edge-1", Address: e.peer, Since: api.At(since), Cause: cause})

		b.clock.advance(9 * time.Minute)
		again := b.connectAs("edge-1")
		b.gone(t) // it has reconnected
		other.raw.Close()
		b.forgotten(other)
		b.gone(t, api.GoneEnvoy{NodeID: "edge-2", Address: other.peer, Since: api.At(since.Add(9 * time.Minute)),
			Cause: "the connection was closed"})
		b.clock.advance(10 * time.Minute)
		b.gone(t, b.server.Gone()[0]) // for all of ten minutes
		b.clock.advance(time.Second)
		b.gone(t)
		again.stop()
	}
}

func TestAnEnvoyThatEndsItsStreamIsNotGone(t *testing.T) {
	b := listened(t)
	for range 50 { // the result must not depend on which goroutine is first
		e := b.connectAs("edge-1")
		e.stop()
		b.forgotten(e)
		b.gone(t)
	}
}

// The server detects a half-open connection after its Envoy has reconnected.
func TestAnEnvoyThatReconnectedBeforeItsOldConnectionEndedIsNotGone(t *testing.T) {
	b := listened(t)
	old := b.connectAs("edge-1")
	b.clock.advance(time.Second)
	b.connectAs("edge-1")
	old.raw.Close()
	b.forgotten(old)
	b.gone(t)
}

func TestEnvoysAreNotGoneWhenTheServerStops(t *testing.T) {
	b := listened(t)
	e := b.connectAs("edge-1")
	b.server.Close()
	b.stop()
	b.forgotten(e)
	b.gone(t)
}

func TestTheNumberOfRememberedGoneEnvoysIsLimited(t *testing.T) {
	s := xds.NewServer(xds.Options{Log: quiet()})
	const room = 1024
	for i := range room + 10 {
		xds.Vanish(s, fmt.Sprintf("edge-%04d", i), time.Now().Add(time.Duration(i)*time.Millisecond))
	}
	if got := s.Gone(); len(got) != room || got[0].NodeID != "edge-1033" || got[room-1].NodeID != "edge-0010" {
		t.Errorf("%d are remembered, from %s to %s", len(got), got[0].NodeID, got[len(got)-1].NodeID)
	}
}
