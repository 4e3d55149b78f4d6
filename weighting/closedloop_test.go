package weighting

import (
	"fmt"
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
