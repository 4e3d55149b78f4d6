package envoybootstrap

import (
	"context"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	edsv3 "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	runtimev3 "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	cachev3 "github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	serverv3 "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// heartbeat is how often a controlPlane sends everything again.
const heartbeat = 200 * time.Millisecond

// runtimeLayer is the runtime resource that the bootstraps ask for.
const runtimeLayer = "steelyard"

// A controlPlane is a small stand-in for Steelyard: it serves assignments over
// EDS, and sends them again at every heartbeat, so that they do not go stale; and
// an empty runtime layer, which an Envoy waits for at its start.
type controlPlane struct {
	address string

	mu          sync.Mutex
	assignments map[string]types.Resource
	nodes       []string // ids of the Envoys seen
	stop        func()
}

// startControlPlane serves on a port of the kernel's choice until the test ends.
func startControlPlane(t *testing.T, options ...grpc.ServerOption) *controlPlane {
	t.Helper()
	cp := &controlPlane{address: "127.0.0.1:0", assignments: make(map[string]types.Resource)}
	cp.start(t, options...)
	t.Cleanup(func() { cp.stop() })
	return cp
}

// start serves at the address that it had before.
func (cp *controlPlane) start(t *testing.T, options ...grpc.ServerOption) {
	t.Helper()
	listener, err := net.Listen("tcp", cp.address)
	if err != nil {
		t.Fatal(err)
	}
	cp.address = listener.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	cache := cachev3.NewLinearCache(resourcev3.EndpointType)
	// Envoy's keep-alive is more frequent than what a gRPC server puts up with.
	patient := grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second,
		PermitWithoutStream: true})
	server := grpc.NewServer(append(options, patient)...)
	edsv3.RegisterEndpointDiscoveryServiceServer(server,
		serverv3.NewServer(ctx, cache, serverv3.CallbackFuncs{StreamRequestFunc: cp.saw}))

	runtimes := cachev3.NewLinearCache(resourcev3.RuntimeType, cachev3.WithInitialResources(map[string]types.Resource{
		runtimeLayer: &runtimev3.Runtime{Name: runtimeLayer, Layer: &structpb.Struct{}},
	}))
	runtimev3.RegisterRuntimeDiscoveryServiceServer(server, serverv3.NewServer(ctx, runtimes, nil))

	var running sync.WaitGroup
	running.Go(func() { _ = server.Serve(listener) })
	running.Go(func() { cp.beat(ctx, cache) })
	cp.stop = func() {
		cancel()
		server.Stop()
		running.Wait()
	}
}

// beat sends all assignments now and at every heartbeat.
func (cp *controlPlane) beat(ctx context.Context, cache *cachev3.LinearCache) {
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	for {
		cp.mu.Lock()
		_ = cache.UpdateResources(cp.assignments, nil)
		cp.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (cp *controlPlane) saw(_ int64, r *discoveryv3.DiscoveryRequest) error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	if id := r.GetNode().GetId(); id != "" && !slices.Contains(cp.nodes, id) {
		cp.nodes = append(cp.nodes, id)
	}
	return nil
}

// publish sends an assignment with the next heartbeat.
func (cp *controlPlane) publish(a *endpointv3.ClusterLoadAssignment) {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	next := make(map[string]types.Resource, len(cp.assignments)+1)
	maps.Copy(next, cp.assignments)
	next[a.GetClusterName()] = a
	cp.assignments = next
}

// An endpoint of an assignment; weight 0 means none.
type endpoint struct {
	address string
	weight  uint32
	health  corev3.HealthStatus
}

const (
	healthy  = corev3.HealthStatus_HEALTHY
	degraded = corev3.HealthStatus_DEGRADED
)

func assignment(service string, endpoints ...endpoint) *endpointv3.ClusterLoadAssignment {
	locality := &endpointv3.LocalityLbEndpoints{}
	for _, e := range endpoints {
		addr := netip.MustParseAddrPort(e.address)
		lb := &endpointv3.LbEndpoint{
			HealthStatus: e.health,
			HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: &corev3.Address{
				Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
					Address:       addr.Addr().String(),
					PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(addr.Port())},
				}},
			}}},
		}
		if e.weight > 0 {
			lb.LoadBalancingWeight = wrapperspb.UInt32(e.weight)
		}
		locality.LbEndpoints = append(locality.LbEndpoints, lb)
	}
	return &endpointv3.ClusterLoadAssignment{ClusterName: service,
		Endpoints: []*endpointv3.LocalityLbEndpoints{locality}}
}

// expiring adds the time after which Envoy drops the assignment's endpoints.
func expiring(a *endpointv3.ClusterLoadAssignment, after time.Duration) *endpointv3.ClusterLoadAssignment {
	a.Policy = &endpointv3.ClusterLoadAssignment_Policy{EndpointStaleAfter: durationpb.New(after)}
	return a
}

// dropping adds a share of requests to refuse.
func dropping(a *endpointv3.ClusterLoadAssignment, percent uint32) *endpointv3.ClusterLoadAssignment {
	a.Policy = new(endpointv3.ClusterLoadAssignment_Policy)
	a.Policy.DropOverloads = []*endpointv3.ClusterLoadAssignment_Policy_DropOverload{{
		Category:       "saturated",
		DropPercentage: &typev3.FractionalPercent{Numerator: percent, Denominator: typev3.FractionalPercent_HUNDRED},
	}}
	return a
}
