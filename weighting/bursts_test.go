package weighting

import (
	"math/rand/v2"
	"testing"
	"time"
)

// arriving has b see n arrivals each interval, for a minute, in steps of one interval or more.
func arriving(b *bursts, interval, window time.Duration, n func() float64) {
	arrived := 0.0
	for now := epoch; now.Before(epoch.Add(time.Minute)); now = now.Add(interval) {
		b.observe(now, arrived, 10, window)
		arrived += n()
	}
}

func TestArrivalsTogetherAreThoseOfTheWindow(t *testing.T) {
	const ms = time.Millisecond
	random := rand.New(rand.NewPCG(1, 2))
	for name, c := range map[string]struct {
		interval, window time.Duration
		n                func() float64
		want, within     float64
	}{
		"independent, 0.05 in a step of 1 ms": {ms, 40 * ms, func() float64 {
			if random.Float64() < 0.05 {
				return 1
			}
			return 0
		}, 2, 0.2},
		"forty each second":                     {time.Second, 40 * ms, func() float64 { return 40 }, 39, 1e-9},
		"one each second":                       {time.Second, 40 * ms, func() float64 { return 1 }, 0, 1e-9},
		"a window is not below 20 ms":           {10 * ms, 0, func() float64 { return 1 }, 1, 0.01},
		"a window is not above 200 ms":          {100 * ms, time.Hour, func() float64 { return 1 }, 1, 0.01},
		"a part of a request makes none":        {time.Second, 40 * ms, func() float64 { return 0.5 }, 0, 1e-9},
		"a leap is at most 8 for each endpoint": {time.Second, 40 * ms, func() float64 { return 1e15 }, 79, 1e-9},
		"no arrivals":                           {10 * ms, 40 * ms, func() float64 { return 0 }, 0, 0},
		"few arrivals are no evidence":          {20 * time.Second, 40 * ms, func() float64 { return 4 }, 0, 0},
		"two within a step of one window":       {20 * ms, 20 * ms, func() float64 { return 2 }, 1, 0.01},
	} {
		t.Run(name, func(t *testing.T) {
			var b bursts
			arriving(&b, c.interval, c.window, c.n)
			wantNear(t, "arrivals together", b.together(), c.want, c.within)
		})
	}
}

func TestBurstsAreForgotten(t *testing.T) {
	var b bursts
	arriving(&b, time.Second, 40*time.Millisecond, func() float64 { return 40 })
	before, arrived := b.together(), b.latest
	for i := range 240 {
		b.observe(epoch.Add(time.Minute+time.Duration(i)*time.Second), arrived+float64(i), 10, 40*time.Millisecond)
	}
	if now := b.together(); !(before > 38) || !(now < 1) {
		t.Errorf("%v after the bursts and %v minutes later", before, now)
	}
}

func TestACountThatStartsAgainIsNoBurst(t *testing.T) {
	var b bursts
	arriving(&b, time.Second, 40*time.Millisecond, func() float64 { return 1 })
	b.observe(epoch.Add(time.Minute), 0, 10, 0)
	b.observe(epoch.Add(61*time.Second), 1, 10, 0)
	b.observe(epoch.Add(62*time.Second), 2, 10, 0)
	wantNear(t, "arrivals together", b.together(), 0, 1e-9)
}
