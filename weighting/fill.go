package weighting

import (
	"cmp"
	"slices"
)

// A Vessel is an endpoint as the fill sees it (package comment). It is as wide as its slots until the last of them is
// taken, because up to there no request waits, on a fast or a slow endpoint. Further requests wait for a slot, and the
// slower the endpoint the faster its level rises. (If it were as wide as its capacity from the bottom, slots of slow
// endpoints would idle while requests queue at fast ones.)
type Vessel struct {
	Load  float64 // n_i, not negative; its unit is that of the decision: requests, or the work of a mean request
	Slots float64 // s_i, above 0
	Speed float64 // relative, above 0; 1 is the pool's median
}

// Rooms writes into rooms what each vessel takes of the arrivals, max(0, V_i(L) − n_i): they add up to the arrivals.
// It is the fill without a floor, for a choice that is made for one request. rooms has the length of vessels.
func Rooms(vessels []Vessel, arrivals float64, rooms []float64) {
	level := fill(vessels, arrivals)
	for i, v := range vessels {
		rooms[i] = v.room(level)
	}
}

// capacity is the vessel's width above the brim, in requests per unit of level.
func (v Vessel) capacity() float64 { return v.Slots * v.Speed }

// brim is the load at which a further request takes the last slot, or waits.
func (v Vessel) brim() float64 { return max(0, v.Slots-1) }

// level is how high the load fills it.
func (v Vessel) level() float64 {
	served := min(v.Load, v.brim())
	return served/v.Slots + (v.Load-served)/v.capacity()
}

// holds is the load at a level, the inverse of level.
func (v Vessel) holds(level float64) float64 {
	wide := min(level, v.brim()/v.Slots)
	return wide*v.Slots + (level-wide)*v.capacity()
}

// room is what the vessel takes up to that level, in requests.
func (v Vessel) room(level float64) float64 { return max(0, v.holds(level)-v.Load) }

// excludedLevel is a bound, far above the level of those that are filled.
const excludedLevel = 1e6

// edge is a level at which the width under water changes.
type edge struct {
	level float64
	width float64 // requests per unit of level; negative where a vessel narrows
}

// edges of all vessels, lowest first.
func edges(vessels []Vessel) []edge {
	out := make([]edge, 0, 2*len(vessels))
	for _, v := range vessels {
		switch brim := v.brim(); {
		case v.Load >= brim || v.Speed == 1:
			out = append(out, edge{v.level(), v.capacity()})
		default:
			out = append(out, edge{v.level(), v.Slots}, edge{brim / v.Slots, v.capacity() - v.Slots})
		}
	}
	slices.SortFunc(out, compareEdges)
	return out
}

// compareEdges orders by level, and at one level the wider first.
func compareEdges(a, b edge) int {
	switch {
	case a.level < b.level:
		return -1
	case a.level > b.level:
		return 1
	}
	return cmp.Compare(b.width, a.width)
}

// fill raises the lowest vessels to a common level until they hold `arrivals` more, and returns that level: the L of Σ
// max(0, V_i(L) − n_i) = arrivals.
func fill(vessels []Vessel, arrivals float64) (level float64) {
	sorted := edges(vessels)
	var width, held float64 // under water so far
	for i, e := range sorted {
		width += e.width
		held += e.level * e.width
		level = (arrivals + held) / width
		if i+1 == len(sorted) || level <= sorted[i+1].level {
			break
		}
	}
	return level
}

// shares is each vessel's part of the traffic; the parts add up to one. The floor goes by capacity, and the rest as the
// water under the level. Adding the two, instead of taking the larger, keeps a full vessel's share from moving with the
// loads of the others.
func shares(vessels []Vessel, level, floor float64) []float64 {
	const leastFloor = 1e-6 // a bound: each endpoint gets some, and so is seen
	floor = min(max(floor, leastFloor), 1)
	var capacity, water float64
	for _, v := range vessels {
		capacity += v.capacity()
		water += v.room(level)
	}
	if water == 0 { // the level is lost in rounding
		floor, water = 1, 1
	}
	out := make([]float64, len(vessels))
	for i, v := range vessels {
		out[i] = floor*v.capacity()/capacity + (1-floor)*v.room(level)/water
	}
	return out
}
