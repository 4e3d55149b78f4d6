package history

import (
	"math"
	"testing"
	"time"

	"steelyard/internal/api"
)

func TestFlaggedEndpointsAreExpectedToGetNothingWhileOthersAreLeft(t *testing.T) {
	for _, test := range []struct {
		flagged []bool
		want    []float64
	}{
		{[]bool{false, false, false, false}, []float64{0.1, 0.2, 0.3, 0.4}},
		{[]bool{false, false, false, true}, []float64{1.0 / 6, 2.0 / 6, 0.5, 0}},
		{[]bool{true, true, true, true}, []float64{0.1, 0.2, 0.3, 0.4}},
	} {
		shares := []float64{0.1, 0.2, 0.3, 0.4}
		avoidFlagged(shares, test.flagged)
		for i := range shares {
			if math.Abs(shares[i]-test.want[i]) > 1e-9 {
				t.Errorf("%v: %v, want %v", test.flagged, shares, test.want)
			}
		}
	}
}

func TestEndpointsThatTheEnvoysDoNotUseAreExpectedToGetNothing(t *testing.T) {
	var d decided
	d.pushed(noon, Decided{Addresses: []string{"a:1", "b:1", "c:1"}, Shares: []float64{0.5, 0.3, 0.2},
		Flagged: make([]bool, 3), Unused: []bool{true, false, false}, ArrivalRate: 40})
	_, got := d.mean(noon.Add(time.Second), nil)
	for i, want := range []float64{0, 0.6, 0.4} {
		if math.Abs(got[i]-want) > 1e-9 {
			t.Errorf("%d: %v", i, got)
		}
	}
}

// The line of a stalled endpoint ends with its answers.
func TestTheHistoryOfALatencyEndsWithTheAnswers(t *testing.T) {
	for age, want := range map[float64]bool{1: true, 59: true, 61: false, 517: false} {
		e := api.Endpoint{LatencySeconds: api.Num(0.44), LatencyAgeSeconds: api.Num(age)}
		if v := latency(&e); math.IsNaN(v) == want {
			t.Errorf("%g s after the newest answer it is %g", age, v)
		}
	}
}
