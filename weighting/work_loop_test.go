package weighting

import (
	"math"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"

	"steelyard/sim/engine"
)

// engines is a pool of engines on the trace of Azure whose law sees all that there is.
func engines(seed uint64, n int, change func(*engine.Params)) *plant {
	p := newPlant(seed, n, change)
	p.request, p.size, p.counts, p.tokens, p.step = conversation, text, true, true, 0.03
	return p
}

// p99 is the 99th percentile of the time to the first token, in seconds, of requests that arrived from one
// second to another.
func (p *plant) p99(from, to float64) float64 { return quantile(p.firsts(from, to), 0.99) }

// A track is the shares of a run, one row for each step, as parts of an equal one.
type track struct {
	step float64 // seconds
	rows [][]float64
}

// tracked runs the plant until then and keeps the shares.
func (p *plant) tracked(t *testing.T, until float64) *track {
	r := &track{step: p.step}
	p.run(until, func(d Decision) {
		row := make([]float64, len(d.Endpoints))
		for i, e := range d.Endpoints {
			row[i] = e.Share * float64(len(d.Endpoints))
			w := e.Work
			sound := w == nil || w.PromptTokens >= 0 && w.Requests >= 0 && !math.IsInf(w.Requests+w.Seconds, 0)
			if !(e.Share > 0 && e.Share <= 1) || math.IsNaN(e.Load) || !sound {
				t.Fatalf("at %.2f s: %+v", p.now, e)
			}
		}
		r.rows = append(r.rows, row)
	})
	return r
}

// lowest is the lowest mean share of any endpoint over a window of that many seconds.
func (r *track) lowest(window float64) float64 {
	n, least := int(window/r.step), math.Inf(1)
	for i := range r.rows[0] {
		sum := 0.0
		for k := range r.rows {
			if sum += r.rows[k][i]; k >= n {
				sum -= r.rows[k-n][i]
			}
			if k >= n-1 {
				least = min(least, sum/float64(n))
			}
		}
	}
	return least
}

// below is for how many seconds on end the mean share of an endpoint over that many seconds is below a part of an equal
// one, at most.
func (r *track) below(part, window float64) float64 {
	n, longest := max(1, int(window/r.step)), 0
	for i := range r.rows[0] {
		sum, row := 0.0, 0
		for k := range r.rows {
			if sum += r.rows[k][i]; k >= n {
				sum -= r.rows[k-n][i]
			}
			if row++; k < n || sum/float64(n) >= part {
				row = 0
			}
			longest = max(longest, row)
		}
	}
	return float64(longest) * r.step
}

// One request in ten is an image of 5 MB that makes 1,000 tokens, like the texts of 4 kB between.
func TestImagesCloseNoEndpoint(t *testing.T) {
	t.Parallel()
	request := func(*rand.Rand) *engine.Request { return &engine.Request{Prompt: 1000, Output: 200} }
	images := func(rng *rand.Rand, r *engine.Request) float64 {
		if rng.Float64() < 0.1 {
			return 5e6
		}
		return text(rng, r)
	}
	for _, c := range sampled(2, []struct {
		scrape  float64 // seconds
		engines int
		change  func(*engine.Params)
	}{
		{0.25, 12, nil}, {1, 12, nil},
		{1, 4, func(p *engine.Params) { // many small requests to each
			p.Iteration, p.Sequence, p.Context, p.PrefillRate = 5*time.Millisecond, 20*time.Microsecond, 0, 100_000
		}},
	}) {
		played := func(size func(*rand.Rand, *engine.Request) float64) (p99, closed float64, w *Work) {
			p := engines(1, c.engines, c.change)
			p.request, p.size, p.scrape = request, size, c.scrape
			p.atLoad(0.8)
			p.run(20, nil)
			shares := p.tracked(t, 100)
			return p.p99(20, 100), shares.below(0.1, 0), p.decide().Work
		}
		chunked, usual, _ := played(nil)
		p99, closed, w := played(images)
		t.Logf("scrapes each %v s: p99 %.3f s, chunked %.3f s; closed for %.2f s, chunked %.2f s; %.3f tokens per "+
			"byte, by size %v",
			c.scrape, p99, chunked, closed, usual, w.TokensPerByte, w.BySize)
		if p99 > 1.1*chunked {
			t.Errorf("p99 %.3f s, with chunked bodies %.3f s", p99, chunked)
		}
		if closed > max(usual+c.scrape, 2*c.scrape) {
			t.Errorf("an endpoint is closed for %.2f s, with chunked bodies %.2f s", closed, usual)
		}
		// Where hardly a scrape is without an image the ratio is that of the sums, and is not used.
		if c.change == nil {
			wantNear(t, "tokens per byte, of those of text", w.TokensPerByte*4.2, 1, 0.2)
		}
		want(t, "guesses by size", w.BySize, false)
	}
}

// Images of 5 MB that make 1,000 tokens begin to come while no metrics page is read, so that no scrape corrects the
// guess by their size. It is that of the longest prompt, and not 1,200,000 tokens, which would be minutes of work.
func TestImagesWithoutMetricsCloseNoEndpoint(t *testing.T) {
	t.Parallel()
	p := engines(1, 12, nil)
	const from, until = 40, 48 // seconds
	p.size = func(rng *rand.Rand, r *engine.Request) float64 {
		if p.now > from && rng.Float64() < 0.05 {
			return 5e6
		}
		return text(rng, r)
	}
	p.reads = func(int) bool { return p.now < from }
	p.atLoad(0.8)
	p.run(from, nil)
	want(t, "guesses by size", p.decide().Work.BySize, true)
	closed := p.tracked(t, until).below(0.1, 0)
	t.Logf("closed for %.2f s at most", closed)
	if closed > 3 {
		t.Errorf("an endpoint is closed for %.2f s", closed)
	}
}

// A client announces bodies that it never sends: 200 within a minute. The endpoint that one of them goes to is taken
// for one with a prompt as long as the longest, for as long as that would take.
func TestBodiesThatNeverComeCloseNoEndpoint(t *testing.T) {
	t.Parallel()
	played := func(seed uint64, size float64) (below, p99 float64) {
		const begins, lasts, ghosts = 30.0, 60.0, 200
		p := engines(seed, 12, nil)
		p.atLoad(0.8)
		next := begins
		p.ticks = func() {
			for ; size > 0 && p.now >= next && next < begins+lasts; next += lasts / ghosts {
				p.begin(weighted(p.picks, p.shares), 0, size)
			}
		}
		p.run(begins, nil)
		shares := p.tracked(t, begins+lasts+20)
		return shares.below(0.5, 2), p.p99(begins, begins+lasts+20)
	}
	for seed := range seeds(1, 2) {
		usual, without := played(seed, 0)
		for _, size := range []float64{1e9, 1 << 53} {
			below, p99 := played(seed, size)
			t.Logf("%g bytes: the share over 2 s is below half of an equal one for %.1f s, without them %.1f s; p99 "+
				"%.2f s, without %.2f s",
				size, below, usual, p99, without)
			if below > 5 || p99 > 1.75*without {
				t.Errorf("%g bytes: the share over 2 s is below half of an equal one for %.1f s; p99 %.2f s, without "+
					"them %.2f s",
					size, below, p99, without)
			}
		}
	}
}

// Prompts that are longer than an engine takes are refused at once: one request in thirty, and each has the size of 50.
func TestRefusedBodiesAreNoPrompts(t *testing.T) {
	t.Parallel()
	played := func(seed uint64, refused bool) (p99, closed float64, w *Work) {
		const from, until, size, takes = 30.0, 100.0, 200_000.0, 0.02 // seconds, seconds, bytes, seconds
		p := engines(seed, 12, nil)
		p.atLoad(0.8)
		type call struct {
			pod int
			at  float64
		}
		var open []call
		p.ticks = func() {
			for ; len(open) > 0 && open[0].at <= p.now; open = open[1:] {
				p.refuse(open[0].pod, 0, size)
			}
			if refused && p.picks.Float64() < p.rate/30*0.005 {
				pod := weighted(p.picks, p.effective())
				p.begin(pod, 0, size)
				open = append(open, call{pod, p.now + takes})
			}
		}
		p.run(from, nil)
		shares := p.tracked(t, until)
		return p.p99(from, until), shares.below(0.1, 0.5), p.decide().Work
	}
	var with, without float64
	for seed := range uint64(3) {
		usual, open, _ := played(seed, false)
		p99, closed, w := played(seed, true)
		t.Logf("p99 %.2f s, without them %.2f s; closed for %.2f s, without %.2f s", p99, usual, closed, open)
		with, without = with+p99, without+usual
		want(t, "guesses by size", w.BySize, true)
		wantNear(t, "tokens per byte", w.TokensPerByte*4.2, 1, 0.1)
	}
	if with > 1.1*without {
		t.Errorf("p99 %.2f s, without them %.2f s", with, without)
	}
}

// versus runs two plants that are the same but for who places the requests, and returns what users get by the law and
// by Envoy's least request.
func versus(t *testing.T, make func() *plant, from, to float64) (law, least answers) {
	t.Helper()
	p := make()
	p.tracked(t, to)
	o := make()
	o.least = true
	o.run(to, nil)
	return p.answers(from, to), o.answers(from, to)
}

// Whatever the proxies do not see, placement is never worse than Envoy's least request, in anything that users notice.
// Package sim asks it of what they do see.
func TestByWorkNeverAboveLeastRequest(t *testing.T) {
	t.Parallel()
	for _, c := range sampled(2, []struct {
		name   string
		engine func(*engine.Params)
		set    func(*plant)
	}{
		{"half of it bypasses the proxies", nil, func(p *plant) { p.bypass = 0.5 }},
		{"half of it bypasses the proxies, KV cache of 30,000 tokens",
			func(p *engine.Params) { p.KVTokens = 30_000 }, func(p *plant) { p.bypass = 0.5 }},
		{"prefix cache, one engine much better", nil, func(p *plant) { p.hit = hits(p, 0.5, 0.95) }},
		{"prefix cache, one engine much worse", nil, func(p *plant) { p.hit = hits(p, 0.7, 0.01) }},
	}) {
		t.Run(c.name, func(t *testing.T) {
			var law, least answers
			for seed := range seeds(2, 2) {
				a, b := versus(t, func() *plant {
					p := engines(seed, 12, c.engine)
					p.atLoad(0.8)
					c.set(p)
					return p
				}, 20, 120)
				law.add(a)
				least.add(b)
			}
			// Where the KV cache is short, the last moves by a tenth with the rounding of a sum.
			perToken := 1.03
			if strings.Contains(c.name, "KV cache") {
				perToken = 1.08
			}
			law.wantAtMost(t, least, answers{1, 1, 1.03, perToken})
		})
	}
}

// hits are prefix caches that answer a share of each prompt on average; those of the first engines have shares of
// their own.
func hits(p *plant, share float64, first ...float64) func(pod, prompt int) int {
	return func(pod, prompt int) int {
		of := share
		if pod < len(first) {
			of = first[pod]
		}
		return engine.Cached(prompt, of, p.picks.Float64())
	}
}

// Engines that are alike stay alike, whatever their constants, and one that is twice as fast gets about twice as
// much.
func TestEnginesDoNotDriftApart(t *testing.T) {
	t.Parallel()
	for _, c := range sampled(4, []struct {
		name   string
		engine func(*engine.Params)
		speeds []float64 // of the first engines; the others have 1
		load   float64
	}{
		{"a sequence costs nothing", func(p *engine.Params) { p.Sequence = 0 }, nil, 0.8},
		{"context costs five times as much", func(p *engine.Params) { p.Context *= 5 }, nil, 0.8},
		{"token budget 1,024", func(p *engine.Params) { p.TokenBudget = 1024 }, nil, 0.8},
		{"iteration 6 ms", func(p *engine.Params) { p.Iteration = 6 * time.Millisecond }, nil, 0.8},
		{"iteration 6 ms, load 0.2", func(p *engine.Params) { p.Iteration = 6 * time.Millisecond }, nil, 0.2},
		{"four of twelve twice as fast", nil, []float64{2, 2, 2, 2}, 0.8},
		{"four of twelve half as fast", nil, []float64{0.5, 0.5, 0.5, 0.5}, 0.8},
		{"four of twelve half as fast, context costs five times as much", func(p *engine.Params) { p.Context *= 5 },
			[]float64{0.5, 0.5, 0.5, 0.5}, 0.8},
		{"four of twelve half as fast, load 0.4", nil, []float64{0.5, 0.5, 0.5, 0.5}, 0.4},
	}) {
		t.Run(c.name, func(t *testing.T) {
			for seed := range seeds(1, 3) {
				p := engines(seed, 12, c.engine)
				speed := func(i int) float64 {
					if i < len(c.speeds) {
						return c.speeds[i]
					}
					return 1
				}
				for i, e := range p.engines {
					e.SetSpeed(0, speed(i))
				}
				p.atLoad(c.load)
				p.run(60, nil)
				means, _ := p.running(120)
				var mean, off, wrong float64
				for i, m := range means {
					mean += m / speed(i) / float64(len(means))
				}
				var speeds []float64
				for i, e := range p.decide().Endpoints {
					off = max(off, math.Abs(means[i]/speed(i)/mean-1))
					wrong = max(wrong, math.Abs(e.RelativeSpeed/speed(i)-1))
					speeds = append(speeds, e.RelativeSpeed)
				}
				t.Logf("running %.0f, %.0f %% off; speeds %.2f", means, 100*off, speeds)
				allowed := 0.03
				if c.speeds != nil {
					allowed = 0.1
				}
				if off > 0.15 || wrong > allowed {
					t.Errorf("running %.1f: %.0f %% off, want 15 at most; speeds %.2f", means, 100*off, speeds)
				}
			}
		})
	}
}

// An engine that batches continuously holds requests back at any number running. What the gauges of one of four equal
// ones show for a moment, few running while one waits, must not become its size.
func TestAMomentOfFewRunningDoesNotLockAnEngineOut(t *testing.T) {
	t.Parallel()
	const shows, lasts = 30.0, 2.5 // seconds
	for _, c := range sampled(3, []struct {
		name           string
		tokens, counts bool
		scrape         float64
		from           float64 // when it shows so
	}{
		{"by work, from scrapes only", true, false, 0.25, shows},
		{"by work, from scrapes only, each second", true, false, 1, shows},
		{"by work, with exact counts", true, true, 1, shows},
		{"by requests, from scrapes only, from the first on", false, false, 0.25, 0},
		{"by requests, from scrapes only, each second", false, false, 1, shows},
		{"by work, with exact counts, from the first scrape on", true, true, 0.25, 0},
		{"by requests, with exact counts", false, true, 1, shows},
	}) {
		t.Run(c.name, func(t *testing.T) {
			p := engines(1, 4, nil)
			p.request, p.rate, p.tokens, p.counts, p.scrape = chat, 21, c.tokens, c.counts, c.scrape
			if !c.tokens {
				p.size, p.step = nil, 0.05
			}
			p.wantEqualAfterShowingFew(t, c.from, lasts)
		})
	}
}

// What may go wrong with the counts of tokens costs a moment.
func TestCountsOfTokensThatFail(t *testing.T) {
	t.Parallel()
	const begins, lasts, ends = 40.0, 30.0, 100.0 // seconds
	during := func(now float64) bool { return now >= begins && now < begins+lasts }
	short := func(p *engine.Params) { p.KVTokens = 30_000 }
	for _, c := range sampled(4, []struct {
		name   string
		engine func(*engine.Params)
		set    func(*plant)
		lowest float64 // mean share of any endpoint over 10 s, as a part of an equal one
	}{
		{"an engine restarts", nil, func(p *plant) { p.ticks = once(&p.now, begins, func() { p.restart(0, true) }) },
			0.5},
		{"an engine restarts, and its counts go back", nil,
			func(p *plant) { p.ticks = once(&p.now, begins, func() { p.restart(0, false) }) }, 0.5},
		{"the tokens of one are no longer exported", nil, func(p *plant) {
			p.alter = func(now float64, s *Snapshot) {
				if during(now) {
					s.Endpoints[0].Server.Tokens = TokenCounts{}
				}
			}
		}, 0.5},
		{"the same, with a KV cache of 30,000 tokens", short, func(p *plant) {
			p.alter = func(now float64, s *Snapshot) {
				if during(now) {
					s.Endpoints[0].Server.Tokens = TokenCounts{}
				}
			}
		}, 0.3},
		{"one never exported any", nil, func(p *plant) {
			p.alter = func(_ float64, s *Snapshot) { s.Endpoints[0].Server.Tokens = TokenCounts{} }
		}, 0.5},
		{"those of one are frozen", nil, func(p *plant) {
			var was TokenCounts
			p.alter = func(now float64, s *Snapshot) {
				if e := &s.Endpoints[0].Server; during(now) {
					was.At = e.Tokens.At
					e.Tokens = was
				} else if now < begins {
					was = e.Tokens
				}
			}
		}, 0.4},
		{"those of one leap for 30 s", nil, func(p *plant) {
			p.alter = func(now float64, s *Snapshot) {
				if e := &s.Endpoints[0].Server; during(now) {
					e.Tokens = TokenCounts{At: e.Tokens.At, Prompt: 1e6, First: 1000, Generated: 1e5, Iterations: 1e4}
				}
			}
		}, 0.4},
		{"those of one leap, again and again", nil, func(p *plant) {
			p.alter = func(now float64, s *Snapshot) {
				if e := &s.Endpoints[0].Server; during(now) && math.Mod(now, 2) < 1 {
					e.Tokens.Prompt += 1e6
				}
			}
		}, 0.4},
		{"a scrape source dies", nil, func(p *plant) { p.reads = func(int) bool { return !during(p.now) } }, 0.5},
		{"a scrape source dies, KV cache of 30,000 tokens", short,
			func(p *plant) { p.reads = func(int) bool { return !during(p.now) } }, 0.3},
		{"scrapes of one die, KV cache of 30,000 tokens", short,
			func(p *plant) { p.reads = func(pod int) bool { return pod > 0 || !during(p.now) } }, 0.35},
		{"scrapes are the only source, and die", nil, func(p *plant) {
			p.counts, p.reads = false, func(int) bool { return !during(p.now) }
		}, 0.5},
	}) {
		t.Run(c.name, func(t *testing.T) {
			make := func() *plant {
				p := engines(1, 12, c.engine)
				p.atLoad(0.8)
				c.set(p)
				return p
			}
			p := make()
			turns, was := 0, false
			p.run(20, nil)
			look := p.alter
			p.alter = func(now float64, s *Snapshot) {
				if look != nil {
					look(now, s)
				}
				if p.law.byWork != was {
					turns, was = turns+1, p.law.byWork
				}
			}
			lowest := p.tracked(t, ends).lowest(10)
			o := make()
			o.least = true
			o.run(ends, nil)
			t.Logf("the lowest share over 10 s is %.2f of an equal one", lowest)
			if lowest < c.lowest {
				t.Errorf("the lowest share over 10 s is %.2f of an equal one, want %.2f at least", lowest, c.lowest)
			}
			most := answers{1, 1, 1.03, 1.03}
			if !p.counts { // without any source the shares are equal, and least request is better than chance
				most = answers{1.15, 1.1, 1.1, 2.8}
			}
			got := p.answers(begins, ends)
			got.wantAtMost(t, o.answers(begins, ends), most)
			want(t, "turns of the unit", turns, 1)
		})
	}
}

func once(now *float64, at float64, do func()) func() {
	done := false
	return func() {
		if !done && *now >= at {
			done = true
			do()
		}
	}
}

// After ten minutes without a request the law knows what it knew.
func TestAPoolWithoutTrafficKeepsItsUnit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		paused bool // no step is made meanwhile
	}{{"steps", false}, {"no steps", true}} {
		t.Run(c.name, func(t *testing.T) {
			p := engines(1, 4, nil)
			p.atLoad(0.5)
			p.run(60, nil)
			before := p.decide().Work
			rate := p.rate
			p.rate = 0
			if c.paused {
				p.run(90, nil)
				p.now += 600
			} else {
				p.tracked(t, 690)
			}
			d := p.decide()
			if d.Work == nil {
				t.Fatal("the unit is the request")
			}
			for _, e := range d.Endpoints {
				wantNear(t, "share of "+e.Address, e.Share, 0.25, 0.05)
				want(t, "tokens outstanding at "+e.Address, e.Work.PromptTokens, 0.0)
			}
			wantNear(t, "prompt tokens of a request", d.Work.PromptTokens/before.PromptTokens, 1, 0.2)
			p.next, p.rate = p.now, rate
			p.run(p.now+1, func(d Decision) { want(t, "the unit is work", d.Work != nil, true) })
		})
	}
}

// Engines that compute prompts and generate nothing to speak of are idle between two scrapes as often as not, and an
// iteration is a prompt: what is known of their speeds is little, and counts for little.
func TestEnginesThatComputePromptsOnlyAreAlike(t *testing.T) {
	t.Parallel()
	for seed := range seeds(1, 2) {
		p := engines(seed, 12, nil)
		p.request = func(rng *rand.Rand) *engine.Request { return tokens(rng, 4000, 0.1) }
		p.atLoad(0.6)
		least, most := 1.0, 1.0
		p.run(120, func(d Decision) {
			for _, e := range d.Endpoints {
				least, most = min(least, e.RelativeSpeed), max(most, e.RelativeSpeed)
			}
		})
		t.Logf("speeds from %.2f to %.2f", least, most)
		if least < 0.67 || most > 1.5 {
			t.Errorf("speeds from %.2f to %.2f", least, most)
		}
	}
}

// configured sets the capacities of the first engines.
func configured(capacities ...float64) func(float64, *Snapshot) {
	return func(_ float64, s *Snapshot) {
		for i, c := range capacities {
			s.Endpoints[i].Capacity = c
		}
	}
}

// Capacities in proportion to speed go before what is learned. Of those that have none it is what was learned, in
// proportion to the others.
func TestConfiguredCapacitiesAreRelativeSpeeds(t *testing.T) {
	t.Parallel()
	for _, c := range sampled(2, []struct {
		name             string
		fast             []float64 // speeds of the first engines
		configured, want []float64
	}{
		{"all, and none is faster", nil, []float64{64, 32, 32, 32, 32}, []float64{2, 1, 1, 1, 1}},
		{"all, and one is faster than that says", []float64{4}, []float64{64, 32, 32, 32, 32},
			[]float64{2, 1, 1, 1, 1}},
		{"all the same say nothing", []float64{2}, []float64{128, 128, 128, 128, 128}, []float64{2, 1, 1, 1, 1}},
		{"one that is like the others", nil, []float64{64}, []float64{1, 1, 1, 1, 1}},
		{"one that is faster", []float64{2}, []float64{64}, []float64{2, 1, 1, 1, 1}},
		{"two that are faster, in proportion to another speed", []float64{2, 2}, []float64{64, 128},
			[]float64{4.0 / 3, 8.0 / 3, 1, 1, 1}},
	}) {
		t.Run(c.name, func(t *testing.T) {
			p := engines(1, 5, nil)
			for i, speed := range c.fast {
				p.engines[i].SetSpeed(0, speed)
			}
			p.atLoad(0.7)
			p.alter = configured(c.configured...)
			p.run(60, nil)
			for i, e := range p.decide().Endpoints {
				wantNear(t, "speed of "+e.Address, e.RelativeSpeed, c.want[i], 0.1)
				want(t, "slots of "+e.Address, e.SlotsSource, CapacityWork)
			}
		})
	}
}

// A saturated pool of engines refuses as much as keeps the time to the first token near the target.
func TestEnginesShedToATimeToTheFirstToken(t *testing.T) {
	t.Parallel()
	const load, begins, ends = 1.5, 40.0, 120.0
	for _, c := range []struct {
		name   string
		counts bool
	}{{"with exact counts", true}, {"from scrapes only", false}} {
		t.Run(c.name, func(t *testing.T) {
			p := engines(1, 12, nil)
			p.counts = c.counts
			params := DefaultParams()
			params.Shedding.Enabled = true
			p.law.SetParams(params)
			p.atLoad(load)
			p.run(begins, nil)
			was, n, wait := p.finished(), 0.0, 0.0
			p.run(ends, func(d Decision) {
				n++
				wait += (d.ExpectedWait - wait) / n
			})
			target := params.Shedding.TargetWait.Seconds()
			first := quantile(p.firsts(begins, ends-10), 0.5)
			goodput := (p.finished() - was) / (ends - begins) / (p.rate / load)
			t.Logf("expected wait %.2f s, half have their first token after %.2f s; goodput %.2f", wait, first, goodput)
			wantNear(t, "expected wait, of the target", wait/target, 1, 0.2)
			wantNear(t, "median time to the first token, of the target", first/target, 1, 0.25)
			wantNear(t, "goodput, of the capacity", goodput, 1, 0.05)
		})
	}
}

// finished is the requests that are done.
func (p *plant) finished() (n float64) {
	for _, e := range p.engines {
		n += float64(e.Counters().Finished)
	}
	return n
}

// An engine that gets forty requests at once from elsewhere has more to do than the others for seconds, and is flagged
// with the reason.
func TestAnEngineWithSecondsMoreWorkIsFlagged(t *testing.T) {
	t.Parallel()
	p := engines(1, 12, nil)
	p.atLoad(0.7)
	p.run(30, nil)
	for range 40 {
		p.place(&call{Request: engine.Request{Prompt: 2000, Output: 200}, pod: 0, proxy: -1}, 0)
	}
	reason, flagged := "", 0.0
	p.run(50, func(d Decision) {
		for i, e := range d.Endpoints {
			if e.Overloaded && i > 0 {
				t.Errorf("at %.2f s %s is flagged: %s", p.now, e.Address, e.OverloadReason)
			}
		}
		if e := d.Endpoints[0]; e.Overloaded {
			reason, flagged = e.OverloadReason, flagged+p.step
		}
	})
	t.Logf("%s; flagged for %.2f s", reason, flagged)
	if ok, _ := regexp.MatchString(`^\d+ requests wait, \d+\.\d s of work$`, reason); !ok || flagged > 10 {
		t.Errorf("the reason is %q, for %.2f s", reason, flagged)
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
