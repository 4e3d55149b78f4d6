package sim

import (
	"math"
	"testing"
)

// Twelve equal engines under production traffic hold requests back at times, at any number
// running. None of them is taken for smaller than the others, and Steelyard as configured by
// default is never the worse for it.
func TestEqualEnginesStayAlikeOnATrace(t *testing.T) {
	t.Parallel()
	s := engines()
	least := run(t, s, named(LeastRequest)).FirstToken.P99
	for i, p := range steelyards(defaultScrape) {
		r := run(t, s, p)
		mean, off := 0.0, 0.0
		for _, n := range r.Loads {
			mean += n / float64(len(r.Loads))
		}
		for _, n := range r.Loads {
			off = max(off, math.Abs(n/mean-1))
		}
		t.Logf("%s: %.1f requests in each engine, %.1f %% from their mean at most; time to first token p99 %.2f s, "+
			"least request %.2f s",
			p.Name, r.Loads, 100*off, r.FirstToken.P99, least)
		if off > 0.05 {
			t.Errorf("%s: %.1f %% from the mean, want 5 at most", p.Name, 100*off)
		}
		if counted := i >= 2; counted && r.FirstToken.P99 > least {
			t.Errorf("%s: time to first token p99 %.2f s, of least request %.2f s", p.Name, r.FirstToken.P99, least)
		}
	}
}
