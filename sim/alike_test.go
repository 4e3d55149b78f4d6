package sim

import (
	"math"
	"testing"
)

// Twelve equal engines under production traffic hold requests back at times, at any number
// running. None of them is taken for smaller than the others, and Steelyard as configured by
// default is never the worse for it: what it sees decides by how much it is better.
func TestEqualEnginesStayAlikeOnATrace(t *testing.T) {
	t.Parallel()
	s := engines()
	var least sums
	least.add(run(t, s, named(LeastRequest)))
	most := map[string][2]float64{ // time to the first token, of least request: p99 and mean
		"steelyard@250ms": {1.05, 1.05}, "steelyard@50ms": {0.8, 0.85}, "steelyard@5ms": {0.55, 0.7},
	}
	for _, p := range steelyards(defaultScrape) {
		r := run(t, s, p)
		mean, off := 0.0, 0.0
		for _, n := range r.Loads {
			mean += n / float64(len(r.Loads))
		}
		for _, n := range r.Loads {
			off = max(off, math.Abs(n/mean-1))
		}
		t.Logf("%s: %.1f requests in each engine, %.1f %% from their mean at most", p.Name, r.Loads, 100*off)
		if off > 0.05 {
			t.Errorf("%s: %.1f %% from the mean, want 5 at most", p.Name, 100*off)
		}
		if c, ok := most[p.Name]; ok {
			var law sums
			law.add(r)
			law.wantAtMost(t, least, c[0], c[1])
		}
	}
}
