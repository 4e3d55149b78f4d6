package sim

import (
	"fmt"
	"math"
	"testing"
	"time"

	"steelyard/weighting"
)

// A watch is what a law that sheds gets to see.
type watch struct {
	name string
	Steelyard
	noRunning bool // as of Triton
}

var watches = []watch{
	{"gauges each 250 ms", Steelyard{Source: Scrape, ScrapeInterval: 250 * time.Millisecond}, false},
	{"gauges each second", Steelyard{Source: Scrape, ScrapeInterval: time.Second}, false},
	{"a queue each 250 ms", Steelyard{Source: Scrape, ScrapeInterval: 250 * time.Millisecond}, true},
	{"a queue each second", Steelyard{Source: Scrape, ScrapeInterval: time.Second}, true},
	{"access log", Steelyard{Source: AccessLog}, false},
	{"access log and gauges", Steelyard{Source: AccessLog, ScrapeInterval: 250 * time.Millisecond}, false},
	{"counts in flight", Steelyard{Source: Redis, ReportInterval: 100 * time.Millisecond}, false},
}

// A siege is a pool of twenty pods that sheds, and what comes to it.
type siege struct {
	watch
	slots  int
	mean   time.Duration // of a service
	target time.Duration // of the wait
	load   float64       // at first
	comes  float64       // second in which the load becomes another one
	factor float64       // of the load then
	leaves float64       // second in which that ends; 0: never
	ends   float64
	seed   uint64
	change func(*Scenario, *weighting.Params)
}

// A moment is the pool at one time.
type moment struct{ at, wait, refused, idle float64 }

// besiege plays the siege, in moments of 50 ms, and returns the result of requests from a second on.
func (c *siege) besiege(t *testing.T, counts float64) ([]moment, Result) {
	t.Helper()
	seconds := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	s := small()
	s.Seed, s.Envoys, s.Load, s.Service.Mean = c.seed, 10, c.load, c.mean
	s.Pods = []PodGroup{{Count: 20, Slots: c.slots, Metrics: Metrics{NoRunning: c.noRunning}}}
	s.Duration, s.WarmUp, s.SampleEvery = seconds(c.ends), seconds(counts), 50*time.Millisecond
	if c.factor > 0 {
		crowd := Event{At: seconds(c.comes), Kind: FlashCrowd, Factor: c.factor / c.load}
		if c.leaves > 0 {
			crowd.For = seconds(c.leaves - c.comes)
		}
		s.Events = append(s.Events, crowd)
	}
	o := c.Steelyard
	o.Capacity, o.Deadband, o.Heartbeat, o.Params = true, 0.01, time.Second, weighting.DefaultParams()
	o.Params.Shedding.Enabled, o.Params.Shedding.TargetWait = true, c.target
	if c.change != nil {
		c.change(&s, &o.Params)
	}
	r := run(t, s, Policy{Name: c.name, Steelyard: &o})
	var all []moment
	for _, m := range r.Series {
		slots := float64(20 * c.slots)
		one := moment{at: m.At.Seconds(), wait: m.Waiting * c.mean.Seconds() / slots, refused: m.Refused}
		for _, load := range m.Load {
			one.idle += max(0, float64(c.slots)-load) / slots
		}
		all = append(all, one)
	}
	return all, r
}

// over is the mean, the deviation and the most of a number from one second to another.
func over(all []moment, from, to float64, of func(moment) float64) (mean, deviation, most float64) {
	var n, sum, squares float64
	for _, m := range all {
		if m.at >= from && m.at < to {
			v := of(m)
			n, sum, squares, most = n+1, sum+v, squares+v*v, max(most, v)
		}
	}
	mean = sum / n
	return mean, math.Sqrt(max(0, squares/n-mean*mean)), most
}

// firstOf is the second of the first moment from then on of which that is true; NaN for never.
func firstOf(all []moment, from float64, is func(moment) bool) float64 {
	for _, m := range all {
		if m.at >= from && is(m) {
			return m.at
		}
	}
	return math.NaN()
}

func waitOf(m moment) float64    { return m.wait }
func refusedOf(m moment) float64 { return m.refused }

// idleOf is idle slots while requests are refused.
func idleOf(m moment) float64 {
	if m.refused == 0 {
		return 0
	}
	return m.idle
}

// changes are how often the share refused changed, and how often to none.
func changes(all []moment) (n, ended float64) {
	for i, m := range all[1:] {
		if m.refused != all[i].refused {
			if n++; m.refused == 0 {
				ended++
			}
		}
	}
	return n, ended
}

// From half of what it can serve a pool is offered more than that. The wait goes to the target and stays there, the
// slots stay busy, and the share refused is that of the excess.
func TestSheddingHoldsTheWaitNearItsTarget(t *testing.T) {
	t.Parallel()
	const target, begins, settled, ends = 2, 10, 30, 70 // seconds
	for _, pod := range []struct {
		slots int
		mean  time.Duration
	}{{1, 100 * time.Millisecond}, {1, time.Second}, {16, time.Second}} {
		for _, factor := range []float64{1.2, 2} {
			for _, w := range sampled(3, watches) {
				t.Run(fmt.Sprintf("%d slots, %v, %v times the capacity, %s", pod.slots, pod.mean, factor, w.name),
					func(t *testing.T) {
						t.Parallel()
						c := siege{watch: w, slots: pod.slots, mean: pod.mean, target: target * time.Second, load: 0.5,
							comes: begins, factor: factor, ends: ends}
						c.wantHeld(t, begins, settled, ends)
					})
			}
		}
	}
}

// Figures are means over the runs of a siege.
type figures struct{ wait, peak, refused, idle, rise, changes, ended float64 }

// figures plays the siege as often as it takes: few requests prove little.
func (c *siege) figures(t *testing.T, begins, settled, ends float64, runs int) (f figures) {
	for run := range runs {
		c.seed = uint64(run + 1)
		all, _ := c.besiege(t, settled)
		wait, _, _ := over(all, settled, ends, waitOf)
		refused, _, _ := over(all, settled, ends, refusedOf)
		_, _, peak := over(all, begins, settled, waitOf)
		idle, _, _ := over(all, begins, ends, idleOf)
		rise := firstOf(all, begins, func(m moment) bool { return m.refused >= (1-1/c.factor)/2 }) -
			firstOf(all, begins, func(m moment) bool { return m.wait >= c.target.Seconds()/2 })
		n, ended := changes(all)
		part := 1 / float64(runs)
		f.wait, f.refused, f.peak = f.wait+part*wait, f.refused+part*refused, f.peak+part*peak
		f.idle, f.rise = f.idle+part*idle, f.rise+part*rise
		f.changes, f.ended = f.changes+part*n/(ends-begins), f.ended+part*ended
	}
	return f
}

func (c *siege) wantHeld(t *testing.T, begins, settled, ends float64) {
	t.Helper()
	target, few, runs := c.target.Seconds(), c.slots == 1 && c.mean >= time.Second, 1
	if few {
		runs = 3
	}
	f := c.figures(t, begins, settled, ends, runs)
	t.Logf("%+v", f)
	// Two services in the target leave no room for the spread of their own, so the queue is short; where the reports
	// are as old as the services it must be deeper instead, lest slots fall idle unseen.
	least, most, highest, byChance := 0.85, 1.15, 1.4, 2.0
	if c.Source == Redis {
		least, most, highest = 0.75, 1.4, 1.5 // what leaves is estimated from the falls of the counts
	}
	if few {
		least, most, highest, byChance = 0.25, 2, 2.5, 6
		if c.noRunning && c.ScrapeInterval >= c.mean {
			highest = 3 // nothing shows for a second what is executed
		}
	}
	if f.wait < least*target || f.wait > most*target || f.peak > highest*target {
		t.Errorf("wait %.2f s, peak %.2f s; want %.2f to %.2f targets of %v s, and at most %v", f.wait, f.peak, least,
			most, target, highest)
	}
	if want := 1 - 1/c.factor; math.Abs(f.refused-want) > 0.08 || f.idle > 0.05 {
		t.Errorf("refused %.3f, idle %.3f; want %.3f, and at most 5 %% idle", f.refused, f.idle, want)
	}
	if f.changes > 1.5 || f.ended > 6*(2-c.factor)/0.8+byChance {
		t.Errorf("%.1f changes a second, %v to none; want few", f.changes, f.ended)
	}
	if c.factor == 2 && !few && f.rise > 1.5 {
		t.Errorf("half of the share %.1f s after half of the target, want about a second", f.rise)
	}
}

// When the crowd goes away, nothing is refused a moment after nothing waits any more, and nothing from there on.
func TestSheddingEndsWithTheOverload(t *testing.T) {
	t.Parallel()
	const leaves, ends = 30, 60 // seconds
	for _, slots := range []int{1, 16} {
		for _, w := range sampled(3, watches) {
			t.Run(fmt.Sprintf("%d slots, %s", slots, w.name), func(t *testing.T) {
				t.Parallel()
				c := siege{watch: w, slots: slots, mean: time.Second, target: 2 * time.Second, load: 0.4, factor: 2,
					leaves: leaves, ends: ends, seed: 1}
				all, _ := c.besiege(t, 0)
				if before, _, _ := over(all, leaves-5, leaves, refusedOf); before < 0.25 {
					t.Errorf("refused %.2f at twice the capacity", before)
				}
				empty := firstOf(all, leaves, func(m moment) bool { return m.wait == 0 })
				none := firstOf(all, leaves, func(m moment) bool { return m.refused == 0 })
				t.Logf("nothing waits after %.1f s, nothing is refused after %.1f s", empty-leaves, none-leaves)
				if math.IsNaN(empty) { // by chance some request waits at each moment
					empty = ends
				}
				if late := 1.5 + 2*w.ScrapeInterval.Seconds(); !(none <= empty+late) {
					t.Errorf("refused until %.1f s after the crowd had left, and nothing waits after %.1f s",
						none-leaves, empty-leaves)
				}
				if _, _, most := over(all, none, ends, refusedOf); most > 0 {
					t.Errorf("refused %.2f at 0.4 of the capacity", most)
				}
			})
		}
	}
}

func TestNextToNothingIsRefusedBelowTheCapacity(t *testing.T) {
	t.Parallel()
	for _, slots := range []int{1, 16} {
		for _, w := range sampled(3, watches) {
			t.Run(fmt.Sprintf("%d slots, %s", slots, w.name), func(t *testing.T) {
				t.Parallel()
				c := siege{watch: w, slots: slots, mean: time.Second, target: 2 * time.Second, load: 0.85, ends: 120,
					seed: 3}
				all, _ := c.besiege(t, 0)
				// The wait is now and then near the target by chance.
				if mean, _, most := over(all, 0, 120, refusedOf); mean > 0.03 {
					t.Errorf("refused %.3f in the mean, %.2f at most, at 0.85 of the capacity", mean, most)
				}
			})
		}
	}
}

// A new endpoint has free slots for as long as it is trusted with a part of them; that is no reason to let in what
// lines up at the others.
func TestSheddingGoesOnWhileANewEndpointRamps(t *testing.T) {
	t.Parallel()
	const joins, ends = 40, 100 // seconds
	for _, w := range sampled(3, watches) {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			c := siege{watch: w, slots: 16, mean: time.Second, target: 2 * time.Second, load: 0.5, comes: 5, factor: 2,
				ends: ends, seed: 1, change: func(s *Scenario, p *weighting.Params) {
					s.Events = append(s.Events, Event{At: joins * time.Second, Kind: Join, Pods: []int{19}})
					p.Ramp = time.Minute
				}}
			all, _ := c.besiege(t, 0)
			_, _, peak := over(all, joins, ends, waitOf)
			ended := firstOf(all, joins, func(m moment) bool { return m.refused == 0 })
			most := 2.8
			if w.Source == Redis {
				most = 3
			}
			t.Logf("wait %.2f s at most", peak)
			if peak > most || !math.IsNaN(ended) {
				t.Errorf("wait %.2f s at most, and nothing refused at %.1f s; want %v s, and never", peak, ended, most)
			}
		})
	}
}

// A target that is shorter than what chance moves within a horizon would leave slots idle while requests are refused.
func TestATargetTooShortForTheReportsGivesWayToGoodput(t *testing.T) {
	t.Parallel()
	c := siege{watch: watches[1], slots: 1, mean: time.Second, target: 200 * time.Millisecond, load: 2, ends: 80,
		seed: 1}
	all, _ := c.besiege(t, 0)
	wait, _, _ := over(all, 20, 80, waitOf)
	idle, _, _ := over(all, 0, 80, idleOf)
	if idle > 0.05 || wait > 4 {
		t.Errorf("wait %.2f s and %.3f idle, want 4 s and 0.05 at most", wait, idle)
	}
}

// reversals are how often the share refused went from rising to falling, by more than a tenth of the requests each.
func reversals(all []moment, from, to float64) (n float64) {
	const tenth = 0.1
	low, high, rising := math.Inf(1), math.Inf(-1), false
	for _, m := range all {
		switch {
		case m.at < from || m.at >= to:
			continue
		case rising && m.refused < high-tenth:
			n, rising, low = n+1, false, m.refused
		case !rising && m.refused > low+tenth:
			rising, high = true, m.refused
		}
		low, high = min(low, m.refused), max(high, m.refused)
	}
	return n
}

// Wherever the target has room for four services in a row at an endpoint, the wait of 99 in 100 of the accepted is
// within twice the target. The slots stay busy in any case, and the share hardly moves.
func TestTheWaitOfTheAcceptedStaysWithinTwiceTheTarget(t *testing.T) {
	t.Parallel()
	const begins, settled, room = 10.0, 25.0, 4
	for _, c := range sampled(3, []struct {
		target, mean time.Duration
		slots        int
	}{
		{2 * time.Second, time.Second, 4}, {2 * time.Second, 50 * time.Millisecond, 1},
		{2 * time.Second, 50 * time.Millisecond, 16}, {2 * time.Second, 100 * time.Millisecond, 4},
		{2 * time.Second, 500 * time.Millisecond, 1}, {2 * time.Second, 500 * time.Millisecond, 16},
		{2 * time.Second, time.Second, 1}, {2 * time.Second, time.Second, 16}, {2 * time.Second, 2 * time.Second, 1},
		{2 * time.Second, 2 * time.Second, 4}, {2 * time.Second, 2 * time.Second, 16},
		{5 * time.Second, time.Second, 1}, {5 * time.Second, 2 * time.Second, 4},
	}) {
		for _, factor := range sampled(2, []float64{1.2, 2, 4}) {
			t.Run(fmt.Sprintf("target %v, service %v, %d slots, %v times the load", c.target, c.mean, c.slots, factor),
				func(t *testing.T) {
					t.Parallel()
					pool := 20 * float64(c.slots) / c.mean.Seconds() // requests per second
					runs, lasts := uint64(1), max(30, min(20000/pool, 120))
					if pool < 250 { // few requests prove little
						runs = 3
					}
					var p99, idle, unrest, turns float64
					for seed := range runs {
						s := siege{watch: watches[5], slots: c.slots, mean: c.mean, target: c.target, load: 0.5,
							comes: begins, factor: factor, ends: settled + lasts, seed: seed + 1}
						all, r := s.besiege(t, settled)
						_, deviation, _ := over(all, settled, settled+lasts, refusedOf)
						idles, _, _ := over(all, begins, settled+lasts, idleOf)
						p99 += r.Wait.P99 * c.mean.Seconds() / c.target.Seconds() / float64(runs)
						idle, unrest = idle+idles/float64(runs), unrest+deviation/float64(runs)
						turns += reversals(all, settled, settled+lasts) / (lasts / 60) / float64(runs)
					}
					t.Logf("wait p99 %.2f targets; idle %.2f %%; share ± %.3f, %.1f reversals a minute", p99, 100*idle,
						unrest, turns)
					if idle > 0.05 {
						t.Errorf("%.3f of the slots' time is idle, want 0.05 at most", idle)
					}
					if c.target.Seconds()*float64(c.slots)/c.mean.Seconds() < room {
						return
					}
					if p99 > 2 && factor <= 2 || p99 > 2.1 {
						t.Errorf("p99 of the wait is %.2f targets, want 2 at most, and 2.1 far above the capacity", p99)
					}
					if turns > 4 || factor >= 2 && turns > 2 || unrest > 0.1 {
						t.Errorf("share ± %.3f, %.1f reversals a minute; want 2 at most, and 4 near the capacity",
							unrest, turns)
					}
				})
		}
	}
}

// A crowd of six times the usual load comes for half a minute: within two and a half seconds most of what is too much
// is refused, and a moment after the queues are empty nothing.
func TestSheddingFollowsAFlashCrowd(t *testing.T) {
	t.Parallel()
	const comes, goes, ends, factor = 10, 40, 60, 3
	for _, slots := range sampled(2, []int{1, 4, 16}) {
		for _, mean := range []time.Duration{100 * time.Millisecond, 500 * time.Millisecond, time.Second} {
			for _, w := range sampled(3, []watch{watches[0], watches[4], watches[5]}) {
				t.Run(fmt.Sprintf("%d slots, %v, %s", slots, mean, w.name), func(t *testing.T) {
					t.Parallel()
					c := siege{watch: w, slots: slots, mean: mean, target: 2 * time.Second, load: 0.5, comes: comes,
						factor: factor, leaves: goes, ends: ends, seed: 1}
					all, _ := c.besiege(t, 0)
					up := firstOf(all, comes, func(m moment) bool { return m.refused >= 0.75*(1-1./factor) })
					_, _, peak := over(all, comes, goes, waitOf)
					empty := firstOf(all, goes, func(m moment) bool { return m.wait == 0 })
					none := float64(goes)
					for _, m := range all {
						if m.refused > 0 {
							none = m.at
						}
					}
					_, _, early := over(all, 0, comes, refusedOf)
					t.Logf("refuses after %.2f s, wait %.1f s at most; empty %.1f s after the crowd has left, refuses "+
						"for %.1f s", up-comes, peak, empty-goes, none-goes)
					if !(up <= comes+2.5) || peak > 4 {
						t.Errorf("refuses after %.2f s, wait %.1f s at most; want 2.5 s and 4 s", up-comes, peak)
					}
					if !(none <= empty+1.5+2*w.ScrapeInterval.Seconds()) || early > 0 {
						t.Errorf("refuses until %.1f s after the crowd has left, empty after %.1f s; refused %.2f "+
							"before it came", none-goes, empty-goes, early)
					}
				})
			}
		}
	}
}
