package weighting

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"steelyard/sim/engine"
	"steelyard/sim/trace"
)

// A plant is a pool of engines behind proxies that follow the law's shares, or that choose by themselves.
type plant struct {
	law     *Law
	rng     *rand.Rand // of arrivals and requests: the same however they are placed
	picks   *rand.Rand
	now     float64 // seconds
	engines []*engine.Engine
	sent    []channel // by engine
	seen    []ServerReport
	shares  []float64
	flags   []bool
	drop    float64
	calls   []*call
	gone    []ServerReport // what the engine before had counted
	refused int

	rate    float64 // requests per second
	scrape  float64 // seconds between two scrapes of an engine
	step    float64 // seconds between two steps of the law
	counts  bool    // proxies report their requests
	tokens  bool    // engines export counts of tokens
	least   bool    // the proxies choose by their own least requests, and not by the shares
	proxies int     // that choose so
	bypass  float64 // part of the requests that do not pass the proxies
	next    float64 // arrival

	gauges  func(pod int, running, waiting float64) (float64, float64)
	request func(*rand.Rand) *engine.Request
	size    func(*rand.Rand, *engine.Request) float64 // content-length; nil or 0: a chunked body
	hit     func(pod int, prompt int) int             // tokens in the prefix cache of that engine
	alter   func(now float64, s *Snapshot)            // what the law sees
	ticks   func()                                    // at each tick
	reads   func(pod int) bool                        // whether a scrape succeeds; nil: always
}

// A channel is what the proxies sent to one engine.
type channel struct {
	issued, ended, sized, bytes float64
	refused, refusedBytes       float64
	active                      []int // in flight, by proxy
}

// A call is a request in the plant.
type call struct {
	engine.Request
	pod, proxy int // proxy -1: it passed none
}

func newPlant(seed uint64, engines int, change func(*engine.Params)) *plant {
	p := &plant{
		law: NewLaw(DefaultParams()), rng: rand.New(rand.NewPCG(seed, 11)), picks: rand.New(rand.NewPCG(seed, 12)),
		scrape: 0.25, step: 0.05, proxies: 6,
	}
	params := engine.Defaults()
	if change != nil {
		change(&params)
	}
	for range engines {
		p.engines = append(p.engines, engine.New(params))
		p.shares = append(p.shares, 1/float64(engines))
		p.sent = append(p.sent, channel{active: make([]int, p.proxies)})
	}
	p.seen, p.flags, p.gone = make([]ServerReport, engines), make([]bool, engines), make([]ServerReport, engines)
	p.request = chat
	return p
}

// chat is a request of a prompt of 1,000 tokens and an answer of 200, in the mean.
func chat(rng *rand.Rand) *engine.Request { return tokens(rng, 1000, 200) }

func tokens(rng *rand.Rand, prompt, answer float64) *engine.Request {
	length := func(mean float64) int { return 1 + min(int(rng.ExpFloat64()*mean), 14_000) }
	return &engine.Request{Prompt: length(prompt), Output: length(answer)}
}

// conversation is a request of the trace of Azure, any of them.
func conversation(rng *rand.Rand) *engine.Request {
	r := trace.Azure().Requests
	one := r[rng.IntN(len(r))]
	return &engine.Request{Prompt: int(one.Prompt), Output: int(one.Output)}
}

// text is the content-length of a request of text.
func text(rng *rand.Rand, r *engine.Request) float64 {
	const perToken, spread = 4.2, 0.2
	return math.Ceil(float64(r.Prompt) * perToken * math.Exp(spread*rng.NormFloat64()-spread*spread/2))
}

// atLoad sets the rate to a part of what the engines can do, for requests as they are set.
func (p *plant) atLoad(load float64) {
	p.rate = 0
	rates := map[engine.Params]float64{}
	for _, e := range p.engines {
		if rates[e.Params()] == 0 {
			rng := rand.New(rand.NewPCG(1, 1))
			rates[e.Params()] = e.Params().Throughput(func() (prompt, cached, output int) {
				r := p.request(rng)
				return r.Prompt, r.Cached, r.Output
			})
		}
		p.rate += load * e.Speed() * rates[e.Params()]
	}
}

// run goes on until that second, and calls see after each step of the law.
func (p *plant) run(until float64, see func(d Decision)) {
	const tick = 0.005 // seconds
	every := func(n int, span, phase float64) bool {
		ticks := int(math.Round(span / tick))
		return (n-int(math.Round(phase/tick)))%ticks == 0
	}
	for n := int(math.Round(p.now / tick)); p.now < until; n++ {
		p.now = float64(n+1) * tick
		for p.next <= p.now && p.rate > 0 {
			p.arrive()
			p.next += p.rng.ExpFloat64() / p.rate
		}
		if p.ticks != nil {
			p.ticks()
		}
		for i, e := range p.engines {
			for at, ok := e.Next(); ok && at <= seconds(p.now); at, ok = e.Next() {
				p.ended(e.Step(at))
			}
			if every(n, p.scrape, p.scrape*float64(i)/float64(len(p.engines))) && (p.reads == nil || p.reads(i)) {
				p.seen[i] = p.report(i)
			}
		}
		if !p.least && every(n, p.step, 0) {
			if d := p.decide(); see != nil {
				see(d)
			}
		}
	}
}

// arrive places the next request.
func (p *plant) arrive() {
	r := p.request(p.rng)
	size := 0.0
	if p.size != nil {
		size = p.size(p.rng, r)
	}
	c := &call{Request: *r, proxy: p.rng.IntN(p.proxies)}
	past, refused := p.rng.Float64() < p.bypass, p.picks.Float64() < p.drop
	switch {
	case past:
		c.pod, c.proxy = p.rng.IntN(len(p.engines)), -1
	case refused:
		p.refused++
		return
	case p.least:
		c.pod = p.leastOfTwo(c.proxy)
	default:
		c.pod = weighted(p.picks, p.effective())
	}
	p.place(c, size)
}

// place hands a request to its engine.
func (p *plant) place(c *call, size float64) {
	if p.hit != nil {
		c.Cached = p.hit(c.pod, c.Prompt)
	}
	if c.proxy >= 0 {
		p.begin(c.pod, c.proxy, size)
	}
	c.ID = int32(len(p.calls))
	p.calls = append(p.calls, c)
	p.engines[c.pod].Arrive(seconds(p.now), &c.Request)
}

// begin is a request that a proxy sends to an engine, or that it says it does.
func (p *plant) begin(pod, proxy int, size float64) {
	f := &p.sent[pod]
	f.issued++
	f.active[proxy]++
	if size > 0 {
		f.sized++
		f.bytes += size
	}
}

// end is the end of one.
func (p *plant) end(pod, proxy int) {
	p.sent[pod].active[proxy]--
	p.sent[pod].ended++
}

// refuse is the end of one that the engine answers with a 4xx.
func (p *plant) refuse(pod, proxy int, size float64) {
	p.end(pod, proxy)
	p.sent[pod].refused++
	p.sent[pod].refusedBytes += size
}

func (p *plant) ended(done []*engine.Request) {
	for _, r := range done {
		if c := p.calls[r.ID]; c.proxy >= 0 {
			p.end(c.pod, c.proxy)
		}
	}
}

// leastOfTwo is Envoy's least request.
func (p *plant) leastOfTwo(proxy int) int {
	a, b := p.picks.IntN(len(p.engines)), p.picks.IntN(len(p.engines))
	if p.sent[b].active[proxy] < p.sent[a].active[proxy] {
		return b
	}
	return a
}

// effective are the shares without those of flagged endpoints, as long as a tenth has no flag.
func (p *plant) effective() []float64 {
	spared := 0
	for _, flagged := range p.flags {
		if !flagged {
			spared++
		}
	}
	if 10*spared < len(p.flags) || spared == len(p.flags) {
		return p.shares
	}
	shares := slices.Clone(p.shares)
	for i, flagged := range p.flags {
		if flagged {
			shares[i] = 0
		}
	}
	return shares
}

func (p *plant) report(i int) ServerReport {
	e, now := p.engines[i], at(p.now)
	g, c := e.Gauges(), e.Counters()
	running, waiting := float64(g.Running), float64(g.Waiting)
	if p.gauges != nil {
		running, waiting = p.gauges(i, running, waiting)
	}
	gone := &p.gone[i]
	r := ServerReport{
		Queue: known(waiting, now), Running: known(running, now), Restarts: gone.Restarts,
		Completions: known(gone.Completions.Value+float64(c.Finished), now),
	}
	if was := &gone.Tokens; p.tokens {
		r.Utilization = known(g.KVUsage, now)
		r.Tokens = TokenCounts{
			At: now, Prompt: was.Prompt + float64(c.PromptTokens), Cached: was.Cached + float64(c.CachedTokens),
			Generated: was.Generated + float64(c.GenerationTokens), First: was.First + float64(c.FirstTokens),
			Iterations: was.Iterations + float64(c.Iterations),
		}
	}
	return r
}

// restart puts a new engine in the place of one. Its counts go on from those before, as a collector has them do, or
// begin at nothing.
func (p *plant) restart(pod int, goOn bool) {
	if goOn {
		p.gone[pod] = p.report(pod)
		p.gone[pod].Restarts++
	}
	e := engine.New(p.engines[pod].Params())
	e.SetSpeed(seconds(p.now), p.engines[pod].Speed())
	p.engines[pod] = e
	for _, c := range p.calls {
		if c.pod == pod && c.proxy >= 0 && !c.Ended() {
			p.end(pod, c.proxy)
			c.proxy = -1
		}
	}
}

func (p *plant) decide() Decision {
	now := at(p.now)
	s := Snapshot{PushDelay: 10 * time.Millisecond, PushPeriod: seconds(p.step), ScrapeInterval: seconds(p.scrape)}
	for i := range p.engines {
		endpoint := Endpoint{Address: fmt.Sprintf("%02d", i), Server: p.seen[i]}
		if f := &p.sent[i]; p.counts {
			ended := known(f.ended, now)
			endpoint.InFlight, endpoint.Exact = known(f.issued-f.ended, now), true
			endpoint.Proxies = ProxyReport{
				Issued: known(f.issued, now), Ended: ended, Answered: ended,
				Sized: known(f.sized, now), SizedBytes: known(f.bytes, now),
				Refused: known(f.refused, now), RefusedBytes: known(f.refusedBytes, now),
			}
		}
		s.Endpoints = append(s.Endpoints, endpoint)
	}
	if p.alter != nil {
		p.alter(p.now, &s)
	}
	d := p.law.Step(now, s)
	for i, e := range d.Endpoints {
		p.shares[i], p.flags[i] = e.Share, e.Overloaded
	}
	p.drop = d.DropFraction
	return d
}

// firsts are the times to the first token, in seconds, of the requests that arrived from one second to another.
func (p *plant) firsts(from, to float64) []float64 {
	var firsts []float64
	for _, c := range p.arrived(from, to) {
		firsts = append(firsts, (c.First - c.Arrived).Seconds())
	}
	return firsts
}

// arrived are the requests that arrived from one second to another, as they are now. One without its first token, or
// without its last one, has waited for it until now.
func (p *plant) arrived(from, to float64) []engine.Request {
	var arrived []engine.Request
	for _, c := range p.calls {
		if c.Arrived < seconds(from) || c.Arrived >= seconds(to) {
			continue
		}
		r := c.Request
		if r.Generated == 0 {
			r.First = seconds(p.now)
		}
		if !r.Ended() {
			r.Last = seconds(p.now)
		}
		arrived = append(arrived, r)
	}
	return arrived
}

// An answers is what users of engines notice, in seconds: the time to the first token, the median time to the last
// one, and the time per output token.
type answers struct{ first99, firstMean, whole50, each99 float64 }

// answers returns what users noticed whose requests arrived from one second to another.
func (p *plant) answers(from, to float64) answers {
	var first, whole, each []float64
	for _, r := range p.arrived(from, to) {
		first, whole = append(first, (r.First-r.Arrived).Seconds()), append(whole, (r.Last-r.Arrived).Seconds())
		if t, ok := r.TimePerOutputToken(); ok {
			each = append(each, t.Seconds())
		}
	}
	sum := 0.0
	for _, v := range first {
		sum += v
	}
	return answers{quantile(first, 0.99), sum / float64(len(first)), quantile(whole, 0.5), quantile(each, 0.99)}
}

func (a *answers) add(b answers) {
	a.first99, a.firstMean = a.first99+b.first99, a.firstMean+b.firstMean
	a.whole50, a.each99 = a.whole50+b.whole50, a.each99+b.each99
}

// wantAtMost wants no more than these parts of what others have.
func (a *answers) wantAtMost(t *testing.T, others, most answers) {
	t.Helper()
	for _, c := range []struct {
		what                string
		value, others, most float64
	}{
		{"time to the first token, p99", a.first99, others.first99, most.first99},
		{"time to the first token, mean", a.firstMean, others.firstMean, most.firstMean},
		{"end to end, p50", a.whole50, others.whole50, most.whole50},
		{"time per output token, p99", a.each99, others.each99, most.each99},
	} {
		ratio := c.value / c.others
		t.Logf("%s: %.3f of theirs", c.what, ratio)
		if !(ratio <= c.most) {
			t.Errorf("%s: %.3f of theirs, want %.2f at most", c.what, ratio, c.most)
		}
	}
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

// wantEqualAfterShowingFew runs until 40 s after a time in which one engine shows 3 running and 1 waiting. It wants the
// mean numbers running in the last 20 s to be within 10 % of their mean.
func (p *plant) wantEqualAfterShowingFew(t *testing.T, from, lasts float64) {
	t.Helper()
	p.gauges = func(pod int, running, waiting float64) (float64, float64) {
		if pod == 0 && p.now >= from && p.now < from+lasts {
			return 3, 1
		}
		return running, waiting
	}
	p.run(from+lasts+20, nil)
	means, off := p.running(from + lasts + 40)
	t.Logf("running, in the mean of the 20 s that begin 20 s later: %.1f", means)
	if off > 0.1 {
		t.Errorf("%.1f running: %.0f %% from equal, want 10 at most", means, 100*off)
	}
}
