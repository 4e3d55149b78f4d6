package assignment

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"steelyard/weighting"
	"steelyard/xds/envoyspec"
)

// DropCategory is the one category of drop_overloads that is ever sent.
const DropCategory = "steelyard_saturation"

// dropDenominator is the resolution of a drop fraction on the wire (MILLION).
const dropDenominator = 1_000_000

// Options are the inputs of an assignment besides the decision.
type Options struct {
	// EndpointStaleAfter makes Envoy drop the endpoints if it gets no assignment for so long. Zero, the default, leaves
	// it out: endpoints never go stale.
	EndpointStaleAfter time.Duration

	// Previous is the assignment that the new one replaces, or nil. At least one weight of the new one differs from it.
	Previous *endpointv3.ClusterLoadAssignment

	// Unweighted leaves the weights out: Envoy takes all for 1.
	Unweighted bool
}

// A host is an endpoint of the decision, in the order of the message.
type host struct {
	*entry
	decision *weighting.EndpointDecision
	weight   uint32
}

// A Builder builds assignments, preferably of one cluster: as long as the endpoints are those of the previous
// assignment, it reuses everything except health and weights, without parsing, sorting or allocating it again. The zero
// Builder is ready to use. A Builder must not be used concurrently; the messages that it has built can be.
type Builder struct{ entries []entry }

// Build builds the assignment of the cluster with that EDS service name. The dither comes from rng, which Build does
// not keep. The message shares parts with the previous one: neither may be changed.
//
// It fails if an address is not IP:PORT or appears twice, if a share is negative or not finite or none is positive, if
// the drop fraction is not within 0..1, and if there are so many endpoints that the range of weights becomes too small.
// A decision without endpoints is a valid, empty assignment.
func (b *Builder) Build(
	cluster string, d weighting.Decision, o Options, rng *rand.Rand,
) (*endpointv3.ClusterLoadAssignment, error) {
	if cluster == "" {
		return nil, errors.New("building an assignment: the cluster has no name")
	}
	m, err := b.build(cluster, d, o, rng)
	if err != nil {
		return nil, fmt.Errorf("building the assignment of cluster %q: %w", cluster, err)
	}
	return m, nil
}

func (b *Builder) build(
	cluster string, d weighting.Decision, o Options, rng *rand.Rand,
) (*endpointv3.ClusterLoadAssignment, error) {
	hosts, err := b.hosts(d.Endpoints)
	if err != nil {
		return nil, err
	}
	policy, err := buildPolicy(d.DropFraction, o.EndpointStaleAfter)
	if err != nil {
		return nil, err
	}
	bounds, err := envoyspec.BoundsFor(largestZone(hosts))
	if err != nil {
		return nil, err
	}
	if !o.Unweighted {
		weigh(hosts, bounds, rng)
		differ(hosts, o.Previous, bounds.High)
	}
	return &endpointv3.ClusterLoadAssignment{
		ClusterName: cluster,
		Endpoints:   localities(hosts),
		Policy:      policy,
	}, nil
}

// hosts checks the endpoints and puts them into the order of the message.
func (b *Builder) hosts(endpoints []weighting.EndpointDecision) ([]host, error) {
	if !fit(b.entries, endpoints) {
		entries, err := newEntries(endpoints)
		if err != nil {
			return nil, err
		}
		b.entries = entries
	}
	hosts := make([]host, len(b.entries))
	largest := 0.0
	for i := range b.entries {
		s := &b.entries[i]
		e := &endpoints[s.at]
		if !(e.Share >= 0) || math.IsInf(e.Share, 0) {
			return nil, fmt.Errorf("endpoint %q has share %v: a share is a finite number and not negative",
				e.Address, e.Share)
		}
		largest = max(largest, e.Share)
		hosts[i] = host{entry: s, decision: e}
	}
	if len(hosts) > 0 && largest <= 0 {
		return nil, errors.New("no endpoint has a positive share, so there are no weights")
	}
	return hosts, nil
}

// largestZone returns the number of endpoints in the zone that has most of them.
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
	shrink := weightOf(hosts)/math.MaxUint32 + 1 // the sum of the localities' weights must fit into uint32 too
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
		LbEndpoints:         make([]*endpointv3.LbEndpoint, len(hosts)),
		LoadBalancingWeight: wrapperspb.UInt32(uint32(max(1, weightOf(hosts)/shrink))),
	}
	// One allocation for all endpoints of the zone: they are freed together.
	made := make([]lbEndpoint, len(hosts))
	for i := range hosts {
		made[i].set(&hosts[i])
		l.LbEndpoints[i] = &made[i].endpoint
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

// An lbEndpoint has what changes of an endpoint with every assignment.
type lbEndpoint struct {
	endpoint endpointv3.LbEndpoint
	weight   wrapperspb.UInt32Value
}

func (e *lbEndpoint) set(h *host) {
	e.endpoint.HostIdentifier = h.identifier
	if h.weight > 0 {
		e.weight.Value = h.weight
		e.endpoint.LoadBalancingWeight = &e.weight
	}
	switch {
	case h.decision.Override.Drained:
		e.endpoint.HealthStatus = corev3.HealthStatus_DRAINING
	case h.decision.Overloaded:
		e.endpoint.HealthStatus = corev3.HealthStatus_DEGRADED
		e.endpoint.Metadata = overloadMetadata(h.decision.OverloadReason)
	}
}

// buildPolicy sets the overprovisioning factor, and drop_overloads and endpoint_stale_after if they are not zero.
func buildPolicy(drop float64, staleAfter time.Duration) (*endpointv3.ClusterLoadAssignment_Policy, error) {
	if !(drop >= 0 && drop <= 1) {
		return nil, fmt.Errorf("drop fraction %v: it must lie within 0..1", drop)
	}
	if staleAfter < 0 {
		return nil, fmt.Errorf("endpoint_stale_after %v: it must not be negative", staleAfter)
	}
	millionths := uint32(math.Round(drop * dropDenominator))
	policy := &endpointv3.ClusterLoadAssignment_Policy{
		OverprovisioningFactor: wrapperspb.UInt32(100 * envoyspec.Overprovisioning), // in percent,
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
