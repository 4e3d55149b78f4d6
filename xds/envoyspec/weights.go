package envoyspec

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// The least weight is what still leaks to endpoints that should get nothing: a
// hundredth of the largest sent them 4 to 16 % of the requests of a pool of 20 with
// few idle ones, a ten-thousandth sends a thousandth (docs/placement.md).
const (
	leastWeight   = 1_000
	largestWeight = 10_000_000

	// ditherRange is the largest dither, as a share of the weight.
	ditherRange = 0.02
	// ditherStep is what is added to that range, so that a weight too small
	// for 2 % of it to be a whole number moves all the same.
	ditherStep = 1

	// fewestSteps is the smallest upper bound that still tells shares apart.
	fewestSteps = 100
)

// WeightBounds are the smallest and the largest weight of a set of weights.
type WeightBounds struct{ Low, High uint32 }

// BoundsFor returns the bounds for n weights whose sum must fit 32 bits, which is what Envoy adds
// them up in.
func BoundsFor(n int) (WeightBounds, error) {
	if n == 0 {
		return WeightBounds{leastWeight, largestWeight}, nil
	}
	fits := uint64(math.MaxUint32) / uint64(n)
	if fits < fewestSteps {
		return WeightBounds{}, fmt.Errorf("%d endpoints in one zone: Envoy adds their weights up in 32 bits; split the cluster or its zones", n)
	}
	if fits >= largestWeight {
		return WeightBounds{leastWeight, largestWeight}, nil
	}
	return WeightBounds{uint32(max(1, fits*leastWeight/largestWeight)), uint32(fits)}, nil
}

// Weights turns shares into whole numbers for Envoy's weighted balancing: in
// proportion to the shares, the largest share near High, none under Low, and each
// with a random dither of 2 %, fresh in every call. A scheduler that starts anew
// with every set of weights, from a seed that never changes, would send the first
// picks after each push to the same endpoints without it. At least one share must
// be positive. The result is written to weights, which is as long as shares.
func (b WeightBounds) Weights(weights []uint32, shares []float64, rng *rand.Rand) {
	bottom := (float64(b.Low) + ditherStep) / (1 - ditherRange)
	top := (float64(b.High) - ditherStep) / (1 + ditherRange)
	var largest float64
	for _, s := range shares {
		largest = max(largest, s)
	}
	for i, s := range shares {
		base := max(bottom, s/largest*top)
		dither := (2*rng.Float64() - 1) * (base*ditherRange + ditherStep)
		// The dither stays within the bounds by construction; the clamp is for rounding.
		weights[i] = uint32(min(max(math.Round(base+dither), float64(b.Low)), float64(b.High)))
	}
}
