package weighting

import (
	"cmp"
	"slices"
)

// vessel is an endpoint as the fill sees it.
type vessel struct {
	level    float64 // l_i: requests per unit of capacity
	capacity float64 // c_i > 0
}

// fill raises the lowest vessels to a common level until they hold `arrivals`
// more, and returns that level: the L of Σ max(0, L − l_i)·c_i = arrivals.
func fill(vessels []vessel, arrivals float64) (level float64) {
	sorted := slices.Clone(vessels)
	slices.SortFunc(sorted, func(a, b vessel) int {
		return cmp.Or(cmp.Compare(a.level, b.level), cmp.Compare(a.capacity, b.capacity))
	})
	var capacity, held float64 // of the vessels under water so far
	for i, v := range sorted {
		capacity += v.capacity
		held += v.level * v.capacity
		level = (arrivals + held) / capacity
		if i+1 == len(sorted) || level <= sorted[i+1].level {
			break
		}
	}
	return level
}

// shares is each vessel's part of the water under the level, and the parts add
// up to one. Every vessel gets at least floor times its part of the capacity,
// and never nothing.
func shares(vessels []vessel, level, floor float64) []float64 {
	const leastFloor = 1e-6
	floor = max(floor, leastFloor)
	var capacity, water float64
	for _, v := range vessels {
		capacity += v.capacity
		water += max(0, level-v.level) * v.capacity
	}
	out := make([]float64, len(vessels))
	var sum float64
	for i, v := range vessels {
		part := v.capacity / capacity
		if water > 0 {
			part = max(max(0, level-v.level)*v.capacity/water, floor*part)
		}
		out[i] = part
		sum += part
	}
	for i := range out {
		out[i] /= sum
	}
	return out
}
