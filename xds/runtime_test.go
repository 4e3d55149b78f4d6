package xds_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	runtimev3 "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"steelyard/e2e/rig/grpctest"
	"steelyard/internal/envoyid"
	"steelyard/xds"
)

// A follower is an Envoy that subscribes to runtime layers.
type follower struct {
	t      *testing.T
	stream runtimev3.RuntimeDiscoveryService_StreamRuntimeClient
	names  []string
	last   *discoveryv3.DiscoveryResponse
}

// follow opens a stream and subscribes to layers.
func (b *testServer) follow(t *testing.T, node string, names ...string) *follower {
	t.Helper()
	conn := grpctest.Connect(t, b.address)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	stream, err := runtimev3.NewRuntimeDiscoveryServiceClient(conn).StreamRuntime(ctx)
	if err != nil {
		t.Fatal(err)
	}
	f := &follower{t: t, stream: stream, names: names}
	f.send(&discoveryv3.DiscoveryRequest{Node: &corev3.Node{Id: node}})
	return f
}

func (f *follower) send(q *discoveryv3.DiscoveryRequest) {
	f.t.Helper()
	q.TypeUrl, q.ResourceNames = resource.RuntimeType, f.names
	if f.last != nil && q.ResponseNonce == "" {
		q.ResponseNonce = f.last.GetNonce()
	}
	if err := f.stream.Send(q); err != nil {
		f.t.Fatal(err)
	}
}

// receive returns the layers of the next response.
func (f *follower) receive() map[string]map[string]float64 {
	f.t.Helper()
	r, err := f.stream.Recv()
	if err != nil {
		f.t.Fatalf("waiting for a runtime layer: %v", err)
	}
	f.last = r
	layers := map[string]map[string]float64{}
	for _, any := range r.GetResources() {
		m := &runtimev3.Runtime{}
		if err := any.UnmarshalTo(m); err != nil {
			f.t.Fatal(err)
		}
		values := map[string]float64{}
		for key, v := range m.GetLayer().GetFields() {
			values[key] = v.GetNumberValue()
		}
		layers[m.GetName()] = values
	}
	return layers
}

func (f *follower) want(values map[string]float64) {
	f.t.Helper()
	if got := f.receive(); len(got) != 1 || !maps.Equal(got[xds.RuntimeLayer], values) {
		f.t.Fatalf("received %v, want the layer %v", got, values)
	}
}

func (f *follower) accept() {
	f.t.Helper()
	f.send(&discoveryv3.DiscoveryRequest{VersionInfo: f.last.GetVersionInfo()})
}

func (f *follower) refuse(message string) {
	f.t.Helper()
	f.send(&discoveryv3.DiscoveryRequest{ErrorDetail: &rpcstatus.Status{Message: message}})
}

func (f *follower) ended() error {
	f.t.Helper()
	_, err := f.stream.Recv()
	if err == nil {
		f.t.Fatal("a response came, want the end of the stream")
	}
	return err
}

func envoyOne() envoyid.ID { return envoyid.ID{NodeID: "envoy-1", Host: "127.0.0.1"} }

func unset() map[string]float64 {
	return map[string]float64{xds.RuntimeImmediate: 100, xds.RuntimeBatched: 0}
}

func batched() map[string]float64 {
	return map[string]float64{xds.RuntimeImmediate: 0, xds.RuntimeBatched: 100}
}

func silent() map[string]float64 {
	return map[string]float64{xds.RuntimeImmediate: 0, xds.RuntimeBatched: 0}
}

// client waits for a state of the only runtime stream.
func (b *testServer) client(what string, wanted func(xds.RuntimeClient) bool) xds.RuntimeClient {
	b.t.Helper()
	var last []xds.RuntimeClient
	eventually(b.t, what, func() bool {
		last = b.server.RuntimeClients()
		return len(last) == 1 && wanted(last[0])
	})
	return last[0]
}

func TestAnEnvoyGetsTheDefaultAtOnceAndThenWhatIsSetForIt(t *testing.T) {
	b := newTestServer(t)
	f := b.follow(t, "envoy-1", xds.RuntimeLayer)
	f.want(unset())
	f.accept()
	b.client("in sync", func(c xds.RuntimeClient) bool { return c.InSync })
	b.server.SetRuntime(envoyid.ID{NodeID: "envoy-1", Host: "10.0.0.9"}, silent()) // another Envoy
	b.server.SetRuntime(envoyid.ID{NodeID: "envoy-2", Host: "127.0.0.1"}, silent())
	b.server.SetRuntime(envoyOne(), unset()) // changes nothing
	b.server.SetRuntime(envoyOne(), batched())
	f.want(batched()) // and none of the others came before it
	f.accept()
	b.server.SetRuntime(envoyOne(), batched())
	b.server.SetRuntime(envoyOne(), nil)
	f.want(unset())
}

func TestTheDefaultLayerIsAnOption(t *testing.T) {
	b := newTestServer(t)
	b.server = xds.NewServer(xds.Options{Log: quiet(), Runtime: silent()})
	b.address, b.stop = grpctest.Serve(t, b.server.Register, xds.GRPCOptions(nil)...)
	f := b.follow(t, "envoy-1", xds.RuntimeLayer)
	f.want(silent())
	f.accept()
	b.client("in sync", func(c xds.RuntimeClient) bool { return c.InSync })
	b.server.SetRuntime(envoyOne(), silent()) // changes nothing
	b.server.SetRuntime(envoyOne(), unset())
	f.want(unset())
	f.accept()
	b.server.SetRuntime(envoyOne(), nil)
	f.want(silent())
	if n := b.server.RuntimeLayers(); n != 0 {
		t.Errorf("%d layers are kept, want only the default", n)
	}
}

func TestAnEnvoyThatConnectsLaterGetsItsLayer(t *testing.T) {
	b := newTestServer(t)
	b.server.SetRuntime(envoyOne(), batched())
	for range 2 { // also one that comes back
		b.follow(t, "envoy-1", xds.RuntimeLayer).want(batched())
	}
	b.follow(t, "envoy-2", xds.RuntimeLayer).want(unset())
	b.server.SetRuntime(envoyOne(), nil)
	b.follow(t, "envoy-1", xds.RuntimeLayer).want(unset())
}

func TestALayerThatChangesWhileOneIsUnansweredIsSentAfterTheAnswer(t *testing.T) {
	b := newTestServer(t)
	f := b.follow(t, "envoy-1", xds.RuntimeLayer)
	f.want(unset())
	b.server.SetRuntime(envoyOne(), silent())
	b.server.SetRuntime(envoyOne(), batched())
	f.accept()
	f.want(batched()) // the newest only
	f.send(&discoveryv3.DiscoveryRequest{ResponseNonce: "1"})
	f.accept()
	c := b.client("in sync", func(c xds.RuntimeClient) bool { return c.InSync })
	if c.Acks != 2 {
		t.Errorf("%+v, want two ACKs: an answer to an earlier response is none", c)
	}
}

func TestARefusedLayerIsShownAndNotRepeated(t *testing.T) {
	b := newTestServer(t)
	b.server.SetRuntime(envoyOne(), batched())
	f := b.follow(t, "envoy-1", xds.RuntimeLayer)
	f.want(batched())
	f.refuse("cannot " + strings.Repeat("x", 5000))
	c := b.client("refused", func(c xds.RuntimeClient) bool { return c.Nack != "" })
	if c.InSync || c.Acks != 0 || !strings.HasPrefix(c.Nack, "cannot x") || len(c.Nack) > 1024 {
		t.Errorf("%+v", c)
	}
	b.server.SetRuntime(envoyOne(), silent())
	f.want(silent())
	f.accept()
	b.client("in sync again", func(c xds.RuntimeClient) bool { return c.InSync && c.Nack == "" })
}

func TestALayerWithAnotherNameIsEmptyAndSentAtOnce(t *testing.T) {
	b := newTestServer(t)
	f := b.follow(t, "envoy-1", "other")
	if got := f.receive(); len(got) != 1 || got["other"] == nil || len(got["other"]) != 0 {
		t.Errorf("received %v, want an empty layer", got)
	}
	f.names = []string{"other", xds.RuntimeLayer}
	f.accept()
	if got := f.receive(); len(got) != 2 || !maps.Equal(got[xds.RuntimeLayer], unset()) {
		t.Errorf("received %v, want both layers", got)
	}
}

func TestRuntimeValuesArePercentages(t *testing.T) {
	b := newTestServer(t)
	b.server.SetRuntime(envoyOne(), map[string]float64{"low": -1, "high": 1e9, "none": math.NaN(), "some": 12.5})
	b.follow(t, "envoy-1", xds.RuntimeLayer).want(map[string]float64{"low": 0, "high": 100, "some": 12.5})
}

func TestRuntimeRequestsAreLimited(t *testing.T) {
	many := make([]string, 9)
	for i := range many {
		many[i] = fmt.Sprint("layer-", i)
	}
	for name, c := range map[string]struct {
		names []string
		code  codes.Code
	}{
		"many layers": {many, codes.ResourceExhausted},
		"long name":   {[]string{strings.Repeat("x", 1025)}, codes.ResourceExhausted},
	} {
		t.Run(name, func(t *testing.T) {
			if err := newTestServer(t).follow(t, "envoy-1", c.names...).ended(); status.Code(err) != c.code {
				t.Errorf("ended with %v, want %v", err, c.code)
			}
		})
	}
	t.Run("another type", func(t *testing.T) {
		f := newTestServer(t).follow(t, "envoy-1")
		if err := f.stream.Send(&discoveryv3.DiscoveryRequest{TypeUrl: resource.ClusterType}); err != nil {
			t.Fatal(err)
		}
		if err := f.ended(); status.Code(err) != codes.InvalidArgument {
			t.Errorf("ended with %v", err)
		}
	})
}

func TestCloseEndsRuntimeStreams(t *testing.T) {
	b := newTestServer(t)
	f := b.follow(t, "envoy-1", xds.RuntimeLayer)
	f.want(unset())
	b.server.Close()
	if err := f.ended(); !errors.Is(err, io.EOF) {
		t.Errorf("ended with %v, want status OK", err)
	}
	eventually(t, "no runtime client is left", func() bool { return len(b.server.RuntimeClients()) == 0 })
}

func TestRuntimeClientsAreSorted(t *testing.T) {
	b := newTestServer(t)
	for _, node := range []string{"c", "a", "b"} {
		b.follow(t, node, xds.RuntimeLayer).want(unset())
	}
	var got []string
	for _, c := range b.server.RuntimeClients() {
		got = append(got, c.NodeID+" "+c.Host)
		if !strings.HasPrefix(c.Peer, c.Host+":") {
			t.Errorf("%+v", c)
		}
	}
	if want := []string{"a 127.0.0.1", "b 127.0.0.1", "c 127.0.0.1"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestTheNumberOfLayersIsLimited(t *testing.T) {
	server := xds.NewServer(xds.Options{Log: quiet()})
	defer server.Close()
	for i := range 20_000 {
		server.SetRuntime(envoyid.ID{NodeID: fmt.Sprint("envoy-", i)}, silent())
	}
	if n := server.RuntimeLayers(); n != 16_384 {
		t.Errorf("%d Envoys have a layer of their own, want the bound", n)
	}
	for i := range 20_000 {
		server.SetRuntime(envoyid.ID{NodeID: fmt.Sprint("envoy-", i)}, nil)
	}
	if n := server.RuntimeLayers(); n != 0 {
		t.Errorf("%d layers are left after all were set back", n)
	}
}
