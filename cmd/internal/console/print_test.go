package console

import (
	"testing"

	"steelyard/internal/api"
)

// As in the sentences of the API (package weighting) and on the page.
func TestHalvesOfAPercentAreRoundedUp(t *testing.T) {
	for v, want := range map[float64]string{0: "0.0%", 0.0004: "<0.1%", 1.0 / 16: "6.3%", 3.0 / 16: "18.8%",
		1: "100.0%"} {
		if got := percent(api.Num(v)); got != want {
			t.Errorf("%g: %q, want %q", v, got, want)
		}
	}
}
