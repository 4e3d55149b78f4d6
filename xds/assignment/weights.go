package assignment

import (
	"math/rand/v2"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"steelyard/xds/envoyspec"
)

// weigh gives every host its weight. At least one share is positive, if there are hosts.
func weigh(hosts []host, b envoyspec.WeightBounds, rng *rand.Rand) {
	shares, weights := make([]float64, len(hosts)), make([]uint32, len(hosts))
	for i := range hosts {
		shares[i] = hosts[i].decision.Share
	}
	b.Weights(weights, shares, rng)
	for i := range hosts {
		hosts[i].weight = weights[i]
	}
}

// differ makes sure that at least one endpoint has another weight than before: Envoy ignores a change of the drop
// policy without a change of weights. Both are in the order of the message, so the first pair that differs is enough;
// if the endpoints themselves differ, Envoy has to rebuild anyway.
func differ(hosts []host, previous *endpointv3.ClusterLoadAssignment, high uint32) {
	i := 0
	for _, l := range previous.GetEndpoints() {
		for _, e := range l.GetLbEndpoints() {
			if i == len(hosts) || !hosts[i].same(e) {
				return
			}
			i++
		}
	}
	if i == 0 || i < len(hosts) {
		return
	}
	if hosts[0].weight < high {
		hosts[0].weight++
	} else {
		hosts[0].weight--
	}
}

// same compares address and weight.
func (h *host) same(e *endpointv3.LbEndpoint) bool {
	if e.GetLoadBalancingWeight().GetValue() != h.weight {
		return false
	}
	a, b := e.GetEndpoint().GetAddress().GetSocketAddress(), h.identifier.Endpoint.GetAddress().GetSocketAddress()
	return a.GetPortValue() == b.GetPortValue() && a.GetAddress() == b.GetAddress()
}
