package shed

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

var epoch = time.Unix(1_000_000, 0)

func TestDropQuantizer(t *testing.T) {
	var s dropQuantizer
	at := func(after float64) time.Time { return epoch.Add(time.Duration(after * float64(time.Second))) }
	for _, c := range []struct {
		after, wanted, is float64
		why               string
	}{
		{0, 0.02, 0, "is less than a step"},
		{1, 0.05, 0, "has not lasted"},
		{1.5, 0.06, 0, "has not lasted"},
		{2, 0.07, 0.07, "has lasted"},
		{2.1, 0.3, 0.3, "is far above"},
		{2.2, 0.2, 0.3, "is below, and has not lasted"},
		{3.1, 0.2, 0.3, "is below, and has not lasted"},
		{3.2, 0.2, 0.2, "is below, and slow enough"},
		{4.1, 0.1, 0.2, "has not lasted"},
		{4.3, 0.22, 0.2, "is less than a step"},
		{4.4, 0, 0.2, "has not lasted"},
		{5.4, 0, 0, "falls, no faster than 0.1 a second"},
	} {
		s.update(c.wanted, 0.1, at(c.after))
		wantNear(t, fmt.Sprintf("at %v, where %v %s: step", c.after, c.wanted, c.why), s.last().drop, c.is, 1e-9)
	}
	wantNear(t, "accepted from 2 to 2.2", s.accepted(at(2), at(2.2)), 1-(0.07+0.3)/2, 1e-6)
	wantNear(t, "accepted at first", s.accepted(at(-9), at(-1)), 1, 1e-9)
	wantNear(t, "accepted at a moment", s.accepted(at(6), at(6)), 1, 1e-9)
	for i := range 100 { // more than it remembers
		s.update(float64(i%2)*0.5, 9, at(10+2*float64(i)))
		s.update(float64(i%2)*0.5, 9, at(11.5+2*float64(i)))
	}
	wantNear(t, "accepted of late", s.accepted(at(160), at(200)), 1-0.5*3.5/4, 0.03)
}

// What leaves unseen between two readings is estimated from what is seen: exactly where it
// is rare, and to within half where up to five leave.
func TestLoadChangesOfPoissonFlows(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	poisson := func(mean float64) (n float64) {
		for at := rng.ExpFloat64(); at < mean; at += rng.ExpFloat64() {
			n++
		}
		return n
	}
	for _, mean := range []float64{0.05, 0.2, 1, 2, 5} { // requests between two readings
		var m loadChanges
		for range 20000 {
			m.add(poisson(mean)-poisson(mean), 1)
		}
		t.Logf("%v between two readings: told %.3f", mean, m.departures())
		if ratio := m.departures() / mean; ratio < 0.5 || ratio > 1.1 {
			t.Errorf("%v leave between two readings, told %v", mean, m.departures())
		}
	}
}

func wantNear(t *testing.T, what string, got, want, off float64) {
	t.Helper()
	if !(math.Abs(got-want) <= off) {
		t.Errorf("%s: %v, want %v ± %v", what, got, want, off)
	}
}
