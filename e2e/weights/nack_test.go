package weights

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpointservice "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"steelyard/e2e/rig/grpctest"
	"steelyard/e2e/rig/proc"
	"steelyard/e2e/rig/testbed"
	"steelyard/internal/api"
)

// corrupter is a proxy between an Envoy and Steelyard. When armed it sets a weight of the next assignment to 0, which
// Envoy refuses. Steelyard itself never sends such an assignment.
type corrupter struct {
	endpointservice.UnimplementedEndpointDiscoveryServiceServer
	upstream endpointservice.EndpointDiscoveryServiceClient
	armed    atomic.Bool
}

func startCorrupter(t *testing.T, steelyard string) (*corrupter, string) {
	t.Helper()
	conn := grpctest.Connect(t, steelyard)
	c := &corrupter{upstream: endpointservice.NewEndpointDiscoveryServiceClient(conn)}
	address, _ := grpctest.Serve(t, func(s *grpc.Server) {
		endpointservice.RegisterEndpointDiscoveryServiceServer(s, c)
	})
	return c, address
}

func (c *corrupter) StreamEndpoints(down endpointservice.EndpointDiscoveryService_StreamEndpointsServer) error {
	up, err := c.upstream.StreamEndpoints(down.Context())
	if err != nil {
		return err
	}
	failed := make(chan error, 2)
	go func() {
		for {
			request, err := down.Recv()
			if err == nil {
				err = up.Send(request)
			}
			if err != nil {
				failed <- err
				return
			}
		}
	}()
	go func() {
		for {
			response, err := up.Recv()
			if err == nil {
				err = errors.Join(c.corrupt(response), down.Send(response))
			}
			if err != nil {
				failed <- err
				return
			}
		}
	}()
	return <-failed
}

func (c *corrupter) corrupt(r *discoveryv3.DiscoveryResponse) error {
	var a endpointv3.ClusterLoadAssignment
	if err := proto.Unmarshal(r.GetResources()[0].GetValue(), &a); err != nil {
		return err
	}
	if !c.armed.Swap(false) {
		return nil
	}
	a.Endpoints[0].LbEndpoints[0].LoadBalancingWeight = wrapperspb.UInt32(0)
	return r.GetResources()[0].MarshalFrom(&a)
}

func TestANACKIsSeenAndTheLoopGoesOn(t *testing.T) {
	t.Parallel()
	pool := testbed.Pool(t, 2)
	f := start(t, testbed.Plan{Servers: pool, Envoys: 1})
	c, address := startCorrupter(t, f.XDS)
	f.Plan.XDS, f.Plan.Bootstrap = address, []string{"--mode", "shedding"}
	f.StartEnvoy(1)
	before := f.Hosts(1)

	c.armed.Store(true)
	var seen api.Subscription
	f.Eventually("the NACK is shown with Envoy's words", func() error {
		var err error
		seen, err = f.subscription("envoy-1")
		if err == nil && seen.Nacks == 0 {
			err = errors.New("no NACK")
		}
		return err
	})
	m := seen.Nack.Message
	if !strings.HasPrefix(m, "Proto constraint") || !strings.Contains(m, "LoadBalancingWeight") {
		t.Errorf("message %q, want Envoy's own words about the weight, and not the assignment before them", m)
	}
	if seen.Nack.At.IsZero() {
		t.Error("the NACK has no time")
	}
	acks := seen.Acks
	f.Eventually("later assignments are accepted again", func() error {
		s, err := f.subscription("envoy-1")
		if err == nil && (s.Acks <= acks || s.Nack.Current) {
			err = fmt.Errorf("%d ACKs, NACK current: %v", s.Acks, s.Nack.Current)
		}
		return err
	})
	testbed.Flood(t, pool[0], 500)
	f.Everywhere("both Envoys follow the load",
		func(hosts map[string]proc.Host) bool { return testbed.Avoided(hosts, pool[0].Address()) })
	if len(before) != 2 {
		t.Errorf("%d hosts before the NACK, want 2", len(before))
	}
	if nacks := f.Metric("steelyard_nacks_total"); nacks != 1 {
		t.Errorf("%v NACKs counted, want 1", nacks)
	}
}

// subscription returns what an Envoy was sent of the weighted cluster.
func (f *fleet) subscription(node string) (api.Subscription, error) {
	clients, err := f.Clients()
	if err != nil {
		return api.Subscription{}, err
	}
	for _, c := range clients {
		for _, s := range c.Subscriptions {
			if c.NodeID == node && !strings.HasSuffix(s.Resource, "/fallback") {
				return s, nil
			}
		}
	}
	return api.Subscription{}, fmt.Errorf("no subscription of %s", node)
}
