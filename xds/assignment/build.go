package assignment

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"steelyard/weighting"
)

// DropCategory is the one category of drop_overloads that is ever sent.
const DropCategory = "steelyard_saturation"

// overprovisioning is how much healthy endpoints are taken to be worth, in percent.
// Envoy sends the rest to the DEGRADED ones: with its default of 140, one flagged
// endpoint of three still got 7 % of the requests, more than its weight. With 1000
// flagged endpoints get none while a tenth of the pool is not flagged; how much
// the others can bear is for the weights to say.
const overprovisioning = 1000

// dropDenominator is the resolution of a drop fraction on the wire (MILLION).
const dropDenominator = 1_000_000

// Options says what goes into an assignment beside the decision.
type Options struct {
	// EndpointStaleAfter makes Envoy drop the endpoints when no assignment came
	// for so long. Zero, the default, leaves it out: endpoints never go stale.
	EndpointStaleAfter time.Duration

	// Previous is the assignment that this one is to replace, or nil. At least
	// one weight of the new one differs from it.
	Previous *endpointv3.ClusterLoadAssignment
}

// A host is an endpoint of the decision with its address taken apart.
type host struct {
	addr     netip.AddrPort
	decision *weighting.EndpointDecision
	weight   uint32
}

// Build makes the assignment of the cluster with that EDS service name. The
// dither comes from rng, which Build does not keep.
//
// It fails when an address is not IP:PORT or
// appears twice, when a share is negative or not finite or none is positive, when
// the drop fraction is not within 0..1, and when there are more endpoints than weights can
// be told apart for. A decision without endpoints is a valid, empty assignment.
func Build(cluster string, d weighting.Decision, o Options, rng *rand.Rand) (*endpointv3.ClusterLoadAssignment, error) {
	if cluster == "" {
		return nil, errors.New("building an assignment: the cluster has no name")
	}
	m, err := build(cluster, d, o, rng)
	if err != nil {
		return nil, fmt.Errorf("building the assignment of cluster %q: %w", cluster, err)
	}
	return m, nil
}

func build(cluster string, d weighting.Decision, o Options, rng *rand.Rand) (*endpointv3.ClusterLoadAssignment, error) {
	hosts, err := parseHosts(d.Endpoints)
	if err != nil {
		return nil, err
	}
	policy, err := buildPolicy(d.DropFraction, o.EndpointStaleAfter)
	if err != nil {
		return nil, err
	}
	bounds, err := weighting.BoundsFor(largestZone(hosts))
	if err != nil {
		return nil, err
	}
	weigh(hosts, bounds, rng)
	differ(hosts, o.Previous, bounds.High)
	return &endpointv3.ClusterLoadAssignment{
		ClusterName: cluster,
		Endpoints:   localities(hosts),
		Policy:      policy,
	}, nil
}

// parseHosts checks the endpoints and puts them into the order of the message:
// by zone, then by address. The decision's own order must not matter, or a
// reordered but equal decision would be dithered differently.
func parseHosts(endpoints []weighting.EndpointDecision) ([]host, error) {
	hosts := make([]host, 0, len(endpoints))
	seen := make(map[netip.AddrPort]struct{}, len(endpoints))
	for i := range endpoints {
		e := &endpoints[i]
		addr, err := parseAddress(e.Address)
		if err != nil {
			return nil, err
		}
		if _, twice := seen[addr]; twice {
			return nil, fmt.Errorf("endpoint %q appears twice: an address is an endpoint's identity within its cluster", e.Address)
		}
		seen[addr] = struct{}{}
		if !(e.Share >= 0) || math.IsInf(e.Share, 0) {
			return nil, fmt.Errorf("endpoint %q has share %v: a share is a finite number and not negative", e.Address, e.Share)
		}
		hosts = append(hosts, host{addr: addr, decision: e})
	}
	slices.SortFunc(hosts, func(a, b host) int {
		return cmp.Or(cmp.Compare(a.decision.Zone, b.decision.Zone), a.addr.Compare(b.addr))
	})
	if len(hosts) > 0 && largestShare(hosts) <= 0 {
		return nil, errors.New("no endpoint has a positive share: there is nothing to weigh by")
	}
	return hosts, nil
}

// parseAddress accepts what Envoy accepts in a socket address of type STATIC.
func parseAddress(s string) (netip.AddrPort, error) {
	addr, err := netip.ParseAddrPort(s)
	switch {
	case err != nil:
		return netip.AddrPort{}, fmt.Errorf("endpoint address %q: %w; write IP:PORT, or [IP]:PORT for IPv6", s, err)
	case addr.Port() == 0:
		return netip.AddrPort{}, fmt.Errorf("endpoint address %q: port 0 cannot be connected to; write the serving port", s)
	case addr.Addr().Zone() != "":
		return netip.AddrPort{}, fmt.Errorf("endpoint address %q: an IPv6 zone means nothing on another machine; write the address without it", s)
	}
	return addr, nil
}

func largestShare(hosts []host) float64 {
	var largest float64
	for _, h := range hosts {
		largest = max(largest, h.decision.Share)
	}
	return largest
}

// largestZone is the number of endpoints in the zone that has most of them.
// hosts are sorted by zone.
func largestZone(hosts []host) int {
	largest, run := 0, 0
	for i := range hosts {
		if i == 0 || hosts[i].decision.Zone != hosts[i-1].decision.Zone {
			run = 0
		}
		run++
		largest = max(largest, run)
	}
	return largest
}

// localities groups the hosts, which are sorted by zone.
func localities(hosts []host) []*endpointv3.LocalityLbEndpoints {
	var out []*endpointv3.LocalityLbEndpoints
	shrink := weightOf(hosts)/math.MaxUint32 + 1 // the localities' weights must add up within uint32 too
	for start := 0; start < len(hosts); {
		zone, end := hosts[start].decision.Zone, start
		for end < len(hosts) && hosts[end].decision.Zone == zone {
			end++
		}
		out = append(out, locality(zone, hosts[start:end], shrink))
		start = end
	}
	return out
}

func locality(zone string, hosts []host, shrink uint64) *endpointv3.LocalityLbEndpoints {
	l := &endpointv3.LocalityLbEndpoints{
		Locality:            &corev3.Locality{Zone: zone},
		LbEndpoints:         make([]*endpointv3.LbEndpoint, 0, len(hosts)),
		LoadBalancingWeight: wrapperspb.UInt32(uint32(max(1, weightOf(hosts)/shrink))),
	}
	for _, h := range hosts {
		l.LbEndpoints = append(l.LbEndpoints, endpoint(h))
	}
	return l
}

func weightOf(hosts []host) uint64 {
	var sum uint64
	for _, h := range hosts {
		sum += uint64(h.weight)
	}
	return sum
}

func endpoint(h host) *endpointv3.LbEndpoint {
	e := &endpointv3.LbEndpoint{
		HostIdentifier:      &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: socketAddress(h.addr)}},
		LoadBalancingWeight: wrapperspb.UInt32(h.weight),
	}
	if h.decision.Overloaded {
		e.HealthStatus = corev3.HealthStatus_DEGRADED
		e.Metadata = overloadMetadata(h.decision.OverloadReason)
	}
	return e
}

func socketAddress(a netip.AddrPort) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address:       a.Addr().String(),
		PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(a.Port())},
	}}}
}

// buildPolicy says how far endpoints that are not flagged cover for those that are,
// and the rest where there is something to say.
func buildPolicy(drop float64, staleAfter time.Duration) (*endpointv3.ClusterLoadAssignment_Policy, error) {
	if !(drop >= 0 && drop <= 1) {
		return nil, fmt.Errorf("drop fraction %v: it must lie within 0..1", drop)
	}
	if staleAfter < 0 {
		return nil, fmt.Errorf("endpoint_stale_after %v: it must not be negative", staleAfter)
	}
	millionths := uint32(math.Round(drop * dropDenominator))
	policy := &endpointv3.ClusterLoadAssignment_Policy{
		OverprovisioningFactor: wrapperspb.UInt32(overprovisioning),
	}
	if millionths > 0 {
		policy.DropOverloads = []*endpointv3.ClusterLoadAssignment_Policy_DropOverload{{
			Category: DropCategory,
			DropPercentage: &typev3.FractionalPercent{
				Numerator:   millionths,
				Denominator: typev3.FractionalPercent_MILLION,
			},
		}}
	}
	if staleAfter > 0 {
		policy.EndpointStaleAfter = durationpb.New(staleAfter)
	}
	return policy, nil
}
