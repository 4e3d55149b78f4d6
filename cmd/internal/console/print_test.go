package console

import "testing"

func TestNumbersAreShort(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 4.3e-26: "<0.001", 0.0043: "0.0043", 0.05: "0.05", 12: "12",
		52.14: "52.1", 1234.6: "1235"} {
		if got := digits(v); got != want {
			t.Errorf("%g: %q, want %q", v, got, want)
		}
	}
}
