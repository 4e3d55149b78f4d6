package weighting

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"
)

// decided is a decision about endpoints of one slot that hold so many requests.
func decided(loads ...float64) Decision {
	var s Snapshot
	for i, n := range loads {
		e := counted(fmt.Sprintf("10.0.0.%d:80", i+1), 1, n, epoch)
		e.Exact = true
		s.Endpoints = append(s.Endpoints, e)
	}
	return NewLaw(Params{}).Step(epoch, s)
}

func TestAPushGainsTheWaitThatTheOldSharesWouldCost(t *testing.T) {
	const rarely = 1e-3
	d := decided(0, 1, 3) // as many requests are expected as there are endpoints: 3
	want(t, "requests expected", d.Arrivals, 3)
	for _, c := range []struct {
		name    string
		inForce []float64
		at      float64 // the mean level that a request meets
	}{
		{"all to the idle one: half of three requests stand before the mean one", []float64{1, 0, 0}, 1.5},
		{"all to the busy one: the one that runs, too", []float64{0, 1, 0}, 2.5},
		{"all to the one with a queue", []float64{0, 0, 1}, 4.5},
		{"a third to each", []float64{1. / 3, 1. / 3, 1. / 3}, (0.5 + 1.5 + 3.5) / 3},
	} {
		// The decision itself: two thirds to the idle one and a third to the busy one.
		best := (2./3)*1 + (1./3)*1.5
		wantNear(t, "gain, "+c.name, d.Gain(c.inForce), c.at-best, 5*rarely)
	}
	wantNear(t, "gain, the same shares",
		d.Gain([]float64{d.Endpoints[0].Share, d.Endpoints[1].Share, d.Endpoints[2].Share}), 0, 1e-12)
}

func TestNoSharesGainMuchOverThoseDecided(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		loads := rapid.SliceOfN(rapid.Float64Range(0, 50), 1, 30).Draw(t, "loads")
		inForce := rapid.SliceOfN(rapid.Float64Range(0.001, 1), len(loads), len(loads)).Draw(t, "shares")
		sum := 0.0
		for _, p := range inForce {
			sum += p
		}
		for i := range inForce {
			inForce[i] /= sum
		}
		d := decided(loads...)
		// The floor costs a thousandth of what its requests meet, which is capped.
		if gain := d.Gain(inForce); math.IsNaN(gain) || gain < -0.02 {
			t.Errorf("shares in force are better by %v", -gain)
		}
	})
}

func TestWhereSlotsAreFreeAPushGainsLittle(t *testing.T) {
	var s Snapshot
	for i, n := range []float64{0, 4, 8} {
		e := counted(fmt.Sprintf("10.0.0.%d:80", i+1), 16, n, epoch)
		e.Exact = true
		s.Endpoints = append(s.Endpoints, e)
	}
	d := NewLaw(Params{}).Step(epoch, s)
	third := []float64{1. / 3, 1. / 3, 1. / 3}
	if gain := d.Gain(third); gain <= 0 || gain > 0.3 {
		t.Errorf("gain %v, want some of the 4/16 that the slots differ by", gain)
	}
}
