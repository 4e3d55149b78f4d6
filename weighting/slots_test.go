package weighting

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// gauged are reports of one endpoint, one each 250 ms for that long.
func gauged(law *Law, from time.Time, length time.Duration,
	report func(n int) (running, waiting, completed float64)) (d Decision, now time.Time) {
	const each = 250 * time.Millisecond
	for n := range int(length / each) {
		now = from.Add(time.Duration(n) * each)
		running, waiting, completed := report(n)
		e := scraped("x", 0, waiting, running, now)
		if !math.IsNaN(completed) {
			e.Server.Completions = known(completed, now)
		}
		d = law.Step(now, Snapshot{Endpoints: []Endpoint{e}, ScrapeInterval: each})
	}
	return d, now.Add(each)
}

// That requests wait is no proof that no more can run.
func TestALimitIsLearnedFromANumberThatStays(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, c := range []struct {
		name    string
		seconds int
		report  func(n int) (running, waiting, completed float64)
		slots   float64
		source  CapacitySource
	}{
		{"as many as ever whenever requests wait", 15,
			func(n int) (float64, float64, float64) { return 8, 3, float64(2 * n) }, 8, CapacityLearned},
		{"nothing counts completions", 15, func(int) (float64, float64, float64) { return 8, 3, math.NaN() }, 8,
			CapacityLearned},
		{"fewer now and then, until the next takes its place", 20, func(n int) (float64, float64, float64) {
			return 8 - float64(n%20/19), 3, float64(2 * n)
		}, 8, CapacityLearned},
		{"fewer whenever nothing waits", 60, func(n int) (float64, float64, float64) {
			return 4 + float64(4*(n/4%2)), float64(n / 4 % 2), float64(2 * n)
		}, 8, CapacityLearned},
		{"for a moment", 8, func(n int) (float64, float64, float64) { return 8, 3, float64(2 * n) }, 8,
			CapacityAssumed},
		{"because nothing ends", 60, func(int) (float64, float64, float64) { return 8, 3, 100 }, 8, CapacityAssumed},
		{"at any number", 60,
			func(n int) (float64, float64, float64) { return 3 + float64(rng.IntN(6)), 1, float64(2 * n) }, 8,
			CapacityAssumed},
		{"fewer than ran before", 60, func(n int) (float64, float64, float64) {
			if n < 4 {
				return 50, 0, float64(2 * n)
			}
			return 3, 1, float64(2 * n)
		}, 50, CapacityAssumed},
		{"and then more run", 30,
			func(n int) (float64, float64, float64) { return 8 + float64(n/119), 3, float64(2 * n) }, 9,
			CapacityAssumed},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, _ := gauged(NewLaw(DefaultParams()), epoch, time.Duration(c.seconds)*second, c.report)
			want(t, "slots", d.Endpoints[0].Slots, c.slots)
			want(t, "source", d.Endpoints[0].SlotsSource, c.source)
		})
	}
}

func TestWhatWasLearnedOfSlotsFades(t *testing.T) {
	full := func(n int) (float64, float64, float64) { return 8, 3, float64(2 * n) }
	quiet := func(int) (float64, float64, float64) { return 2, 0, 1000 }
	law := NewLaw(DefaultParams())
	_, now := gauged(law, epoch, 11*second, full) // hardly enough
	d, now := gauged(law, now, 5*time.Minute, quiet)
	want(t, "slots after five minutes without a queue", d.Endpoints[0].Slots, 8)
	want(t, "source", d.Endpoints[0].SlotsSource, CapacityLearned)
	d, _ = gauged(law, now, 10*time.Minute, quiet)
	want(t, "slots after fifteen", d.Endpoints[0].Slots, 2)
	want(t, "source", d.Endpoints[0].SlotsSource, CapacityAssumed)
}

// Slots of a server without a gauge of running requests are measured from its counter of busy time. A server that
// gathers requests into batches executes as many as are there.
func TestEndpointsOfAboutTheSameMeasuredSlotsAreAlike(t *testing.T) {
	for _, c := range []struct {
		name   string
		slots  [4]float64 // as measured
		want   [4]float64
		within float64
	}{
		{"about the same", [4]float64{8, 8, 8, 7}, [4]float64{8, 8, 8, 8}, 0.001},
		{"unlike", [4]float64{16, 4, 4, 4}, [4]float64{16, 4, 4, 4}, 0.05},
	} {
		t.Run(c.name, func(t *testing.T) {
			law := NewLaw(DefaultParams())
			var d Decision
			for n := range 60 {
				now := epoch.Add(time.Duration(n) * second)
				var s Snapshot
				for i, slots := range c.slots {
					s.Endpoints = append(s.Endpoints, Endpoint{Address: fmt.Sprint(i), Server: ServerReport{
						Queue: known(20, now), Completions: known(float64(n), now),
						BusySeconds: known(slots*float64(n), now),
					}})
				}
				d = law.Step(now, s)
			}
			for i, e := range d.Endpoints {
				want(t, "source", e.SlotsSource, CapacityLearned)
				wantNear(t, fmt.Sprintf("slots of %d", i), e.Slots/c.want[i], 1, c.within)
			}
		})
	}
}

func TestSlotsMeasuredFromCountersFade(t *testing.T) {
	law := NewLaw(DefaultParams())
	report := func(n int, queue float64) Snapshot {
		now := epoch.Add(time.Duration(n) * second)
		return Snapshot{Endpoints: []Endpoint{{Address: "x", Server: ServerReport{
			Queue: known(queue, now), Completions: known(float64(n), now), BusySeconds: known(8*float64(n), now),
		}}}}
	}
	for n := range 60 {
		law.Step(epoch.Add(time.Duration(n)*second), report(n, 20))
	}
	for n := 60; n < 1000; n++ {
		d := law.Step(epoch.Add(time.Duration(n)*second), report(n, 0))
		switch n {
		case 300:
			want(t, "source after four minutes without a queue", d.Endpoints[0].SlotsSource, CapacityLearned)
		case 999:
			want(t, "source after a quarter of an hour", d.Endpoints[0].SlotsSource, CapacityAssumed)
		}
	}
}
