package picking

import (
	"time"

	"steelyard/weighting"
)

// An Endpoint is an endpoint as an Update describes it.
type Endpoint struct {
	Address string // IP:port
	weighting.Vessel
	Avoid Avoidance
	// LoadAge is the time from the reading that the load rests on to the decision; 0 where that is not known.
	LoadAge time.Duration
	// Restarts counts the observed restarts of its server: a rise means that its prefix cache is empty.
	Restarts int
	// Share of the requests, 0..1, that go there whatever its load; 0: by its load.
	Share float64
}

// An Avoidance is whether other endpoints are to be preferred. Requests go to one with a higher value only where all
// others have at least that, too.
type Avoidance int

// The order of avoidance.
const (
	AvoidNone    Avoidance = iota
	AvoidFlagged           // overloaded or failing
	AvoidDrained           // an operator wants it empty
)

// Stale is the age from which an update is not used.
const Stale = 3 * time.Second

// An Update has the loads of one cluster at one time.
type Update struct {
	Endpoints   []Endpoint
	ArrivalRate float64 // requests per second at the cluster, in the unit of the loads
	// Age of the loads when the update came. Those of a decision that nothing renews grow old although they are sent
	// again.
	Age  time.Duration
	Cost Cost
	// Drop is the share of the requests that are to be refused because all endpoints are saturated, 0..1.
	Drop float64
	// BlockTokens is the size of a block of the engines' prefix caches, the largest where they differ; 0 where it is
	// not known. TokensPerByte is that of text; 0 where it is not known.
	BlockTokens   int
	TokensPerByte float64
	// LongestMatch has requests go where the most of their prompt is cached, whatever that costs, unless the endpoint
	// has too much to do.
	LongestMatch bool
}

// age is how old the load of an endpoint was when the update came.
func (u *Update) age(endpoint int) time.Duration { return u.Age + u.Endpoints[endpoint].LoadAge }

// meanAge is the mean age of the loads at the decision, without those that are older than Stale: a server whose metrics
// are gone says nothing of the others.
func (u *Update) meanAge() time.Duration {
	var sum, n time.Duration
	for i := range u.Endpoints {
		if age := u.Endpoints[i].LoadAge; age < Stale {
			sum, n = sum+age, n+1
		}
	}
	return sum / max(1, n)
}

// UpdateOf returns a decision as pickers get it.
func UpdateOf(d *weighting.Decision) Update {
	u := Update{ArrivalRate: d.ArrivalRate, Cost: CostOf(d.Work), Drop: d.DropFraction,
		Endpoints: make([]Endpoint, len(d.Endpoints))}
	if d.Work != nil && d.Work.TokensPerByte > 0 {
		u.TokensPerByte = d.Work.TokensPerByte / (1 - min(d.Work.Cached, MostCached))
	}
	for i, v := range d.Vessels() {
		e := &d.Endpoints[i]
		u.Endpoints[i] = Endpoint{Address: e.Address, Vessel: v,
			Avoid:   avoidanceOf(e),
			LoadAge: e.LoadAge, Restarts: e.Restarts, Share: d.Fixed(i)}
		if e.BlockTokens > 0 {
			u.BlockTokens = max(u.BlockTokens, int(e.BlockTokens))
		}
	}
	return u
}

// avoidanceOf returns that of an endpoint in a decision.
func avoidanceOf(e *weighting.EndpointDecision) Avoidance {
	switch {
	case e.Override.Drained:
		return AvoidDrained
	case e.Overloaded || e.Failing:
		return AvoidFlagged
	}
	return AvoidNone
}
