package weighting

import (
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// A world is a seeded discrete-event toy of proxies, pods and the way of the
// reports between them: enough of reality to hold the law to its figures, with
// time in it that costs nothing.
type world struct {
	rng     *rand.Rand
	now     float64 // seconds
	events  events
	seq     int
	pods    []*pod
	proxies []*proxy
	rate    float64 // arrivals per second
	warm    float64 // waits before this do not count
	waits   []float64
}

// epoch is the moment at which a world's clock stands at zero: a date with a monotonic reading, as real times
// have, because differences of such times take a third of the time.
var epoch = func() time.Time {
	now := time.Now()
	return now.Add(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Sub(now))
}()

func at(seconds float64) time.Time { return epoch.Add(time.Duration(seconds * float64(time.Second))) }

// pod is a server with slots and one FIFO queue.
type pod struct {
	address string
	slots   int
	service func(*rand.Rand) float64 // seconds
	queue   []float64                // times of arrival
	running int

	ejected                  bool // the proxies send it nothing, whatever it weighs
	issued                   int  // requests, by the proxies
	proxied, leaked          int  // in flight as the proxies count
	completions              int
	queueSeconds, busySecond float64

	distort func(*ServerReport) // makes its report wrong
}

type event struct {
	at  float64
	seq int
	do  func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].seq < e[j].seq
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

func (w *world) after(seconds float64, do func()) {
	w.seq++
	heap.Push(&w.events, event{w.now + seconds, w.seq, do})
}

// every calls do each period, starting at a time of its own.
func (w *world) every(period, first float64, do func()) {
	var again func()
	again = func() { do(); w.after(period, again) }
	w.after(first, again)
}

func (w *world) runUntil(end float64) {
	for len(w.events) > 0 && w.events[0].at <= end {
		e := heap.Pop(&w.events).(event)
		w.now = e.at
		e.do()
	}
	w.now = end
}

func exponential(mean float64) func(*rand.Rand) float64 {
	return func(r *rand.Rand) float64 { return r.ExpFloat64() * mean }
}

// newWorld has pods of equal speed under Poisson arrivals of the given load.
func newWorld(seed uint64, proxies, pods, slots int, load float64) *world {
	w := &world{rng: rand.New(rand.NewPCG(seed, 7)), rate: load * float64(pods*slots)}
	for i := range pods {
		w.pods = append(w.pods,
			&pod{address: fmt.Sprintf("10.0.0.%d:8000", i+1), slots: slots, service: exponential(1)})
	}
	for range proxies {
		w.proxies = append(w.proxies, &proxy{world: w})
	}
	w.after(w.rng.ExpFloat64()/w.rate, w.arrive)
	return w
}

func (w *world) arrive() {
	w.after(w.rng.ExpFloat64()/w.rate, w.arrive)
	p := w.proxies[w.rng.IntN(len(w.proxies))].pick()
	p.issued++
	p.proxied++
	w.offer(p, true)
}

func (w *world) offer(p *pod, proxied bool) {
	if p.running < p.slots {
		w.begin(p, w.now, proxied)
		return
	}
	p.queue = append(p.queue, w.now)
}

func (w *world) begin(p *pod, arrived float64, proxied bool) {
	p.running++
	wait := w.now - arrived
	if w.now >= w.warm {
		w.waits = append(w.waits, wait)
	}
	service := p.service(w.rng)
	w.after(service, func() {
		p.running--
		p.completions++
		p.queueSeconds += wait
		p.busySecond += service
		if proxied {
			p.proxied--
		}
		if len(p.queue) > 0 {
			next := p.queue[0]
			p.queue = p.queue[1:]
			w.begin(p, next, proxied)
		}
	})
}

// proxy spreads requests by earliest deadline, each push with phases of its own.
type proxy struct {
	world    *world
	deadline []float64
	weight   []float64
	policy   string // "random" ignores deadlines
}

func (p *proxy) push(weights []float64) {
	p.weight = slices.Clone(weights)
	p.deadline = make([]float64, len(weights))
	for i, w := range weights {
		p.deadline[i] = p.world.rng.Float64() / w
	}
}

func (p *proxy) pick() *pod {
	if p.policy == "random" {
		return p.world.pods[weighted(p.world.rng, p.weight)]
	}
	best := -1
	for i, d := range p.deadline {
		if !p.world.pods[i].ejected && (best < 0 || d < p.deadline[best]) {
			best = i
		}
	}
	p.deadline[best] += 1 / p.weight[best]
	return p.world.pods[best]
}

func weighted(r *rand.Rand, weights []float64) int {
	var sum float64
	for _, w := range weights {
		sum += w
	}
	x := r.Float64() * sum
	for i, w := range weights {
		if x -= w; x < 0 {
			return i
		}
	}
	return len(weights) - 1
}

func (w *world) push(weights []float64) {
	for _, p := range w.proxies {
		p.push(weights)
	}
}

func (w *world) equalWeights() []float64 {
	out := make([]float64, len(w.pods))
	for i := range out {
		out[i] = 1
	}
	return out
}

// signals are what the law gets to see.
type signals struct {
	configured bool // capacity
	gauges     bool // queue and running
	triton     bool // queue only, and counters
	counters   bool
	inFlight   bool
	proxies    bool // and what the proxies sent, exactly
}

// endpoint is the pod as the collectors report it now.
func (w *world) endpoint(p *pod, s signals) Endpoint {
	read := func(v float64) Reading { return Reading{Value: v, At: at(w.now)} }
	e := Endpoint{Address: p.address}
	if s.configured {
		e.Capacity = float64(p.slots)
	}
	if s.gauges || s.triton {
		e.Server.Queue = read(float64(len(p.queue)))
	}
	if s.gauges {
		e.Server.Running = read(float64(p.running))
	}
	if s.counters || s.triton {
		e.Server.Completions = read(float64(p.completions))
	}
	if s.triton {
		e.Server.BusySeconds = read(p.busySecond)
		e.Server.QueueSeconds = read(p.queueSeconds)
	}
	if s.inFlight || s.proxies {
		e.InFlight = read(float64(p.proxied + p.leaked))
	}
	if s.proxies {
		ended := read(float64(p.issued - p.proxied))
		e.Exact, e.Proxies = true, ProxyReport{Issued: read(float64(p.issued)), Ended: ended, Answered: ended}
	}
	if p.distort != nil {
		p.distort(&e.Server)
	}
	return e
}

// steer runs a law over the world: reports read at the time of the decision,
// which takes effect after the delay.
func (w *world) steer(s signals, period, delay float64, see func(Decision)) {
	law := NewLaw(DefaultParams())
	w.every(period, 0, func() {
		snapshot := Snapshot{PushDelay: seconds(delay), PushPeriod: seconds(period)}
		for _, p := range w.pods {
			snapshot.Endpoints = append(snapshot.Endpoints, w.endpoint(p, s))
		}
		d := law.Step(at(w.now), snapshot)
		if see != nil {
			see(d)
		}
		share := make(map[string]float64, len(d.Endpoints))
		for _, e := range d.Endpoints {
			share[e.Address] = e.Share
		}
		weights := make([]float64, len(w.pods))
		for i, p := range w.pods {
			weights[i] = share[p.address]
		}
		w.after(delay, func() { w.push(weights) })
	})
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func quantile(values []float64, q float64) float64 {
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	return sorted[int(math.Min(q*float64(len(sorted)), float64(len(sorted)-1)))]
}
