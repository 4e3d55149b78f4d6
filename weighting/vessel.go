package weighting

// A Vessel is an endpoint as the fill sees it (package comment). Its unit of load is that of the decision: requests, or
// the work of a mean request.
type Vessel struct {
	Load  float64 // n_i, not negative
	Slots float64 // s_i, above 0
	Speed float64 // relative, above 0; 1 is the pool's median
}

// Vessels are the endpoints as they were filled, in the order of Endpoints.
func (d *Decision) Vessels() []Vessel {
	out := make([]Vessel, len(d.vessels))
	for i, v := range d.vessels {
		out[i] = Vessel{Load: v.load, Slots: v.slots, Speed: v.speed}
	}
	return out
}

// Rooms writes into rooms what each vessel takes of the arrivals, max(0, V_i(L) − n_i): they add up to the arrivals.
// It is the fill without a floor, for a choice that is made for one request. rooms has the length of vessels.
func Rooms(vessels []Vessel, arrivals float64, rooms []float64) {
	filled := make([]vessel, len(vessels))
	for i, v := range vessels {
		filled[i] = vessel{load: v.Load, slots: v.Slots, speed: v.Speed}
	}
	level := fill(filled, arrivals)
	for i, v := range filled {
		rooms[i] = v.room(level)
	}
}

// Decode is what is left of a mean request whose prompt is computed, in prompt tokens: half of its output, as a request
// in flight is halfway.
func (w *Work) Decode() float64 { return decodeOf(w.OutputTokens) }

func decodeOf(output float64) float64 { return outputCost * output / 2 }
