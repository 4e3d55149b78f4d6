package picking

import "steelyard/weighting"

// A Cost is what a request adds to the load of its endpoint, in the unit of the loads:
// Base + PerByte · size, at most Most.
type Cost struct {
	Base    float64 // of any request
	PerByte float64 // 0 if the size has no influence
	Mean    float64 // of a request whose size is not known
	Most    float64 // 0: no limit
	// Cached is the share of the prompts that prefix caches answer, 0..1 and less than 1: PerByte and Mean apply to the
	// rest.
	Cached float64
}

// Requests returns the cost if the unit of load is the request.
func Requests() Cost { return Cost{Base: 1, Mean: 1} }

// of returns the cost of a request.
func (c Cost) of(r Request) float64 {
	if r.Size < 0 || c.PerByte == 0 {
		return c.Mean
	}
	cost := c.Base + c.PerByte*float64(r.Size)
	if c.Most > 0 {
		cost = min(cost, c.Most)
	}
	return cost
}

// uncached returns the cost of a request of which nothing is cached, from its cost in the mean.
func (c Cost) uncached(cost float64) float64 {
	cost = c.Base + max(0, cost-c.Base)/(1-c.Cached)
	if c.Most > 0 {
		cost = min(cost, c.Most)
	}
	return cost
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
