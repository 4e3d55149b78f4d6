package weighting

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// counterKinds are the cumulative fields that a server exports, and of what kind of server.
var counterKinds = map[string]signals{
	"gauges and counters":          {gauges: true, counters: true},
	"gauges and all counters":      {gauges: true, triton: true, counters: true},
	"counters, capacity is known":  {triton: true, configured: true},
	"counters, in-flight counts":   {triton: true, configured: true, inFlight: true},
	"gauges, counters and counted": {gauges: true, counters: true, inFlight: true},
}

// meanShares returns the mean shares of four equal pods from one second to another, where distort may change
// what they report. What has queued until each time of clear is taken away.
func meanShares(seed uint64, s signals, clear []float64, from, to float64,
	distort func(w *world, i int) func(*ServerReport)) [4]float64 {
	w := newWorld(seed, 6, 4, 4, 0.7)
	w.push(w.equalWeights())
	for i, p := range w.pods {
		p.distort = distort(w, i)
	}
	var sum [4]float64
	n := 0.0
	w.steer(s, 0.25, 0.01, func(d Decision) {
		if w.now < from {
			return
		}
		n++
		for i, p := range w.pods {
			for _, e := range d.Endpoints {
				if e.Address == p.address {
					sum[i] += e.Share
				}
			}
		}
	})
	for _, at := range clear {
		w.after(at, func() {
			for _, p := range w.pods {
				p.proxied, p.queue = p.proxied-len(p.queue), nil
			}
		})
	}
	w.runUntil(to)
	for i := range sum {
		sum[i] /= n
	}
	return sum
}

// TestOneInsaneCounterIsForgotten: a counter that jumps and comes back is no speed. Twenty seconds later
// all get the same again.
func TestOneInsaneCounterIsForgotten(t *testing.T) {
	t.Parallel()
	const at, sane = 60.1, 61.1 // seconds
	clear := []float64{sane}
	for _, name := range sampled(2, slices.Sorted(maps.Keys(counterKinds))) {
		s := counterKinds[name]
		for _, leap := range sampled(3, []float64{1e18, 1e9, 2e5, 5e3}) {
			t.Run(fmt.Sprintf("%s, by %g", name, leap), func(t *testing.T) {
				var share float64
				const seeds = 16
				for seed := range uint64(seeds) {
					shares := meanShares(seed, s, clear, sane+20, sane+30, func(w *world, i int) func(*ServerReport) {
						return func(r *ServerReport) {
							if i > 0 || w.now < at || w.now > at+0.3 {
								return
							}
							r.Completions.Value += leap
							r.QueueSeconds.Value += leap
							r.BusySeconds.Value += leap
						}
					})
					share += shares[0] / seeds
				}
				t.Logf("share %.3f", share)
				if share < 0.225 || share > 0.275 {
					t.Errorf("share %.3f from 20 s after the counter is sane again, want 0.25 within a tenth", share)
				}
			})
		}
	}
}

// TestASumOfProxiesThatJumpsIsNoTraffic: a hundred million requests that one of them issued in an instant.
func TestASumOfProxiesThatJumpsIsNoTraffic(t *testing.T) {
	law := NewLaw(DefaultParams())
	for i := range 300 {
		now := at(float64(i) * 0.1)
		sum := func(v float64) Reading {
			if v += float64(i); i >= 200 {
				v += 1e8
			}
			return Reading{Value: v, At: now}
		}
		e := Endpoint{Address: "10.0.0.1:80", Capacity: 4, InFlight: known(3, now), Exact: true}
		e.Proxies = ProxyReport{Issued: sum(3), Ended: sum(0), Answered: known(float64(i), now), LatencySeconds: sum(0)}
		d := law.Step(now, Snapshot{Endpoints: []Endpoint{e}})
		if i > 10 && math.Abs(d.ArrivalRate-10) > 0.5 {
			t.Fatalf("%v after the start: %v requests a second, want 10", now.Sub(epoch), d.ArrivalRate)
		}
		if got := d.Endpoints[0]; i > 10 && (math.Abs(got.Latency-1) > 0.01 || got.Overloaded) {
			t.Fatalf("%v after the start: latency %v, flagged %v", now.Sub(epoch), got.Latency, got.Overloaded)
		}
	}
}

// TestGarbageInCountersIsForgotten: whatever counters reported for half a minute, after a minute of sane
// readings no share is further from a quarter than chance has it in half a minute. Where most counters are wrong, a
// queue grows until their speeds are forgotten; it is no speed, and is taken away, too.
func TestGarbageInCountersIsForgotten(t *testing.T) {
	const sane = 40.0 // seconds
	leap := rapid.OneOf(rapid.SampledFrom([]float64{0, 1, 10, 1e3, 1e5, 2.4e5, 1e9, 1e15, 1e18, -1e18}),
		rapid.Float64Range(0, 1e6))
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom(slices.Sorted(maps.Keys(counterKinds))).Draw(t, "kind")
		liars := rapid.IntRange(1, 4).Draw(t, "liars")
		leaps := rapid.SliceOfN(leap, 3, 12).Draw(t, "leaps")
		often := rapid.SampledFrom([]float64{1, 0.3, 0.02}).Draw(t, "how often")
		adds := rapid.Bool().Draw(t, "leaps add up")
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 3))
		clear := []float64{sane, sane + 50}
		shares := meanShares(1, counterKinds[kind], clear, sane+60, sane+90, func(w *world, i int) func(*ServerReport) {
			var sum [3]float64
			return func(r *ServerReport) {
				if i >= liars {
					return
				}
				fields := []*Reading{&r.Completions, &r.QueueSeconds, &r.BusySeconds}
				for k, f := range fields {
					by := 0.0
					if w.now > 10 && w.now < sane && rng.Float64() < often {
						by = leaps[rng.IntN(len(leaps))]
					}
					if adds { // and a float64 still counts in ones
						sum[k] = max(0, sum[k]+min(by, 1e9))
						by = sum[k]
					}
					f.Value += by
				}
			}
		})
		for i, share := range shares {
			if share < 0.15 || share > 0.4 {
				t.Fatalf("share of %d is %.3f a minute after the counters are sane again: %.3f", i, share, shares)
			}
		}
	})
}
