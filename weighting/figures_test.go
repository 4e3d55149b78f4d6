package weighting

import "testing"

// The tail of the waits under the law, by a seeded discrete-event simulation: 10
// proxies, 20 pods, Poisson arrivals at load 0.8, exponential service of mean 1 s,
// FIFO, one slot, push delay 10 ms, reports of the time of the decision. In
// mean services, p99 of the wait is 2.9 by the shortest queue, and about
//
//	                           every 1 s   every 250 ms
//	random                            23
//	round robin                       13
//	load interpretation          6.2          4.7
//
// whether the capacity is configured or learned, and whether the law sees the
// servers' gauges or only the counts of the proxies.
func TestTailOfTheWaits(t *testing.T) {
	t.Parallel()
	tail := func(steer func(*world)) float64 {
		const seeds = 2
		var sum float64
		for seed := range uint64(seeds) {
			w := newWorld(seed+1, 10, 20, 1, 0.8)
			w.warm = 100
			w.push(w.equalWeights())
			steer(w)
			w.runUntil(2000)
			sum += quantile(w.waits, 0.99)
		}
		return sum / seeds
	}
	random := tail(func(w *world) {
		for _, p := range w.proxies {
			p.policy = "random"
		}
	})
	roundRobin := tail(func(*world) {})
	t.Logf("random %.1f, round robin %.1f", random, roundRobin)
	if roundRobin < 10 || random < 17 {
		t.Fatalf("the simulation is not the one that the figures are of")
	}
	for _, c := range sampled(3, []struct {
		name         string
		signals      signals
		every1s      float64 // p99 at most, in mean services
		every250ms   float64
		ofRoundRobin float64 // at most, at every cadence
	}{
		{"configured capacity", signals{configured: true, gauges: true, counters: true}, 6.8, 5.2, 0.6},
		{"learned capacity", signals{gauges: true, counters: true}, 6.8, 5.2, 0.6},
		{"in-flight counts only", signals{inFlight: true}, 6.8, 5.2, 0.6},
		{"gauges and counts", signals{gauges: true, counters: true, inFlight: true}, 6.8, 5.2, 0.6},
		{"no gauge of running requests", signals{triton: true}, 7, 5.6, 0.6},
		{"no such gauge, and counts", signals{triton: true, inFlight: true}, 6.8, 5.2, 0.6},
	}) {
		t.Run(c.name, func(t *testing.T) {
			slow := tail(func(w *world) { w.steer(c.signals, 1, 0.01, nil) })
			fast := tail(func(w *world) { w.steer(c.signals, 0.25, 0.01, nil) })
			t.Logf("every 1 s %.2f, every 250 ms %.2f", slow, fast)
			if slow > c.every1s || fast > c.every250ms || slow > c.ofRoundRobin*roundRobin {
				t.Errorf("p99 wait %.2f every 1 s (at most %v), %.2f every 250 ms (at most %v), round robin %.2f",
					slow, c.every1s, fast, c.every250ms, roundRobin)
			}
		})
	}
}
