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

// room is what the vessel takes up to that level, in requests.
func (v vessel) room(level float64) float64 { return max(0, level-v.level) * v.capacity }

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

// shares is each vessel's part of the traffic, and the parts add up to one: the
// floor goes by capacity, and the rest as the water under the level. Adding the
// two, and not taking the larger, keeps a full vessel's share from moving with
// the loads of the others.
func shares(vessels []vessel, level, floor float64) []float64 {
	const leastFloor = 1e-6
	floor = min(max(floor, leastFloor), 1)
	var capacity, water float64
	for _, v := range vessels {
		capacity += v.capacity
		water += v.room(level)
	}
	if water == 0 { // the level is lost in rounding
		floor, water = 1, 1
	}
	out := make([]float64, len(vessels))
	for i, v := range vessels {
		out[i] = floor*v.capacity/capacity + (1-floor)*v.room(level)/water
	}
	return out
}
