package assignment

import (
	"fmt"
	"math"
	"math/rand/v2"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
)

const (
	minWeight = 10_000
	maxWeight = 1_000_000

	// ditherRange is the largest dither, as a share of the weight.
	ditherRange = 0.02
	// ditherStep is what is added to that range, so that a weight too small
	// for 2 % of it to be a whole number moves all the same.
	ditherStep = 1

	// fewestSteps is the smallest upper bound that still tells shares apart.
	fewestSteps = 100
)

// bounds are the smallest and the largest weight of an assignment.
type bounds struct{ low, high uint32 }

// boundsFor returns the bounds for localities of at most n endpoints, of which
// the sum of the weights must fit uint32.
func boundsFor(n int) (bounds, error) {
	if n == 0 {
		return bounds{low: minWeight, high: maxWeight}, nil
	}
	fits := uint64(math.MaxUint32) / uint64(n)
	if fits < fewestSteps {
		return bounds{}, fmt.Errorf("%d endpoints in one zone: Envoy adds their weights up in 32 bits; split the cluster or its zones", n)
	}
	if fits >= maxWeight {
		return bounds{low: minWeight, high: maxWeight}, nil
	}
	return bounds{low: uint32(max(1, fits*minWeight/maxWeight)), high: uint32(fits)}, nil
}

// weigh gives every host a dithered weight in proportion to its share, raised
// to the lower bound where it is less. At least one share is positive, if there are hosts.
func (b bounds) weigh(hosts []host, rng *rand.Rand) {
	bottom := (float64(b.low) + ditherStep) / (1 - ditherRange)
	top := (float64(b.high) - ditherStep) / (1 + ditherRange)
	largest := largestShare(hosts)
	for i := range hosts {
		base := max(bottom, hosts[i].decision.Share/largest*top)
		dither := (2*rng.Float64() - 1) * (base*ditherRange + ditherStep)
		hosts[i].weight = b.clamp(math.Round(base + dither))
	}
}

// clamp is a belt for braces: the dither stays within the bounds by construction.
func (b bounds) clamp(w float64) uint32 {
	return uint32(min(max(w, float64(b.low)), float64(b.high)))
}

// differ makes sure that at least one weight is not the one that the endpoint
// had before: Envoy ignores a change of the drop policy that comes alone.
// Both are in the order of the message, so the first pair that is not the same
// settles it; where the endpoints themselves differ, Envoy has to rebuild anyway.
func (b bounds) differ(hosts []host, previous *endpointv3.ClusterLoadAssignment) {
	i := 0
	for _, l := range previous.GetEndpoints() {
		for _, e := range l.GetLbEndpoints() {
			if i == len(hosts) || !hosts[i].sameAs(e) {
				return
			}
			i++
		}
	}
	if i == 0 || i < len(hosts) {
		return
	}
	if hosts[0].weight < b.high {
		hosts[0].weight++
	} else {
		hosts[0].weight--
	}
}

// sameAs compares address and weight.
func (h host) sameAs(e *endpointv3.LbEndpoint) bool {
	a := e.GetEndpoint().GetAddress().GetSocketAddress()
	return e.GetLoadBalancingWeight().GetValue() == h.weight &&
		a.GetPortValue() == uint32(h.addr.Port()) && a.GetAddress() == h.addr.Addr().String()
}
