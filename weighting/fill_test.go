package weighting

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Three endpoints that nothing is known of but one report. No rate is known
// yet, so the arrivals are one for each endpoint: A = 3.
//
//	     slots c   requests n   l = n/c
//	a       2          4          2
//	b       4          6          1.5
//	c       1          3          3
//
// Raising only b from 1.5 to a's 2 takes 0.5·4 = 2 requests; the third raises
// both, by 1/(4+2). So L = 2 + 1/6 = 13/6, below c's 3. The parts of the water:
//
//	a   (13/6 − 2)·2   = 1/3     1/3 of 3 = 0.111111
//	b   (13/6 − 3/2)·4 = 8/3     8/3 of 3 = 0.888889
//	c   0
//
// A hundredth of the traffic, the floor, goes by capacity, the rest by water:
//
//	a   0.01·2/7 + 0.99·0.111111 = 0.112857
//	b   0.01·4/7 + 0.99·0.888889 = 0.885714
//	c   0.01·1/7                 = 0.001429
func TestWaterLevelByHand(t *testing.T) {
	d := NewLaw(byHand()).Step(epoch, Snapshot{Endpoints: []Endpoint{
		scraped("a", 2, 2, 2, epoch), scraped("b", 4, 2, 4, epoch), scraped("c", 1, 2, 1, epoch),
	}})
	want(t, "rate source", d.ArrivalRateSource, RateUnknown)
	wantNear(t, "arrivals", d.Arrivals, 3, 1e-12)
	wantNear(t, "water level", d.WaterLevel, 13.0/6, 1e-12)
	wantNear(t, "median load", d.MedianLoad, 2, 1e-12)
	for _, c := range []struct {
		address     string
		share, load float64
		reason      Reason
	}{
		{"a", 0.79 / 7, 4, ReasonFill},
		{"b", 6.2 / 7, 6, ReasonFill},
		{"c", 0.01 / 7, 3, ReasonFloor},
	} {
		e := of(t, d, c.address)
		wantNear(t, c.address+" share", e.Share, c.share, 1e-12)
		wantNear(t, c.address+" load", e.Load, c.load, 1e-12)
		want(t, c.address+" reason", e.Reason, c.reason)
	}
}

// slowFill finds the level by halving.
func slowFill(vessels []Vessel, arrivals float64) float64 {
	low, high := math.Inf(1), 0.0
	for _, v := range vessels {
		low, high = min(low, v.level()), max(high, v.level()+arrivals/min(v.Slots, v.capacity()))
	}
	for range 200 {
		middle, water := (low+high)/2, 0.0
		for _, v := range vessels {
			water += v.room(middle)
		}
		if water < arrivals {
			low = middle
		} else {
			high = middle
		}
	}
	return high
}

var vesselsGen = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Vessel {
	return Vessel{
		Load:  rapid.OneOf(rapid.Float64Range(0, 1e6), rapid.Float64Range(0, 30), rapid.Just(1.0)).Draw(t, "load"),
		Slots: rapid.OneOf(rapid.Float64Range(1e-3, 1e4), rapid.Just(1.0), rapid.Just(16.0)).Draw(t, "slots"),
		Speed: rapid.OneOf(rapid.Float64Range(0.05, 20), rapid.Just(1.0)).Draw(t, "speed"),
	}
}), 1, 50)

func TestFillIsWhatHalvingFinds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		vessels := vesselsGen.Draw(t, "vessels")
		arrivals := rapid.Float64Range(1, 1e6).Draw(t, "arrivals")
		fast, slow := fill(vessels, arrivals), slowFill(vessels, arrivals)
		if !near(fast, slow, 1e-9) {
			t.Fatalf("level = %v, by halving %v", fast, slow)
		}
	})
}

func TestLevelAndContentsAreInverse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := vesselsGen.Draw(t, "vessels")[0]
		if back := v.holds(v.level()); !near(back, v.Load, 1e-9) {
			t.Fatalf("%+v at level %v holds %v", v, v.level(), back)
		}
		fuller := v
		fuller.Load += rapid.Float64Range(0, 100).Draw(t, "more")
		if fuller.level() < v.level() {
			t.Fatalf("level falls from %v to %v with the load", v.level(), fuller.level())
		}
	})
}

// Up to its last free slot a slow endpoint fills like any other; behind it three
// times as fast, because a request waits three times as long for each slot.
func TestLevelOfASlowEndpoint(t *testing.T) {
	for _, c := range []struct{ load, speed, level float64 }{
		{0, 1, 0}, {2, 1, 0.5}, {4, 1, 1}, {12, 1, 3},
		{0, 1.0 / 3, 0}, {2, 1.0 / 3, 0.5}, {3, 1.0 / 3, 0.75}, {4, 1.0 / 3, 1.5}, {8, 1.0 / 3, 4.5},
		{3, 2, 0.75}, {4, 2, 0.875}, {5, 2, 1},
	} {
		v := Vessel{Load: c.load, Slots: 4, Speed: c.speed}
		wantNear(t, fmt.Sprintf("level of %+v", v), v.level(), c.level, 1e-12)
	}
	wantNear(t, "level with less than one slot", Vessel{Load: 1, Slots: 0.5, Speed: 0.5}.level(), 4, 1e-12)
}

// While nothing has arrived but the next request, the least loaded get it all.
func TestShortHorizonGoesToTheLeastLoadedAndTiesShareByCapacity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		least := rapid.Float64Range(1, 10).Draw(t, "least")
		capacities := rapid.SliceOfN(rapid.Float64Range(1, 64), 2, 30).Draw(t, "capacities")
		ties := rapid.IntRange(1, len(capacities)).Draw(t, "ties")
		var tied, total float64
		var vessels []Vessel
		for i, c := range capacities {
			speed := rapid.Float64Range(0.5, 1).Draw(t, "speed")
			v := Vessel{Slots: c / speed, Speed: speed}
			level := least
			if total += c; i < ties {
				tied += c
			} else {
				level += rapid.Float64Range(1, 10).Draw(t, "more")
			}
			v.Load = v.holds(level)
			vessels = append(vessels, v)
		}
		const floor = 0.01
		for i, share := range shares(vessels, fill(vessels, 1), floor) {
			wanted := floor * capacities[i] / total
			if i < ties {
				wanted += (1 - floor) * capacities[i] / tied
			}
			if !near(share, wanted, 1e-9) {
				t.Fatalf("share of %+v = %v, want %v", vessels[i], share, wanted)
			}
		}
	})
}

func TestLongHorizonGivesCapacityShares(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		vessels := vesselsGen.Draw(t, "vessels")
		var total float64
		for _, v := range vessels {
			total += v.capacity()
		}
		for i, share := range shares(vessels, fill(vessels, 1e16), 0.01) {
			if wanted := vessels[i].capacity() / total; !near(share, wanted, 1e-4) {
				t.Fatalf("share of %+v = %v, want its part of the capacity %v", vessels[i], share, wanted)
			}
		}
	})
}

// byHand is a law with a floor that is easy to calculate with.
func byHand() Params {
	p := DefaultParams()
	p.Floor = 0.01
	return p
}

// The horizon that matters is the one measured: from a push every millisecond to
// one every hour, traffic moves from the least loaded to the capacity shares.
func TestHorizonOfTheSnapshotMovesTheShares(t *testing.T) {
	var law *Law
	run := func(period, delay time.Duration) Decision {
		law = NewLaw(byHand())
		var d Decision
		for i := range 20 { // 10 requests a second at each
			now := epoch.Add(time.Duration(i) * time.Second)
			a, b := scraped("a", 4, 2, 4, now), scraped("b", 8, 0, 4, now)
			a.Server.Completions, b.Server.Completions = known(float64(10*i), now), known(float64(10*i), now)
			d = law.Step(now, Snapshot{Endpoints: []Endpoint{a, b}, PushPeriod: period, PushDelay: delay})
		}
		return d
	}
	for _, c := range []struct {
		name          string
		period, delay time.Duration
		horizon       time.Duration
		arrivals      float64
		shareA        float64
	}{
		{"next request only", time.Millisecond, 0, time.Millisecond, 1, 0.01 / 3},
		// 12 requests raise b to 1.5 with 8; the other 4 raise both by 1/3: a gets 4/3 of 12.
		{"in between, with the delay", 500 * time.Millisecond, 100 * time.Millisecond, 600 * time.Millisecond, 12,
			0.01/3 + 0.99*4/3/12},
		{"for ever", time.Hour, 0, time.Hour, 72000, 1.0 / 3},
		{"absurd periods are bounded", math.MaxInt64, math.MaxInt64, 2 * time.Hour, 144000, 1.0 / 3},
		{"negative ones are none", -time.Hour, -time.Hour, 0, 1, 0.01 / 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := run(c.period, c.delay)
			want(t, "horizon", d.Horizon, c.horizon)
			want(t, "rate source", d.ArrivalRateSource, RateCompletions)
			wantNear(t, "rate", d.ArrivalRate, 20, 1e-9)
			wantNear(t, "arrivals", d.Arrivals, c.arrivals, 1e-9)
			wantNear(t, "share of a", of(t, d, "a").Share, c.shareA, 1e-4)
		})
	}
}
