package weighting

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"steelyard/weighting/sim/engine"
)

// A plant is a pool of engines behind proxies that follow the law's shares.
type plant struct {
	law     *Law
	rng     *rand.Rand
	now     float64 // seconds
	engines []*engine.Engine
	issued  []float64
	seen    []ServerReport
	shares  []float64
	rate    float64 // requests per second
	scrape  float64 // seconds between two scrapes of an engine
	counts  bool    // proxies tell of their requests
	next    float64 // arrival
	gauges  func(pod int, running, waiting float64) (float64, float64)
	request func(*rand.Rand) *engine.Request
}

func newPlant(seed uint64, engines int, change func(*engine.Params)) *plant {
	p := &plant{law: NewLaw(DefaultParams()), rng: rand.New(rand.NewPCG(seed, 11)), scrape: 0.25}
	params := engine.Defaults()
	if change != nil {
		change(&params)
	}
	for range engines {
		p.engines = append(p.engines, engine.New(params))
		p.shares = append(p.shares, 1/float64(engines))
	}
	p.issued, p.seen = make([]float64, engines), make([]ServerReport, engines)
	p.request = chat
	return p
}

// chat is a request of a prompt of 1,000 tokens and an answer of 200, in the mean.
func chat(rng *rand.Rand) *engine.Request { return tokens(rng, 1000, 200) }

func tokens(rng *rand.Rand, prompt, answer float64) *engine.Request {
	length := func(mean float64) int { return 1 + min(int(rng.ExpFloat64()*mean), 14_000) }
	return &engine.Request{Prompt: length(prompt), Output: length(answer)}
}

// run goes on until that second, and calls see after each step of the law, of which there is one
// every 50 ms.
func (p *plant) run(until float64, see func(d Decision)) {
	const tick, step = 0.005, 10 // seconds, ticks
	for n := int(math.Round(p.now / tick)); p.now < until; n++ {
		p.now = float64(n+1) * tick
		for ; p.next <= p.now; p.next += p.rng.ExpFloat64() / p.rate {
			i := weighted(p.rng, p.shares)
			p.issued[i]++
			p.engines[i].Arrive(seconds(p.now), p.request(p.rng))
		}
		for i, e := range p.engines {
			for at, ok := e.Next(); ok && at <= seconds(p.now); at, ok = e.Next() {
				e.Step(at)
			}
			phase := int(math.Round(p.scrape / tick * float64(i) / float64(len(p.engines))))
			if (n-phase)%int(math.Round(p.scrape/tick)) == 0 {
				p.seen[i] = p.report(i)
			}
		}
		if n%step == 0 {
			d := p.decide()
			if see != nil {
				see(d)
			}
		}
	}
}

func (p *plant) report(i int) ServerReport {
	e, now := p.engines[i], at(p.now)
	running, waiting := float64(e.Gauges().Running), float64(e.Gauges().Waiting)
	if p.gauges != nil {
		running, waiting = p.gauges(i, running, waiting)
	}
	return ServerReport{Queue: known(waiting, now), Running: known(running, now), Completions: known(float64(e.Counters().Finished), now)}
}

func (p *plant) decide() Decision {
	now := at(p.now)
	s := Snapshot{PushDelay: 10 * time.Millisecond, PushPeriod: 50 * time.Millisecond, ScrapeInterval: seconds(p.scrape)}
	for i, e := range p.engines {
		endpoint := Endpoint{Address: fmt.Sprintf("%02d", i), Server: p.seen[i]}
		if p.counts {
			ended := known(float64(e.Counters().Finished), now)
			endpoint.InFlight, endpoint.Exact = known(float64(e.InFlight()), now), true
			endpoint.Proxies = ProxyReport{Issued: known(p.issued[i], now), Ended: ended, Answered: ended}
		}
		s.Endpoints = append(s.Endpoints, endpoint)
	}
	d := p.law.Step(now, s)
	for i, e := range d.Endpoints {
		p.shares[i] = e.Share
	}
	return d
}

// running are the mean numbers of running requests of each engine until that second, and how far
// the one that is furthest from their mean is from it, as a part of it.
func (p *plant) running(until float64) (means []float64, off float64) {
	means = make([]float64, len(p.engines))
	n := 0.0
	p.run(until, func(Decision) {
		n++
		for i, e := range p.engines {
			means[i] += (float64(len(e.Running())) - means[i]) / n
		}
	})
	var mean float64
	for _, m := range means {
		mean += m / float64(len(means))
	}
	for _, m := range means {
		off = max(off, math.Abs(m/mean-1))
	}
	return means, off
}

// An engine that batches continuously holds requests back at any number running. What one of four
// equal ones shows for a moment must not become its size.
func TestAMomentOfFewRunningWhileOthersWaitDoesNotLockAnEngineOut(t *testing.T) {
	t.Parallel()
	const shows, lasts = 60.0, 2.5 // seconds
	for _, c := range []struct {
		name   string
		counts bool
		scrape float64
		from   float64 // when it shows so
	}{
		{"by scrapes alone", false, 0.25, shows},
		{"by scrapes each second", false, 1, shows},
		{"with exact counts", true, 1, shows},
		{"from the first scrape on", false, 0.25, 0},
		{"from the first scrape on, with exact counts", true, 0.25, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPlant(1, 4, nil)
			p.rate, p.counts, p.scrape = 21, c.counts, c.scrape
			p.gauges = func(pod int, running, waiting float64) (float64, float64) {
				if pod == 0 && p.now >= c.from && p.now < c.from+lasts {
					return 3, 1
				}
				return running, waiting
			}
			p.run(c.from+lasts+20, nil)
			means, off := p.running(c.from + lasts + 40)
			t.Logf("running, in the mean of the 20 s that begin 20 s later: %.1f", means)
			if off > 0.1 {
				t.Errorf("%.1f running: %.0f %% from equal, want 10 at most", means, 100*off)
			}
		})
	}
}

// Engines hold requests back while the tokens of an iteration are spent or the KV cache is short,
// at numbers running that differ from one moment to the next. Whoever happens to have had few then
// is like the others.
func TestEnginesThatHoldRequestsBackStayAlike(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		rate    float64 // requests per second and engine
		prompts float64 // tokens, mean
		answers float64
		cache   int // tokens
		scrape  float64
		counts  bool
	}{
		{"chat", 5, 1000, 200, 400_000, 0.25, false},
		{"long prompts", 1.6, 4000, 200, 400_000, 0.25, false},
		{"long prompts, exact counts", 1.6, 4000, 200, 400_000, 1, true},
		{"a short cache", 3.5, 1000, 200, 60_000, 0.25, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			const engines, learns, looks = 12, 180, 240 // seconds
			p := newPlant(3, engines, func(p *engine.Params) { p.KVTokens = c.cache })
			p.rate, p.counts, p.scrape = engines*c.rate, c.counts, c.scrape
			p.request = func(rng *rand.Rand) *engine.Request { return tokens(rng, c.prompts, c.answers) }
			p.run(learns, nil)
			means, off := p.running(learns + looks)
			t.Logf("running: %.1f, %.1f %% from equal at most", means, 100*off)
			if off > 0.05 {
				t.Errorf("%.1f %% from equal, want 5 at most", 100*off)
			}
		})
	}
}

// An engine that runs no more than a number of sequences has that many slots.
func TestAnEngineAtItsMostSequencesHasThatManySlots(t *testing.T) {
	p := newPlant(1, 4, func(p *engine.Params) { p.MaxSequences = 16 })
	p.rate = 4 * 5
	p.run(120, nil)
	for _, e := range p.decide().Endpoints {
		want(t, "slots", e.Slots, 16)
		want(t, "source", e.SlotsSource, CapacityLearned)
	}
}
