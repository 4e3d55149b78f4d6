package weighting

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"steelyard/sim/engine"
)

// Engines on small GPUs compute the prompts of many requests in an iteration of seconds, at the end of which their
// counters jump. The prefill rate is learned nevertheless.
func TestThePrefillRateOfEnginesThatComputeForSecondsIsLearned(t *testing.T) {
	t.Parallel()
	for _, c := range sampled(2, []struct {
		name        string
		rate        float64 // prompt tokens per second
		budget      int
		least, most float64 // of that rate
	}{
		{"iterations of 2.7 s", 3000, 8192, 0.9, 1.15},
		{"iterations of 9 s", 900, 8192, 0.9, 1.15},
		{"prompts of several iterations of 2.3 s", 900, 2048, 0.85, 1.15},
	}) {
		t.Run(c.name, func(t *testing.T) {
			p := engines(1, 8, func(e *engine.Params) {
				e.Iteration, e.PrefillRate, e.TokenBudget = 40*time.Millisecond, c.rate, c.budget
			})
			p.atLoad(0.8)
			for _, until := range []float64{60, 120, 180} {
				p.run(until, nil)
				ratio := p.decide().Work.PrefillRate / c.rate
				t.Logf("after %v s: %.2f of the rate", until, ratio)
				if !(ratio >= c.least && ratio <= c.most) {
					t.Errorf("after %v s %.2f of the rate, want %v to %v", until, ratio, c.least, c.most)
				}
			}
		})
	}
}

// A law that has just begun, as after a restart of the control plane, has seen no pause yet, and one that every engine
// made is as long as iterations may be.
func TestAStallIsFoundAfterARestartAndAfterAPauseOfAllEngines(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		before func(p *plant)
		within float64 // seconds
	}{
		{"a new law", func(p *plant) { p.law = NewLaw(DefaultParams()) }, 3},
		{"all engines stood still for six seconds", func(p *plant) {
			for i := range p.engines {
				p.engines[i].SetSpeed(seconds(p.now), 0)
			}
			p.run(p.now+6, nil)
			for i := range p.engines {
				p.engines[i].SetSpeed(seconds(p.now), 1)
			}
		}, 15},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := engines(1, 12, nil)
			p.atLoad(0.8)
			p.run(30, nil)
			c.before(p)
			stalls, found := p.now+15, math.Inf(1)
			p.run(stalls, func(d Decision) {
				for _, e := range d.Endpoints {
					if e.Failing && p.now > stalls-5 {
						t.Fatalf("at %.2f s %s: %s", p.now, e.Address, e.OverloadReason)
					}
				}
			})
			p.engines[0].SetSpeed(seconds(p.now), 0)
			p.run(stalls+c.within+1, func(d Decision) {
				for i, e := range d.Endpoints {
					if e.Failing && i > 0 {
						t.Fatalf("at %.2f s %s: %s", p.now, e.Address, e.OverloadReason)
					}
					if e.Failing {
						found = min(found, p.now-stalls)
					}
				}
			})
			if t.Logf("found after %.2f s", found); found > c.within {
				t.Errorf("found after %.2f s, want %v at most", found, c.within)
			}
		})
	}
}

// An engine that stands still for a minute, with requests shown as running, took no minute for its work.
func TestAStandstillIsNoCostOfWork(t *testing.T) {
	t.Parallel()
	p := engines(1, 2, func(e *engine.Params) { e.Iteration, e.PrefillRate = 40*time.Millisecond, 3000 })
	p.atLoad(0.8)
	p.run(60, nil)
	before := p.decide().Work.PrefillRate
	for i := range p.engines {
		p.engines[i].SetSpeed(seconds(p.now), 0)
	}
	p.run(120, nil)
	for i := range p.engines {
		p.engines[i].SetSpeed(seconds(p.now), 1)
	}
	p.run(130, nil)
	wantNear(t, "prefill rate after a standstill, of the rate before", p.decide().Work.PrefillRate/before, 1, 0.15)
}

// So it is where its report could not be read meanwhile, as that of a process that is stopped, or a machine that is.
// With few requests little else is known of the cost.
func TestAStandstillWithoutReportsIsNoCostOfWork(t *testing.T) {
	t.Parallel()
	for _, load := range sampled(2, []float64{0.02, 0.1, 0.8}) {
		p := engines(1, 4, nil)
		p.atLoad(load)
		stopped := false
		p.reads = func(pod int) bool { return pod > 0 || !stopped }
		p.run(300, nil)
		before := p.decide().Work.PrefillRate
		for p.engines[0].InFlight() == 0 {
			p.run(p.now+0.05, nil)
		}
		stopped = true
		p.engines[0].SetSpeed(seconds(p.now), 0)
		p.run(p.now+30, nil)
		stopped = false
		p.engines[0].SetSpeed(seconds(p.now), 1)
		for range 6 {
			p.run(p.now+10, nil)
			d := p.decide()
			wantNear(t, fmt.Sprintf("load %v: prefill rate at %.0f s, of the rate before", load, p.now),
				d.Work.PrefillRate/before, 1, 0.3)
			wantNear(t, fmt.Sprintf("load %v: speed at %.0f s of the one that stood still", load, p.now),
				d.Endpoints[0].Work.PrefillRate/d.Work.PrefillRate, 1, 0.15)
		}
	}
}

// Where scrapes are all there is, gauges of engines that stand still show nothing of what arrives. It is spread as what
// arrived before, and not sent to the one that had the least work when they stopped.
func TestWhatArrivesWhileAllEnginesStandStillIsSpread(t *testing.T) {
	t.Parallel()
	const most = 1.5 // of the mean; it was 2.2 to 4.4 where the arrivals were taken for none
	for seed := range seeds(1, 3) {
		p := engines(seed+1, 8, nil)
		p.counts = false
		p.atLoad(0.8)
		p.run(60, nil)
		before := p.decide().ArrivalRate
		for _, e := range p.engines {
			e.SetSpeed(seconds(p.now), 0)
		}
		p.run(75, nil)
		wantNear(t, "arrivals while they stand still, of those before", p.decide().ArrivalRate/before, 1, 0.2)
		queued := make([]float64, len(p.engines))
		sum := 0.0
		for i, e := range p.engines {
			queued[i] = float64(e.Queued())
			sum += queued[i]
		}
		if ratio := slices.Max(queued) / (sum / 8); ratio > most {
			t.Errorf("queues of %v: %.1f times the mean at one, want %v at most", queued, ratio, most)
		}
		for _, e := range p.engines {
			e.SetSpeed(seconds(p.now), 1)
		}
		p.run(77, nil)
		wantNear(t, "arrivals once they go on, of those before", p.decide().ArrivalRate/before, 1, 0.3)
	}
}

// On small engines an iteration takes as long as few prompt tokens, and where they are not busy, most of their prompts
// begin after a pause, so that what is measured is mostly output. The prefill rate is learned nevertheless.
func TestThePrefillRateOfSmallEnginesIsLearnedWhereMostOfTheTimeGoesIntoOutput(t *testing.T) {
	t.Parallel()
	const rate = 1200 // prompt tokens per second
	for _, c := range sampled(2, []struct{ load, least, most float64 }{
		{0.3, 0.9, 1.6}, {0.5, 0.9, 1.3}, {0.8, 0.9, 1.15},
	}) {
		p := engines(1, 2, func(e *engine.Params) {
			e.Iteration, e.Sequence, e.PrefillRate = 20*time.Millisecond, time.Millisecond, rate
		})
		p.request = shortAndLong
		p.atLoad(c.load)
		var ratios []float64
		p.run(360, func(d Decision) {
			if p.now > 120 {
				ratios = append(ratios, d.Work.PrefillRate/rate)
			}
		})
		ratio := median(ratios)
		t.Logf("load %.1f: %.2f of the rate", c.load, ratio)
		if !(ratio >= c.least && ratio <= c.most) {
			t.Errorf("load %.1f: %.2f of the rate, want %v to %v", c.load, ratio, c.least, c.most)
		}
	}
}

// shortAndLong is a request of a prompt of 10 to 40 or of 300 to 800 tokens.
func shortAndLong(rng *rand.Rand) *engine.Request {
	prompt := 10 + rng.IntN(30)
	if rng.Float64() < 0.5 {
		prompt = 300 + rng.IntN(500)
	}
	return &engine.Request{Prompt: prompt, Output: 20 + rng.IntN(80)}
}

// An engine of iterations of two seconds is read each quarter of a second. What no report brings any more (a field, or
// restarts that a scrape no longer knows of) makes no reading new.
func TestTheTimeBetweenIterationsCountsWhateverReportsLack(t *testing.T) {
	for name, first := range map[string]func(*Endpoint, time.Time){
		"nothing":  func(*Endpoint, time.Time) {},
		"a field":  func(e *Endpoint, now time.Time) { e.Server.Awake = known(1, now) },
		"restarts": func(e *Endpoint, _ time.Time) { e.Server.Restarts = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			law, sum, n := NewLaw(DefaultParams()), 0.0, 0
			for i := range 20 * 120 {
				now, read := at(float64(i)*0.05), at(math.Floor(float64(i)/5)*0.25)
				s := Snapshot{ScrapeInterval: seconds(0.25), PushPeriod: seconds(0.05)}
				for _, a := range []string{"a", "b", "c"} {
					done := 4 * math.Floor(read.Sub(epoch).Seconds()/2)
					e := scraped(a, 0, 0, 4, read)
					e.Server.Completions = known(done, read)
					e.Server.Tokens = TokenCounts{At: read, Prompt: 1000 * done, Generated: 20 * done, First: done,
						Iterations: done / 4}
					if i == 0 {
						first(&e, read)
					}
					s.Endpoints = append(s.Endpoints, e)
				}
				if d := law.Step(now, s); i > 20*60 {
					sum, n = sum+d.ArrivalRate, n+1
				}
			}
			if rate := sum / float64(n); rate < 5.4 || rate > 6.6 {
				t.Errorf("%.2f requests a second arrive, want 6", rate)
			}
		})
	}
}
