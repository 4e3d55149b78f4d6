package envoyspec

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// The least weight determines how many requests endpoints get that should get none: with a hundredth of the largest it
// was 4 to 16 % in a pool of 20 with few idle ones, with a ten-thousandth it is a thousandth (docs/placement.md).
const (
	leastWeight   = 1_000
	largestWeight = 10_000_000

	// ditherRange is the largest dither, as a share of the weight.
	ditherRange = 0.02
	// ditherStep is added to that range, so that even a weight of which 2 % is less than one changes.
	ditherStep = 1

	// fewestSteps is the smallest upper bound that still distinguishes shares.
	fewestSteps = 100
)

// WeightBounds are the smallest and the largest weight of a set of weights.
type WeightBounds struct{ Low, High uint32 }

// BoundsFor returns the bounds for n weights whose sum has to fit into 32 bits, in which Envoy adds them up.
func BoundsFor(n int) (WeightBounds, error) {
	if n == 0 {
		return WeightBounds{leastWeight, largestWeight}, nil
	}
	fits := uint64(math.MaxUint32) / uint64(n)
	if fits < fewestSteps {
		return WeightBounds{}, fmt.Errorf(
			"%d endpoints in one zone: Envoy adds their weights up in 32 bits; split the cluster or its zones", n)
	}
	if fits >= largestWeight {
		return WeightBounds{leastWeight, largestWeight}, nil
	}
	return WeightBounds{uint32(max(1, fits*leastWeight/largestWeight)), uint32(fits)}, nil
}

// Weights converts shares to integers for Envoy's weighted balancing: in proportion to the shares, the largest near
// High, none under Low, and each with a random dither of 2 %, fresh in every call. Envoy's scheduler restarts with
// every set of weights, from a seed that never changes; without the dither, the first picks after each push would go to
// the same endpoints. At least one share has to be positive. Weights writes the result to weights, which is as long as
// shares.
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
