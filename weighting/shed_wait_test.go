package weighting

import (
	"fmt"
	"math"
	"slices"
	"testing"
)

// reversals are how often the share refused went from rising to falling, by more than a
// tenth of the requests each, from one time to another.
func (c *crowd) reversals(from, to float64) (n int) {
	const tenth = 0.1
	low, high, rising := math.Inf(1), math.Inf(-1), false
	for _, s := range c.samples {
		switch {
		case s.at < from || s.at >= to:
			continue
		case rising && s.drop < high-tenth:
			n, rising, low = n+1, false, s.drop
		case !rising && s.drop > low+tenth:
			rising, high = true, s.drop
		}
		low, high = min(low, s.drop), max(high, s.drop)
	}
	return n
}

// A siege is the same overload several times, and what became of it.
type siege struct {
	waits     []float64 // of the accepted, after it had settled
	idle      float64   // part of the slots' time while the overload lasted
	reversals float64   // of the share, a minute
	unrest    float64   // standard deviation of the share
}

func besiege(w watch, slots int, mean, target, factor float64) (s siege) {
	const begins, settled = 10.0, 25.0
	pool := float64(crowdPods*slots) / mean // requests per second
	seeds, lasts := 1, max(30, min(20000/pool, 120))
	if pool < 250 { // few requests prove little
		seeds, w.step = 3, 0.05
	}
	for seed := range uint64(seeds) {
		c := &crowd{watch: w, slots: slots, mean: mean, target: target, warmUp: settled,
			load: loadStep(begins, 0.5, factor)}
		c.run(seed+1, settled+lasts)
		_, unrest, _ := c.over(settled, settled+lasts, dropped)
		s.waits = append(s.waits, c.waits...)
		s.idle += c.idle / (settled + lasts - begins) / float64(seeds)
		s.reversals += float64(c.reversals(settled, settled+lasts)) / (lasts / 60) / float64(seeds)
		s.unrest += unrest / float64(seeds)
	}
	slices.Sort(s.waits)
	return s
}

// Wherever the target has room for four services in a row at an endpoint, the wait
// of 99 in 100 of the accepted is within twice the target. The slots stay busy in any
// case, and the share hardly moves.
func TestTheWaitOfTheAcceptedStaysWithinTwiceTheTarget(t *testing.T) {
	t.Parallel()
	const room = 4
	byLog := watches[5]
	for _, target := range []float64{2, 5} {
		for _, mean := range sampled(2, []float64{0.05, 0.1, 0.5, 1, 2}) {
			for _, slots := range []int{1, 4, 16} {
				for _, factor := range sampled(2, []float64{1.2, 2, 4}) {
					if target != 2 && (mean < 1 || slots > 4) {
						continue // all the room there is
					}
					t.Run(fmt.Sprintf("target %v s, service %v s, %d slots, %v times the capacity", target, mean, slots,
						factor), func(t *testing.T) {
						t.Parallel()
						s := besiege(byLog, slots, mean, target, factor)
						p99 := quantile(s.waits, 0.99) / target
						t.Logf("wait p50 %.2f s, p99 %.2f targets; idle %.2f %%; share ± %.3f, %.1f reversals a minute",
							quantile(s.waits, 0.5), p99, 100*s.idle, s.unrest, s.reversals)
						if s.idle > 0.05 {
							t.Errorf("%.3f of the slots' time is idle, want 0.05 at most", s.idle)
						}
						if services := target * float64(slots) / mean; services < room {
							return
						} else if p99 > 2 && factor <= 2 || p99 > 2.1 {
							t.Errorf("p99 of the wait is %.2f targets of %.3g services, want 2 at most, and 2.1 far "+
								"above the capacity", p99, services)
						}
						if s.reversals > 4 || factor >= 2 && s.reversals > 2 || s.unrest > 0.1 {
							t.Errorf("share ± %.3f, %.1f reversals a minute; want 2 at most, and 4 near the capacity",
								s.unrest, s.reversals)
						}
					})
				}
			}
		}
	}
}

// A crowd of six times the usual load comes for half a minute: within two and a half
// seconds most of what is too much is refused, and a moment after the queues are empty nothing.
func TestSheddingFollowsAFlashCrowd(t *testing.T) {
	t.Parallel()
	const comes, goes, ends, factor = 10, 40, 60, 3
	for _, slots := range sampled(2, []int{1, 4, 16}) {
		for _, mean := range sampled(2, []float64{0.1, 0.5, 1}) {
			for _, w := range []watch{watches[0], watches[4], watches[5]} {
				t.Run(fmt.Sprintf("%d slots, %v s, %s", slots, mean, w.name), func(t *testing.T) {
					t.Parallel()
					c := &crowd{watch: w, slots: slots, mean: mean, target: 2, load: func(now float64) float64 {
						if now >= comes && now < goes {
							return factor
						}
						return 0.5
					}}
					c.run(1, ends)
					up := c.first(comes, func(s sample) bool { return s.drop >= 0.75*(1-1./factor) })
					_, _, peak := c.over(comes, goes, trueWait)
					empty := c.first(goes, func(s sample) bool { return s.wait == 0 })
					over := goes + 0.0
					for _, s := range c.samples {
						if s.drop > 0 {
							over = s.at
						}
					}
					_, _, early := c.over(0, comes, dropped)
					t.Logf("refuses after %.2f s, wait %.1f s at most; empty %.1f s after the crowd has left, "+
						"refuses for %.1f s", up-comes, peak, empty-goes, over-goes)
					if !(up <= comes+2.5) || peak > 4 {
						t.Errorf("refuses after %.2f s, wait %.1f s at most; want 2.5 s and 4 s", up-comes, peak)
					}
					if !(over <= empty+1.5+2*w.scrape) || early > 0 {
						t.Errorf("refuses until %.1f s after the crowd has left, empty after %.1f s; refused %.2f "+
							"before it came", over-goes, empty-goes, early)
					}
				})
			}
		}
	}
}
