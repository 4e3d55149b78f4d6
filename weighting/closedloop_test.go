package weighting

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"
)

// A fluid pool under constant load: what flows in by the shares flows out by the
// slots, without any noise, so that every movement is the loop's own.
type fluid struct {
	slots, load, completed []float64 // requests
	seen                   []Endpoint
	shares                 []float64
	history                [][]float64 // of the shares, one row for each decision
}

func newFluid(n int) *fluid {
	f := &fluid{}
	for i := range n {
		slots := float64(int(4) << (i % 3)) // 4, 8 and 16
		f.slots = append(f.slots, slots)
		f.load = append(f.load, 0)
		f.completed = append(f.completed, 0)
		f.shares = append(f.shares, 1/float64(n))
		f.seen = append(f.seen, Endpoint{Address: fmt.Sprintf("%02d", i)})
	}
	return f
}

// flow moves the pool on by dt seconds under that many requests a second, each of
// which takes a second.
func (f *fluid) flow(dt, rate float64) {
	for i := range f.load {
		out := min(f.load[i], f.slots[i]) * dt
		f.load[i] += rate*f.shares[i]*dt - out
		f.completed[i] += out
	}
}

func (f *fluid) scrape(i int, at time.Time) {
	address := f.seen[i].Address
	f.seen[i] = scraped(address, f.slots[i], max(0, f.load[i]-f.slots[i]), min(f.load[i], f.slots[i]), at)
	f.seen[i].Server.Completions = known(f.completed[i], at)
}

// againstTheTrend is how far a series moved against its own direction, up and
// then down again or the other way round, as a share of its range.
func againstTheTrend(series []float64, span float64) float64 {
	var up, down float64
	for i := 1; i < len(series); i++ {
		step := series[i] - series[i-1]
		up, down = up+max(0, step), down+max(0, -step)
	}
	return min(up, down) / span
}

func TestNoHuntingUnderConstantLoad(t *testing.T) {
	t.Parallel()
	const (
		mostHunting = 0.001 // movement against the trend, of the range, in 40 s after 20 s to settle
		mostSpread  = 0.001 // requests for each slot, between the fullest and the emptiest pod
	)
	for _, load := range []float64{0.3, 0.8, 0.95, 0.99} {
		for _, delay := range []time.Duration{10 * time.Millisecond, 200 * time.Millisecond} {
			t.Run(fmt.Sprintf("load %v, push delay %v", load, delay), func(t *testing.T) {
				f := newFluid(20)
				f.load[0], f.load[7], f.load[14] = 30, 20, 0.5 // a disturbance to begin with
				settled := f.run(load, delay, 60*second, 20*second)
				worst, spread := 0.0, 0.0
				for i := range f.load {
					whole := column(f.history, i)
					span := max(slices.Max(whole)-slices.Min(whole), 1e-3)
					worst = max(worst, againstTheTrend(whole[settled:], span))
					for j := range f.load {
						spread = max(spread, f.load[i]/f.slots[i]-f.load[j]/f.slots[j])
					}
				}
				t.Logf("movement against the trend %.5f of the range, spread %.5f requests per slot", worst, spread)
				if worst > mostHunting || spread > mostSpread {
					t.Errorf("hunting %v (at most %v), spread %v (at most %v)", worst, mostHunting, spread, mostSpread)
				}
			})
		}
	}
}

func column(rows [][]float64, i int) []float64 {
	out := make([]float64, len(rows))
	for r, row := range rows {
		out[r] = row[i]
	}
	return out
}

// run closes the loop: scrapes every 250 ms, each pod at its own time, a decision
// every 250 ms that takes effect after the delay. It returns the index of the
// first decision after the time to settle.
func (f *fluid) run(load float64, delay, length, settle time.Duration) (settled int) {
	const tick, period = 10 * time.Millisecond, 250 * time.Millisecond
	var rate float64
	for _, s := range f.slots {
		rate += load * s
	}
	law := NewLaw(DefaultParams())
	var next []float64
	for since := time.Duration(0); since < length; since += tick {
		now := epoch.Add(since)
		for i := range f.load {
			if (since+time.Duration(i)*tick)%period == 0 || since == 0 {
				f.scrape(i, now)
			}
		}
		if since%period == 0 {
			d := law.Step(now, Snapshot{Endpoints: f.seen, PushDelay: delay, PushPeriod: period})
			next = nil
			for _, e := range d.Endpoints {
				next = append(next, e.Share)
			}
			f.history = append(f.history, next)
			if since <= settle {
				settled = len(f.history) - 1
			}
		}
		if since%period == delay%period && next != nil {
			f.shares = next
		}
		f.flow(tick.Seconds(), rate)
	}
	return settled
}

// With random arrivals the queues cannot be equal; the loop must still keep them
// far closer together than any choice that does not look, at every cadence.
func TestLoopKeepsQueuesTogetherUnderNoise(t *testing.T) {
	t.Parallel()
	spread := func(steer func(*world)) float64 {
		w := newWorld(5, 10, 20, 1, 0.8)
		for _, p := range w.proxies {
			p.policy = "random" // by the weights
		}
		w.push(w.equalWeights())
		steer(w)
		var sum, n float64
		w.every(0.1, 20, func() {
			least, most := math.Inf(1), 0.0
			for _, p := range w.pods {
				least, most = min(least, float64(p.load())), max(most, float64(p.load()))
			}
			sum, n = sum+most-least, n+1
		})
		w.runUntil(500)
		return sum / n
	}
	blind := spread(func(*world) {})
	for _, c := range []struct{ period, most float64 }{{0.05, 0.35}, {0.25, 0.4}, {1, 0.55}} {
		seeing := spread(func(w *world) { w.steer(signals{gauges: true, counters: true}, c.period, 0.05, nil) })
		t.Logf("a push every %v s: spread %.2f requests, equal weights %.2f", c.period, seeing, blind)
		if seeing > c.most*blind {
			t.Errorf("a push every %v s: spread %.2f requests, more than %v of that of equal weights (%.2f)", c.period,
				seeing, c.most, blind)
		}
	}
}

// meanShare is the mean share of a pod from one second to another, over seeds.
func meanShare(t *testing.T, pod int, from, to float64, run func(seed uint64, see func(*world, Decision))) float64 {
	t.Helper()
	const seeds = 20
	var sum, n float64
	for seed := range uint64(seeds) {
		run(seed, func(w *world, d Decision) {
			if w.now >= from && w.now < to {
				sum, n = sum+of(t, d, fmt.Sprintf("10.0.0.%d:8000", pod+1)).Share, n+1
			}
		})
	}
	return sum / n
}

// A pod turns three times slower at second 10. Fifteen seconds later its share is
// what keeps it as busy as the others.
func TestShareOfAPodThatTurnsSlowIsRightWithinSeconds(t *testing.T) {
	t.Parallel()
	const (
		turns, within, window = 10, 15, 10 // seconds
		slow                  = 3
		right                 = (1.0 / 3) / (19 + 1.0/3)
	)
	for _, c := range []struct {
		name      string
		signals   signals
		tolerance float64
	}{
		{"gauges", signals{gauges: true, counters: true}, 0.15},
		{"counters", signals{triton: true, configured: true}, 0.15},
		{"all", signals{gauges: true, counters: true, inFlight: true}, 0.15},
		// Counts do not show the speed: the pod is kept as full as the others, not as
		// busy, and with four slots that is a fifth more.
		{"in-flight", signals{inFlight: true}, 0.3},
	} {
		t.Run(c.name, func(t *testing.T) {
			run := func(seed uint64, see func(*world, Decision)) {
				w := newWorld(seed, 10, 20, 4, 0.8)
				w.push(w.equalWeights())
				w.after(turns, func() { w.pods[slow].service = exponential(3) })
				w.steer(c.signals, 0.25, 0.01, func(d Decision) { see(w, d) })
				w.runUntil(turns + within + window)
			}
			before := meanShare(t, slow, 0, turns, run)
			after := meanShare(t, slow, turns+within, turns+within+window, run)
			t.Logf("share %.4f before (right: %.4f), %.4f after %d s (right: %.4f)", before, 1.0/20, after, within,
				right)
			wantNear(t, "share before, of the right one", before*20, 1, 0.15)
			wantNear(t, "share after, of the right one", after/right, 1, c.tolerance)
		})
	}
}

func TestArrivalRateFollowsASurgeWithinSeconds(t *testing.T) {
	const turns, within = 30, 10 // seconds
	w := newWorld(2, 10, 20, 16, 0.4)
	before := w.rate
	w.push(w.equalWeights())
	w.after(turns+0.1, func() { w.rate *= 2 })
	w.steer(signals{gauges: true, counters: true}, 0.25, 0.01, func(d Decision) {
		switch w.now {
		case turns:
			wantNear(t, "rate before, of the right one", d.ArrivalRate/before, 1, 0.15)
		case turns + within:
			wantNear(t, "rate after, of the right one", d.ArrivalRate/(2*before), 1, 0.15)
		}
	})
	w.runUntil(turns + within)
}

// A pod that joins is eased in and then carries its part; one that leaves is out
// at once, and its part is with the others.
func TestPodJoinsAndLeaves(t *testing.T) {
	t.Parallel()
	const joins, ramped, leaves, newest = 20, 20 + 1 + 10 + 2, 50, 19
	run := func(seed uint64, see func(*world, Decision)) {
		w := newWorld(seed, 10, 20, 4, 0.7)
		all := w.pods
		w.pods = all[:newest]
		w.push(w.equalWeights())
		resize := func(to []*pod) func() {
			return func() { w.pods = to; w.push(w.equalWeights()) }
		}
		w.after(joins-0.001, resize(all))
		w.after(leaves-0.001, resize(all[:newest]))
		w.steer(signals{gauges: true, counters: true, configured: true}, 0.25, 0.0001, func(d Decision) { see(w, d) })
		w.runUntil(leaves + 1)
	}
	run(1, func(w *world, d Decision) {
		var sum float64
		for _, e := range d.Endpoints {
			sum += e.Share
		}
		wantNear(t, "sum of the shares", sum, 1, 1e-9)
		if w.now < joins || w.now >= leaves {
			want(t, "endpoints without the new one", len(d.Endpoints), newest)
		} else if w.now < joins+1 {
			want(t, "reason at first", of(t, d, w.pods[newest].address).Reason, ReasonBlackout)
		}
	})
	inBlackout := meanShare(t, newest, joins, joins+1, run)
	afterwards := meanShare(t, newest, ramped, leaves, run)
	t.Logf("share %.4f in blackout, %.4f after the ramp; its part is %.4f", inBlackout, afterwards, 1.0/20)
	if inBlackout > 0.01 {
		t.Errorf("share in blackout %v, more than a fifth of its part", inBlackout)
	}
	wantNear(t, "share after the ramp, of its part", afterwards*20, 1, 0.15)
}
