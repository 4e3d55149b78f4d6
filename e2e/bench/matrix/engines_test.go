//go:build long

package matrix_test

import (
	"fmt"
	"strings"
	"testing"

	"steelyard/sim"
)

// engineLimits are what the times of a cell may be, by those of least_request. At load 0.95 with slow engines it leaves
// requests at these for twenty seconds, and the fast ones emptier: there the median and the time per output token are
// what the shorter tail and the shorter mean cost. In the other cells the ratio of the time per output token has a
// standard deviation of 0.025 from seed to seed, about a mean of 1.02 at most (twelve seeds of the scenario llm, load
// 0.8, scrapes; at load 0.5 one of 0.06, about a mean below 1). So one cell of one seed is held to 1.1, three
// deviations, which only shows what is grossly wrong, and the mean over the cells to 1.03.
func engineLimits(cell sim.Scenario) times {
	if cell.Load >= 0.95 && len(cell.Pods) > 1 {
		return times{firstMean: 1, endMean: 1, endP50: 1.1, perTokenP99: 1.25}
	}
	return times{firstMean: 1, endMean: 1.01, endP50: 1.01, perTokenP99: 1.1}
}

// TestSteelyardIsNeverWorseThanLeastRequestOnEngines takes half a minute of two cores. The access log wins in every
// cell; with load reports and scrapes the p99 is like that of least_request in some. That of a cell is uncertain by a
// tenth from seed to seed; the seed is fixed, and the largest ratio is 1.04.
func TestSteelyardIsNeverWorseThanLeastRequestOnEngines(t *testing.T) {
	cells := engineMatrix()
	if len(cells) != 3*2*2 {
		t.Fatalf("the matrix has %d cells", len(cells))
	}
	ratios := []float64{1, 1.05, 1.05}        // by sources
	perToken := make([]float64, len(sources)) // sums over the cells of equal engines
	alike := 0.0
	var all strings.Builder
	for _, o := range play(t, cells) {
		fmt.Fprintln(&all, o)
		if o.err != nil {
			t.Error(o.err)
			continue
		}
		equal := len(o.cell.Pods) == 1
		if equal {
			alike++
		}
		for i, p99 := range o.steelyard {
			times := o.steelyardTimes[i].of(o.leastTimes)
			if p99 > ratios[i]*o.least || !times.within(engineLimits(o.cell)) {
				t.Errorf("%s is worse than least_request: %s", sources[i], o)
			}
			if equal {
				perToken[i] += times.perTokenP99
			}
		}
	}
	for i, sum := range perToken {
		t.Logf("%s: time per output token %.3f of least_request, mean of equal engines", sources[i], sum/alike)
		if sum > 1.03*alike {
			t.Errorf("%s: the time per output token of equal engines is %.3f of least_request", sources[i], sum/alike)
		}
	}
	t.Logf("p99 of the time to the first token in seconds, its ratio; {ratios of its mean, of the time to the last: "+
		"mean, p50; p99 of the time per output token}:\n%s", &all)
}
