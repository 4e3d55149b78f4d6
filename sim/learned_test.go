package sim

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"steelyard/weighting"
)

// learning is a pool whose law reads a page of each pod four times a second.
func learning(pods []PodGroup, load float64, duration time.Duration) (Scenario, Steelyard) {
	s := small()
	s.Pods, s.Load, s.Duration, s.WarmUp, s.Envoys = pods, load, duration, 0, 10
	return s, Steelyard{Source: Scrape, ScrapeInterval: 250 * time.Millisecond, MinInterval: 250 * time.Millisecond,
		EnvoyPolicy: RoundRobin}
}

// last is the last decision of a run.
func last(t *testing.T, s Scenario, o Steelyard) (d weighting.Decision) {
	t.Helper()
	o.Decided = func(_ time.Duration, decided *weighting.Decision) { d = *decided }
	run(t, s, steelyard("steelyard", o))
	return d
}

func TestSlotsAreLearned(t *testing.T) {
	t.Parallel()
	triton := Metrics{NoRunning: true}
	for _, c := range []struct {
		name      string
		slots     int
		metrics   Metrics
		service   Service
		load      float64
		after     time.Duration
		tolerance float64
	}{
		{"by the gauge", 4, Metrics{}, Service{Mean: time.Second}, 0.95, 20 * time.Second, 0},
		{"by the gauge, 64 slots", 64, Metrics{}, Service{Mean: time.Second}, 0.97, time.Minute, 0},
		{"by counters, one slot, requests of 1 s", 1, triton, Service{Kind: Deterministic, Mean: time.Second}, 0.98,
			time.Minute, 0.2},
		{"by counters, one slot, requests of any length", 1, triton, Service{Mean: time.Second}, 0.95, 2 * time.Minute,
			0.25},
		{"by counters, 8 slots", 8, triton, Service{Mean: time.Second}, 0.98, time.Minute, 0.1},
		{"by counters, requests of 4 s", 8, triton, Service{Kind: Deterministic, Mean: 4 * time.Second}, 0.98,
			2 * time.Minute, 0.1},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, o := learning([]PodGroup{{Count: 4, Slots: c.slots, Metrics: c.metrics}}, c.load, c.after)
			s.Service = c.service
			for _, e := range last(t, s, o).Endpoints {
				want(t, e.Address+": source", e.SlotsSource, weighting.CapacityLearned)
				wantNear(t, e.Address+": slots", e.Slots/float64(c.slots), 1, c.tolerance)
			}
		})
	}
}

// Times of service are noisy: noise is no speed.
func TestUniformPoolStaysUniform(t *testing.T) {
	t.Parallel()
	const (
		meanOff = 0.01 // mean distance of a speed from 1, over pool and time
		off     = 0.05 // more than this counts as wrong
		wrong   = 0.02 // of the speeds, over pool and time
	)
	for name, m := range map[string]Metrics{"gauges": {}, "counters": {NoRunning: true}} {
		t.Run(name, func(t *testing.T) {
			s, o := learning([]PodGroup{{Count: 20, Slots: 1, Metrics: m}}, 0.8, 200*time.Second)
			var sum, far, n float64
			o.Decided = func(_ time.Duration, d *weighting.Decision) {
				for _, e := range d.Endpoints {
					distance := math.Abs(e.RelativeSpeed - 1)
					sum, n = sum+distance, n+1
					if distance > off {
						far++
					}
				}
			}
			run(t, s, steelyard("steelyard", o))
			if sum/n > meanOff || far/n > wrong {
				t.Errorf("mean distance %v (at most %v), %v of them more than %v off (at most %v)", sum/n, meanOff,
					far/n, off, wrong)
			}
		})
	}
}

func TestSlowEndpointIsFound(t *testing.T) {
	t.Parallel()
	for _, slots := range []int{4, 16} {
		for _, m := range []Metrics{{}, {NoRunning: true}} {
			s, o := learning([]PodGroup{{Count: 1, Slots: slots, Speed: 1.0 / 3, Metrics: m},
				{Count: 19, Slots: slots, Metrics: m}}, 0.8, 30*time.Second)
			wantNear(t, fmt.Sprintf("%d slots, %+v: speed after 30 s", slots, m),
				last(t, s, o).Endpoints[0].RelativeSpeed, 1.0/3, 0.45)
		}
	}
}

// counters are kinds of servers by what they export, and whether the law knows more than that.
var counters = map[string]struct {
	Metrics
	Steelyard
}{
	"gauges and counters":         {Metrics{}, Steelyard{Source: Scrape}},
	"counters, capacity is known": {Metrics{NoRunning: true}, Steelyard{Source: Scrape, Capacity: true}},
	"counters, in-flight counts":  {Metrics{NoRunning: true}, Steelyard{Source: Redis, Capacity: true}},
	"gauges and in-flight counts": {Metrics{}, Steelyard{Source: Redis}},
}

// meanShares are the mean shares of four equal pods from one second to another, where shown changes what they report.
func meanShares(kind string, seed uint64, from, to time.Duration,
	shown func(at time.Duration, pod int, r *weighting.ServerReport)) (shares [4]float64, err error) {
	s, o := small(), counters[kind].Steelyard
	s.Seed, s.Load, s.Duration, s.WarmUp = seed, 0.7, to, 0
	s.Pods = []PodGroup{{Count: 4, Slots: 4, Metrics: counters[kind].Metrics}}
	o.ScrapeInterval, o.MinInterval = 250*time.Millisecond, 250*time.Millisecond
	o.Shown = func(at time.Duration, s *weighting.Snapshot) {
		for i := range s.Endpoints {
			shown(at, i, &s.Endpoints[i].Server)
		}
	}
	n := 0.0
	o.Decided = func(at time.Duration, d *weighting.Decision) {
		if at < from {
			return
		}
		n++
		for i, e := range d.Endpoints {
			shares[i] += (e.Share - shares[i]) / n
		}
	}
	_, err = Run(context.Background(), s, steelyard(kind, o))
	return shares, err
}

// TestOneInsaneCounterIsForgotten: a counter that jumps and comes back is no speed. A while later all get the same
// again.
func TestOneInsaneCounterIsForgotten(t *testing.T) {
	t.Parallel()
	const leaps, sane = time.Minute, time.Minute + 300*time.Millisecond
	for kind := range counters {
		for _, leap := range sampled(3, []float64{1e18, 1e9, 2e5, 5e3}) {
			share := 0.0
			const seeds = 4
			for seed := range uint64(seeds) {
				shares, err := meanShares(kind, seed, sane+30*time.Second, sane+time.Minute,
					func(at time.Duration, pod int, r *weighting.ServerReport) {
						if pod == 0 && at >= leaps && at < sane {
							r.Completions.Value += leap
							r.QueueSeconds.Value += leap
							r.BusySeconds.Value += leap
						}
					})
				want(t, "error", err, nil)
				share += shares[0] / seeds
			}
			wantNear(t, fmt.Sprintf("%s, a leap by %g: share", kind, leap), share, 0.25, 0.1)
		}
	}
}

// TestGarbageInCountersIsForgotten: whatever counters reported for half a minute, some minutes later no share is
// further from a quarter than chance has it in half a minute.
func TestGarbageInCountersIsForgotten(t *testing.T) {
	t.Parallel()
	const begins, sane = 10 * time.Second, 40 * time.Second
	leap := rapid.OneOf(rapid.SampledFrom([]float64{0, 1, 10, 1e3, 1e5, 2.4e5, 1e9, 1e15, 1e18, -1e18}),
		rapid.Float64Range(0, 1e6))
	var kinds []string
	for kind := range counters {
		kinds = append(kinds, kind)
	}
	slices.Sort(kinds)
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom(kinds).Draw(t, "kind")
		liars := rapid.IntRange(1, 4).Draw(t, "liars")
		leaps := rapid.SliceOfN(leap, 3, 12).Draw(t, "leaps")
		often := rapid.SampledFrom([]float64{1, 0.3, 0.02}).Draw(t, "how often")
		adds := rapid.Bool().Draw(t, "leaps add up")
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 3))
		var sums [4][3]float64
		shares, err := meanShares(kind, 1, sane+150*time.Second, sane+3*time.Minute,
			func(at time.Duration, pod int, r *weighting.ServerReport) {
				if pod >= liars {
					return
				}
				for k, f := range []*weighting.Reading{&r.Completions, &r.QueueSeconds, &r.BusySeconds} {
					by := 0.0
					if at > begins && at < sane && rng.Float64() < often {
						by = leaps[rng.IntN(len(leaps))]
					}
					if sum := &sums[pod][k]; adds { // and a float64 still counts in ones
						*sum = max(0, *sum+min(by, 1e9))
						by = *sum
					}
					f.Value += by
				}
			})
		if err != nil {
			t.Fatal(err)
		}
		for i, share := range shares {
			if share < 0.15 || share > 0.4 {
				t.Fatalf("share of %d is %.3f two minutes after the counters are sane again: %.3f", i, share, shares)
			}
		}
	})
}
