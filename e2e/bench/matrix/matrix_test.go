// Package matrix_test holds the promise that Steelyard's weights are never worse
// than Envoy's own least request, in every cell of a matrix of fleets by simulation,
// and in some on real Envoys: {service 0.05, 0.5, 5 s} x {1, 4, 16 slots} x
// {load 0.5, 0.8, 0.95} x {equal, a quarter of the pods three times slower} x
// {even traffic, half of it through one Envoy}.
package matrix_test

import (
	"errors"
	"flag"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"steelyard/e2e/rig/long"
	"steelyard/sim"
)

var full = flag.Bool("full", false, "run each cell as long as its tail needs: ten minutes of two cores")

// counted returns how many requests a cell counts. Short services are where late
// weights can lose, so they are looked at most closely; where a service takes much
// longer than a push, the outcome is far from the bound and long runs are dear.
func counted(service time.Duration) float64 {
	switch {
	case service < 100*time.Millisecond:
		return 12_000
	case service < time.Second:
		return 4_000
	}
	return 2_000
}

// shortened returns a cell of the matrix with fewer requests. The warm-up is half a
// minute at least, so that the law has learned what it learns.
func shortened(cell sim.Scenario) sim.Scenario {
	var work float64
	for _, p := range cell.Pods {
		speed := p.Speed
		if speed == 0 {
			speed = 1
		}
		work += float64(p.Count*p.Slots) * speed
	}
	mean := cell.Service.Mean
	perSecond := cell.Load * work / mean.Seconds()
	cell.WarmUp = max(30*time.Second, 30*mean)
	cell.Duration = cell.WarmUp + max(10*mean, time.Duration(counted(mean)/perSecond*float64(time.Second)))
	return cell
}

// sources are the rows of the standard table that are held against least_request: the
// default, counts as old as those of load reports or Redis, and what is left without any
// word from the Envoys.
var sources = []string{"steelyard@5ms", "steelyard@50ms", "steelyard@250ms"}

// policies are least_request and the sources, out of the standard table for such cells.
func policies(t *testing.T, cells []sim.Scenario) []sim.Policy {
	t.Helper()
	table := sim.Policies()
	if cells[0].Prompts != nil {
		table = sim.EnginePolicies()
	}
	var all []sim.Policy
	for _, name := range append([]string{"least_request"}, sources...) {
		i := slices.IndexFunc(table, func(p sim.Policy) bool { return p.Name == name })
		if i < 0 {
			t.Fatalf("the standard table has no %s", name)
		}
		all = append(all, table[i])
	}
	return all
}

// An outcome is a cell under least_request and under Steelyard: p99 of the wait in mean
// services, or of engines p99 of the time to the first token in seconds.
type outcome struct {
	cell      sim.Scenario
	requests  int
	least     float64
	steelyard []float64 // by sources
	err       error

	leastTimes     times   // of engines
	steelyardTimes []times // by sources
}

// times of requests to engines, in seconds: what a shorter p99 of the first token must not cost.
type times struct{ firstMean, endMean, endP50, perTokenP99 float64 }

func timesOf(r sim.Result) times {
	return times{r.FirstToken.Mean, r.EndToEnd.Mean, r.EndToEnd.P50, r.PerToken.P99}
}

// of returns the times as ratios to others.
func (t times) of(o times) times {
	return times{
		t.firstMean / o.firstMean, t.endMean / o.endMean, t.endP50 / o.endP50, t.perTokenP99 / o.perTokenP99,
	}
}

// within reports whether none is above its limit.
func (t times) within(limits times) bool {
	return t.firstMean <= limits.firstMean && t.endMean <= limits.endMean && t.endP50 <= limits.endP50 &&
		t.perTokenP99 <= limits.perTokenP99
}

func (o outcome) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-40s n %6d  least_request %7.3f", o.cell.Name, o.requests, o.least)
	for i, p99 := range o.steelyard {
		fmt.Fprintf(&b, "  %s %7.3f ratio %.2f", sources[i], p99, p99/o.least)
		if o.cell.Prompts != nil {
			fmt.Fprintf(&b, " %.2f", o.steelyardTimes[i].of(o.leastTimes))
		}
	}
	return b.String()
}

// play runs cells, as many at a time as there are processors.
func play(t *testing.T, cells []sim.Scenario) []outcome {
	t.Helper()
	policies := policies(t, cells)
	outcomes := make([]outcome, len(cells))
	turns := make(chan int)
	var players sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		players.Go(func() {
			for i := range turns {
				outcomes[i] = playOne(t, cells[i], policies)
			}
		})
	}
	for i := range cells {
		turns <- i
	}
	close(turns)
	players.Wait()
	return outcomes
}

// playOne runs a cell under least_request, the first of the policies, and the others.
func playOne(t *testing.T, cell sim.Scenario, policies []sim.Policy) outcome {
	o := outcome{cell: cell}
	for i, p := range policies {
		r, err := sim.Run(t.Context(), cell, p)
		p99 := r.Wait.P99
		if cell.Prompts != nil {
			p99 = r.FirstToken.P99
		}
		switch o.err = errors.Join(o.err, err); i {
		case 0:
			o.requests, o.least, o.leastTimes = r.Requests, p99, timesOf(r)
		default:
			o.steelyard, o.steelyardTimes = append(o.steelyard, p99), append(o.steelyardTimes, timesOf(r))
		}
	}
	return o
}

// farFromAlike are the cells of long services below the highest load, whose ratios are 0.4 at most.
func farFromAlike(cell sim.Scenario) bool {
	return cell.Service.Mean >= time.Second && cell.Load < 0.95
}

// TestSteelyardIsNeverWorseThanLeastRequest takes two minutes of two cores if all cells are played (`make test-long`).
// Both policies get the same requests. At full length one cell is above least_request from scrapes only, by 0.017 mean
// services (docs/placement.md): there 0.02 is allowed. The p99 of a shortened cell is uncertain by a twentieth: the
// cell with the most requests has shown 1.02 of least_request where it has 0.96 at full length.
func TestSteelyardIsNeverWorseThanLeastRequest(t *testing.T) {
	cells := matrix()
	if len(cells) != 3*3*3*2*2 {
		t.Fatalf("the matrix has %d cells", len(cells))
	}
	above, ratio := 0.02, 1.0
	if !*full {
		above, ratio = 0, 1.05
		cells = slices.DeleteFunc(cells, farFromAlike)
		for i := range cells {
			cells[i] = shortened(cells[i])
		}
	}
	played := cells
	if !long.Is { // every seventh: seven shares no factor with the axes
		played = nil
		for i := 0; i < len(cells); i += 7 {
			played = append(played, cells[i])
		}
	}
	var all strings.Builder
	for _, o := range play(t, played) {
		fmt.Fprintln(&all, o)
		switch {
		case o.err != nil:
			t.Error(o.err)
		case o.requests < 1000:
			t.Errorf("%s: %d requests have no p99", o.cell.Name, o.requests)
		case slices.Max(o.steelyard) > ratio*o.least+above:
			t.Errorf("worse than least_request: %s", o)
		}
	}
	t.Logf("p99 of the wait in mean services:\n%s", &all)
}
