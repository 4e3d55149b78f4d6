package console

import (
	"testing"

	"steelyard/controlplane/view"
)

func TestNumbersAreShort(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 4.3e-26: "<0.001", 0.0043: "0.0043", 0.05: "0.05", 12: "12",
		52.14: "52.1", 1234.6: "1235"} {
		if got := digits(v); got != want {
			t.Errorf("%g: %q, want %q", v, got, want)
		}
	}
}

// As in the sentences of the API (package weighting) and on the page.
func TestHalvesOfAPercentAreRoundedUp(t *testing.T) {
	for v, want := range map[float64]string{0: "0.0%", 0.0004: "<0.1%", 1.0 / 16: "6.3%", 3.0 / 16: "18.8%",
		1: "100.0%"} {
		if got := percent(view.Num(v)); got != want {
			t.Errorf("%g: %q, want %q", v, got, want)
		}
	}
}
