package weighting

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// An engine batches continuously, as vLLM does: in each iteration every running request gets one
// token, and what is left of the token budget goes to prompts. The constants are those of a model
// of 70B parameters on four GPUs.
type engine struct {
	sequences int     // that it runs at once
	cache     int     // tokens
	ends      float64 // of the iteration, seconds; +Inf while idle

	waiting, running []*generation
	chunks           []int // prompt tokens of this iteration, one for each of running
	completed        float64
	inFlight         float64
	shown            struct{ waiting, running float64 } // as of the last scheduling
}

// A generation is a request in an engine, in tokens.
type generation struct{ prompt, output, computed, generated int }

func newEngine() *engine { return &engine{sequences: 128, cache: 400_000, ends: math.Inf(1)} }

func (e *engine) add(now float64, g *generation) {
	e.waiting = append(e.waiting, g)
	e.inFlight++
	if math.IsInf(e.ends, 1) {
		e.schedule(now)
	}
}

// advance runs the iterations that end by now.
func (e *engine) advance(now float64) {
	for e.ends <= now {
		rest := e.running[:0]
		for i, g := range e.running {
			g.computed += e.chunks[i]
			if g.computed >= g.prompt {
				g.generated++
			}
			if g.generated < g.output {
				rest = append(rest, g)
			} else {
				e.completed++
				e.inFlight--
			}
		}
		e.running = rest
		e.schedule(e.ends)
	}
}

// schedule begins an iteration: what decodes first, then prompts that have begun, then new ones.
func (e *engine) schedule(now float64) {
	const budget = 8192
	left, held := budget, 0
	decoding, context, prompts := 0, 0, 0
	e.chunks = e.chunks[:0]
	for _, g := range e.running {
		held += g.computed + g.generated
		if g.computed >= g.prompt {
			left--
		}
	}
	for held > e.cache && len(e.running) > 1 { // the youngest makes room, and is computed again
		last := e.running[len(e.running)-1]
		e.running = e.running[:len(e.running)-1]
		held -= last.computed + last.generated
		last.computed = 0
		e.waiting = append([]*generation{last}, e.waiting...)
	}
	for len(e.waiting) > 0 && len(e.running) < e.sequences && left > 0 && held+e.waiting[0].prompt <= e.cache {
		g := e.waiting[0]
		e.waiting, e.running = e.waiting[1:], append(e.running, g)
		held += g.prompt
		left -= min(left, g.prompt)
	}
	left = budget
	for _, g := range e.running {
		if g.computed >= g.prompt {
			decoding, context, left = decoding+1, context+g.computed+g.generated, left-1
		}
	}
	for _, g := range e.running {
		chunk := min(max(0, left), g.prompt-g.computed)
		e.chunks = append(e.chunks, chunk)
		left, prompts = left-chunk, prompts+chunk
	}
	e.shown.waiting, e.shown.running = float64(len(e.waiting)), float64(len(e.running))
	e.ends = math.Inf(1)
	if len(e.running) > 0 {
		e.ends = now + 0.020 + 0.00012*float64(decoding) + float64(prompts)/12_000 + 15e-9*float64(context)
	}
}

// A plant is a pool of engines behind proxies that follow the law's shares.
type plant struct {
	law     *Law
	rng     *rand.Rand
	now     float64 // seconds
	engines []*engine
	issued  []float64
	seen    []ServerReport
	shares  []float64
	rate    float64 // requests per second
	scrape  float64 // seconds between two scrapes of an engine
	counts  bool    // proxies tell of their requests
	next    float64 // arrival
	gauges  func(engine int, running, waiting float64) (float64, float64)
	request func(*rand.Rand) *generation
}

func newPlant(seed uint64, engines int) *plant {
	p := &plant{law: NewLaw(DefaultParams()), rng: rand.New(rand.NewPCG(seed, 11)), scrape: 0.25}
	for range engines {
		p.engines = append(p.engines, newEngine())
		p.shares = append(p.shares, 1/float64(engines))
	}
	p.issued, p.seen = make([]float64, engines), make([]ServerReport, engines)
	p.request = chat
	return p
}

// chat is a request of a prompt of 1,000 tokens and an answer of 200, in the mean.
func chat(rng *rand.Rand) *generation { return tokens(rng, 1000, 200) }

func tokens(rng *rand.Rand, prompt, answer float64) *generation {
	length := func(mean float64) int { return 1 + min(int(rng.ExpFloat64()*mean), 16_000) }
	return &generation{prompt: length(prompt), output: length(answer)}
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
			p.engines[i].add(p.now, p.request(p.rng))
		}
		for i, e := range p.engines {
			e.advance(p.now)
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
	running, waiting := e.shown.running, e.shown.waiting
	if p.gauges != nil {
		running, waiting = p.gauges(i, running, waiting)
	}
	return ServerReport{Queue: known(waiting, now), Running: known(running, now), Completions: known(e.completed, now)}
}

func (p *plant) decide() Decision {
	now := at(p.now)
	s := Snapshot{PushDelay: 10 * time.Millisecond, PushPeriod: 50 * time.Millisecond, ScrapeInterval: seconds(p.scrape)}
	for i, e := range p.engines {
		endpoint := Endpoint{Address: fmt.Sprintf("%02d", i), Server: p.seen[i]}
		if p.counts {
			endpoint.InFlight, endpoint.Exact = known(e.inFlight, now), true
			endpoint.Proxies = ProxyReport{
				Issued: known(p.issued[i], now), Ended: known(p.issued[i]-e.inFlight, now), Answered: known(p.issued[i]-e.inFlight, now),
			}
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
			means[i] += (float64(len(e.running)) - means[i]) / n
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
			p := newPlant(1, 4)
			p.rate, p.counts, p.scrape = 21, c.counts, c.scrape
			p.gauges = func(engine int, running, waiting float64) (float64, float64) {
				if engine == 0 && p.now >= c.from && p.now < c.from+lasts {
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
			p := newPlant(3, engines)
			p.rate, p.counts, p.scrape = engines*c.rate, c.counts, c.scrape
			for _, e := range p.engines {
				e.cache = c.cache
			}
			p.request = func(rng *rand.Rand) *generation { return tokens(rng, c.prompts, c.answers) }
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
	p := newPlant(1, 4)
	p.rate = 4 * 5
	for _, e := range p.engines {
		e.sequences = 16
	}
	p.run(120, nil)
	for _, e := range p.decide().Endpoints {
		want(t, "slots", e.Slots, 16)
		want(t, "source", e.SlotsSource, CapacityLearned)
	}
}
