package api

import (
	"slices"
	"strings"
	"time"
	"unsafe"

	"steelyard/weighting"
)

// A Working is a decision as package weighting made it, for explanations. It does not change. The zero value is none.
type Working struct{ decision *weighting.Decision }

// WorkingOf keeps a decision.
func WorkingOf(d weighting.Decision) Working {
	if d.At.IsZero() {
		return Working{}
	}
	return Working{&d}
}

// At is when the decision was made; zero where there is none.
func (w Working) At() time.Time {
	if w.decision == nil {
		return time.Time{}
	}
	return w.decision.At
}

// Explain is a sentence about why an endpoint has its share; empty where it is not in the decision.
func (w Working) Explain(address string) string {
	i, found := w.find(address)
	if !found {
		return ""
	}
	return explain(w.decision, i)
}

// Endpoint shows the decision and one of its endpoints, with the ages of that time.
func (w Working) Endpoint(address string) (Decision, Endpoint, bool) {
	i, found := w.find(address)
	if !found {
		return Decision{}, Endpoint{}, false
	}
	one := *w.decision
	one.Endpoints = one.Endpoints[i : i+1]
	decision, endpoints := FromDecision(one, one.At)
	endpoints[0].Why = explain(w.decision, i)
	return decision, endpoints[0], true
}

// Capacity is the sum over all endpoints.
func (w Working) Capacity() (sum float64) {
	if w.decision == nil {
		return 0
	}
	for i := range w.decision.Endpoints {
		sum += w.decision.Endpoints[i].Capacity
	}
	return sum
}

// Bytes is about how much memory the decision takes.
func (w Working) Bytes() int {
	if w.decision == nil {
		return 0
	}
	const inputs, vessel, texts = 4, 24, 48
	each := unsafe.Sizeof(weighting.EndpointDecision{}) + unsafe.Sizeof(weighting.EndpointWork{}) +
		inputs*unsafe.Sizeof(weighting.Input{}) + vessel + texts
	return len(w.decision.Endpoints)*int(each) + int(unsafe.Sizeof(weighting.Decision{}))
}

func (w Working) find(address string) (int, bool) {
	if w.decision == nil {
		return 0, false
	}
	return slices.BinarySearchFunc(w.decision.Endpoints, address, func(e weighting.EndpointDecision, a string) int {
		return strings.Compare(e.Address, a)
	})
}
