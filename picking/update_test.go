package picking

import (
	"math"
	"testing"

	"steelyard/weighting"
)

func TestWorkBecomesTheCostOfARequest(t *testing.T) {
	w := &weighting.Work{PromptTokens: 900, OutputTokens: 200, TokensPerByte: 0.25, BySize: true, Cached: 0.4}
	c := CostOf(w) // the decode of a mean request is 150 prompt tokens
	for what, pair := range map[string][2]float64{
		"base": {c.Base, 150.0 / 1050}, "per byte": {c.PerByte, 0.25 / 1050}, "mean": {c.Mean, 1},
		"most": {c.Most, mostCost}, "cached": {c.Cached, 0.4},
		"a prompt that is not cached": {c.uncached(1), (150 + 900/0.6) / 1050},
	} {
		if math.Abs(pair[0]-pair[1]) > 1e-12 {
			t.Errorf("%s is %v, want %v", what, pair[0], pair[1])
		}
	}
	w.BySize, w.TokensPerByte, w.Cached = false, math.NaN(), 1
	if got := CostOf(w); got.PerByte != 0 || got.Cached != MostCached {
		t.Errorf("without a size that says something, with everything cached: %+v", got)
	}
	if got := CostOf(nil); got != Requests() {
		t.Errorf("where a request is the unit: %+v", got)
	}
}
