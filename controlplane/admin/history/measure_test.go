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

// Of twelve, one is drained and one has no flag: Envoy sends it ten twelfths of the requests.
func TestAnEndpointThatIsDrainedIsNotOneWithoutAFlag(t *testing.T) {
	shares, flagged := make([]float64, 12), make([]bool, 12)
	for i := 1; i < len(shares); i++ {
		shares[i], flagged[i] = 1.0/11, i > 1
	}
	if avoidFlagged(shares, flagged); math.Abs(shares[1]-10.0/12) > 1e-9 {
		t.Errorf("the one without a flag gets %v of the requests", shares[1])
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

func TestTheCapacityInUseIsKnownOverFiveMinutes(t *testing.T) {
	c := api.Cluster{Endpoints: []api.Endpoint{{Address: "a:1", Capacity: api.Num(8), CompletionRate: api.Num(30),
		BusyFraction: api.Num(1)}}}
	var m measured
	var use api.Use
	for second := range 400 {
		c.Decision.ArrivalRate = api.Num(float64(27 + 12*(second%2))) // 110 % in the mean
		use = m.observe(noon.Add(time.Duration(second)*time.Second), &c, &decided{}).Use
		if _, known := use.UsedMean.Value(); known && second < 300 {
			t.Fatalf("after %d s: %+v", second, use)
		}
	}
	if math.Abs(use.UsedMean.Or(0)-1.1) > 0.001 || math.Abs(use.CapacityUsed.Or(0)-1.1) < 0.1 {
		t.Errorf("%+v", use)
	}
}

func TestTheMeanOfTheCapacityInUseOutlivesHalfAMinuteWithoutAValue(t *testing.T) {
	var u usedMean
	for range 300 {
		u.of(api.Num(1.1))
	}
	for second := range longestGap {
		if got := u.of(api.Number{}); math.Abs(got.Or(0)-1.1) > 0.001 {
			t.Fatalf("after %d s without a value: %v", second+1, got)
		}
	}
	if got, known := u.of(api.Number{}).Value(); known {
		t.Errorf("after more than that: %v", got)
	}
	if got, known := u.of(api.Num(1.1)).Value(); known {
		t.Errorf("after one second more: %v", got)
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
