package conditions

import (
	"math"
	"slices"

	"steelyard/internal/api"
)

// Unread reports whether the metrics of an endpoint have not been readable for a while: one failure is none,
// as a busy server answers too late now and then.
func Unread(e *api.Endpoint) bool {
	if e.LastScrape.Error == "" {
		return false
	}
	for _, field := range []string{"queue", "running", "utilization"} {
		if in := e.Input(field); in.State == "decay" || in.State == "neutral" {
			return true
		}
	}
	return false
}

// fails reports the same also of an endpoint whose metrics were never read.
func fails(e *api.Endpoint) bool {
	inUse := func(in api.Input) bool {
		return in.Field != "in_flight" && (in.State == "fresh" || in.State == "hold")
	}
	return Unread(e) || e.LastScrape.Error != "" && !slices.ContainsFunc(e.Inputs, inUse)
}

// Part is n of all; unknown without any.
func Part(n, all float64) api.Number {
	if all <= 0 {
		return api.Number{}
	}
	return api.Num(n / all)
}

// EndpointState returns the most important state of an endpoint.
func EndpointState(e *api.Endpoint) api.EndpointState {
	switch {
	case e.Reason == reasonDrained:
		return api.EndpointDrained
	case e.Outlier:
		return api.EndpointOutlier
	case asleep(e):
		return api.EndpointAsleep
	case !e.DoubtedSince.IsZero():
		return api.EndpointDoubted
	case e.Overloaded || e.Tried != "":
		return api.EndpointOverloaded
	case e.Probed != "":
		return api.EndpointProbed
	case e.Reason == reasonNeutral:
		return api.EndpointBlind
	case e.Reason == ReasonUnused:
		return api.EndpointUnused
	case fails(e) && (e.LoadSource == "in_flight" || e.LoadSource == "fused"):
		return api.EndpointUnread
	case e.Reason == reasonDecay || fails(e):
		return api.EndpointLate
	case e.Reason == reasonBlackout || e.Reason == reasonRamp:
		return api.EndpointWarming
	case e.Reason == "floor" || e.Reason == "slow":
		return api.EndpointAboveLevel
	}
	return api.EndpointOK
}

// asleep reports whether the endpoint is flagged because its engine sleeps.
func asleep(e *api.Endpoint) bool { return e.Reason == reasonAsleep }

// OldestInput is the age of the oldest input whose state is one of these; of all without any.
func OldestInput(e *api.Endpoint, states ...string) (oldest api.Number) {
	for i := range e.Inputs {
		in := &e.Inputs[i]
		if len(states) > 0 && !slices.Contains(states, in.State) {
			continue
		}
		if age, known := in.AgeSeconds.Value(); known && age >= oldest.Or(0) {
			oldest = in.AgeSeconds
		}
	}
	return oldest
}

// LastSeen is the age of the oldest input that is in use.
func LastSeen(e *api.Endpoint) api.Number { return OldestInput(e, "fresh", "hold", "decay") }

// InFlight is the requests at an endpoint: by the Envoys' counts, or else waiting and running by its metrics.
func InFlight(e *api.Endpoint) float64 {
	if in := e.Input("in_flight"); in.State != "neutral" && in.State != "unknown" {
		return in.Value.Or(math.NaN())
	}
	queue, running := e.Input("queue"), e.Input("running")
	if queue.State == "neutral" || running.State == "neutral" {
		return math.NaN()
	}
	return queue.Value.Or(math.NaN()) + running.Value.Or(math.NaN())
}

// Reasons of an endpoint's share that matter here, as package weighting spells them.
const (
	reasonBlackout = "blackout"
	reasonNeutral  = "neutral"
	reasonDecay    = "decay"
	reasonRamp     = "ramp"
	ReasonUnused   = "unused"
	reasonAsleep   = "asleep"
	reasonDrained  = "drained"
	reasonPinned   = "pinned"
)

// CapacityOf is the capacity of a pool.
func CapacityOf(endpoints []api.Endpoint) (sum float64) {
	for i := range endpoints {
		sum += endpoints[i].Capacity.Or(0)
	}
	return sum
}

// CapacityShare is a part of the capacity, by the decision that the endpoint is shown with: one of another moment would
// differ from the sentence about it in the last digit.
func CapacityShare(e *api.Endpoint, capacity float64) api.Number {
	if n, known := e.Capacity.Value(); known {
		return Part(n, capacity)
	}
	return api.Number{}
}

// Ready reports whether the process can serve new Envoys: it has a config, is not about to stop, and every cluster has
// usable weights, those of InferencePools among them. A cluster that was added after that, or whose discovery does not
// answer, is no reason to deny them the others.
func Ready(s api.Status, clusters []api.Cluster) bool {
	if s.Draining || s.ConfigGeneration == 0 || s.Pools.Enabled && !s.Pools.Answered {
		return false
	}
	return s.BeenReady || !slices.ContainsFunc(clusters, func(c api.Cluster) bool { return !c.Ready })
}

func CountEndpoints(endpoints []api.Endpoint) api.EndpointCounts {
	n := api.EndpointCounts{Total: len(endpoints)}
	for i := range endpoints {
		e := &endpoints[i]
		n.Overloaded += BoolToInt(e.Overloaded)
		n.Stale += BoolToInt(e.Reason == reasonDecay || e.Reason == reasonNeutral)
		n.New += BoolToInt(e.Reason == reasonBlackout || e.Reason == reasonRamp)
		n.Failing += BoolToInt(fails(e) && EndpointState(e) != api.EndpointDrained)
	}
	return n
}

// LoadPerSlot is how full an endpoint is: above 1, requests wait. An engine has no slots; there it is the work in mean
// requests.
func LoadPerSlot(e *api.Endpoint) api.Number {
	if _, byWork := e.Work.Requests.Value(); byWork {
		return e.Work.Requests
	}
	load, okLoad := e.Load.Value()
	slots, okSlots := e.Slots.Value()
	if !okLoad || !okSlots || slots <= 0 {
		return api.Number{}
	}
	return api.Num(load / slots)
}
