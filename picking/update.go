package picking

import (
	"time"

	"steelyard/weighting"
)

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

const (
	// mostCost bounds the guess of one request, in mean requests: a large body may be an image, or never be sent.
	mostCost = 32
	// MostCached bounds the Cached of a Cost: what is not cached is taken for at most ten times the mean.
	MostCached = 0.9
)

// CostOf returns what a request adds to a load: one request, or by the formula of the law (package weighting) (prompt +
// D) / (P + D), with D the decode of a mean request in prompt tokens.
func CostOf(w *weighting.Work) Cost {
	if w == nil {
		return Requests()
	}
	decode := w.Decode()
	whole := w.PromptTokens + decode
	c := Cost{Base: decode / whole, Mean: 1, Most: mostCost, Cached: min(w.Cached, MostCached)}
	if w.BySize {
		c.PerByte = w.TokensPerByte / whole
	}
	return c
}
