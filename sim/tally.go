package sim

import (
	"math"
	"math/rand/v2"
	"slices"

	"steelyard/sim/engine"
)

// A tally is what is measured.
type tally struct {
	w      *world
	mean   float64 // of the service, seconds
	every  instant // windows in which requests are counted
	dither *rand.Rand

	requests, dropped, done int
	waits, latencies        []float64 // mean services
	first, each, whole      []float64 // seconds, of engines
	prompt, cached          int       // tokens, of engines
	steps, pushes           int

	sent             []int    // by pod
	windows          []window // by pod
	spread, spreadOf float64
	series           []Sample
}

// A window counts the requests that a pod was sent in each span of a mean service
// time.
type window struct {
	now          int
	n            float64
	sum, squares float64
}

func newTally(w *world) tally {
	mean := w.s.Service.Mean
	expected := int(w.arrivals.rate * (w.s.Duration - w.s.WarmUp).Seconds() * 1.1)
	return tally{
		w: w, mean: mean.Seconds(), every: at(mean), dither: source(w.s.Seed, streamDither),
		windows: make([]window, len(w.pods)), sent: make([]int, len(w.pods)),
		waits: make([]float64, 0, max(0, min(expected, 1<<22))),
	}
}

func (t *tally) refused(counts bool) {
	if counts {
		t.dropped++
	}
}

func (t *tally) placed(pod int32, counts bool) {
	if counts {
		t.requests++
		t.sent[pod]++
		t.windows[pod].now++
	}
}

func (t *tally) waited(d instant) { t.waits = append(t.waits, float64(d)/1e9/t.mean) }

func (t *tally) completed(r *request) {
	if t.w.measures() {
		t.done++
	}
	switch {
	case !r.counts:
	case r.call != nil:
		t.answered(r.call)
	default:
		t.latencies = append(t.latencies, float64(t.w.now-r.arrived)/1e9/t.mean)
	}
}

func (t *tally) answered(r *engine.Request) {
	t.prompt += r.Prompt
	t.cached += r.Cached
	t.first = append(t.first, (r.First - r.Arrived).Seconds())
	t.whole = append(t.whole, (r.Last - r.Arrived).Seconds())
	if each, ok := r.TimePerOutputToken(); ok {
		t.each = append(t.each, each.Seconds())
	}
}

// unanswered is a request to an engine that is not done in the end: it has taken as
// long as it has.
func (t *tally) unanswered(r *engine.Request) {
	now := t.w.now.duration()
	if r.Generated == 0 {
		r.First = now
	}
	r.Last = now
	t.answered(r)
}

func (t *tally) stepped() {
	if t.w.now <= t.w.until {
		t.steps++
	}
}

func (t *tally) pushed() {
	if t.w.now <= t.w.until {
		t.pushes++
	}
}

// window ends a window and begins the next.
func (t *tally) window() {
	least, most := math.Inf(1), math.Inf(-1)
	for i := range t.w.pods {
		p, c := &t.w.pods[i], &t.windows[i]
		n := float64(c.now)
		c.now = 0
		if !p.present {
			continue
		}
		level := p.level()
		least, most = min(least, level), max(most, level)
		if t.w.now > t.w.from {
			c.n++
			c.sum += n
			c.squares += n * n
		}
	}
	if most >= least {
		t.spread += most - least
		t.spreadOf++
	}
}

// hunting is the variance of the counts in the windows to their mean.
func (t *tally) hunting() float64 {
	var variance, mean float64
	for _, c := range t.windows {
		if c.n == 0 {
			continue
		}
		m := c.sum / c.n
		variance += c.squares/c.n - m*m
		mean += m
	}
	if mean == 0 {
		return 0
	}
	return variance / mean
}

func (t *tally) sample() {
	w, a := t.w, t.w.groups[0].assignment
	s := Sample{
		At: w.now.duration(), Load: make([]float64, len(w.pods)),
		Shares: slices.Clone(a.shares), Flagged: slices.Clone(a.degraded), Refused: a.drop, Rate: w.arrivals.rate,
	}
	for i := range w.pods {
		s.Load[i] = float64(w.pods[i].load())
		s.Waiting += float64(w.pods[i].waiting())
	}
	t.series = append(t.series, s)
}

// result sums up. Requests that still wait have waited for as long as they have.
func (t *tally) result() Result {
	w := t.w
	counted := (w.s.Duration - w.s.WarmUp).Seconds()
	var busy float64
	loads := make([]float64, len(w.pods))
	for i := range w.pods {
		p := w.touch(int32(i))
		busy += p.busy
		loads[i] = p.held / counted
		for p.queue.len() > 0 {
			if r := &w.requests[p.queue.pop()]; r.counts {
				t.waited(w.now - r.arrived)
			}
		}
	}
	if w.unfinished > 0 {
		for i := range w.requests {
			if r := &w.requests[i]; r.counts && !r.call.Ended() {
				t.unanswered(r.call)
			}
		}
	}
	start := w.s.pods()
	slots := 0
	for i := range start {
		switch {
		case !start[i].present:
		case start[i].engine != nil:
			slots++
		default:
			slots += start[i].slots
		}
	}
	return Result{
		Policy: w.p.Name, Requests: t.requests, Dropped: t.dropped,
		Wait: quantiles(t.waits), Latency: quantiles(t.latencies),
		FirstToken: quantiles(t.first), PerToken: quantiles(t.each), EndToEnd: quantiles(t.whole),
		Cached: float64(t.cached) / max(1, float64(t.prompt)), Loads: loads, Placed: t.sent,
		Steps: t.steps, Pushes: t.pushes,
		Goodput: float64(t.done) / counted / w.capacity, Utilization: busy / counted / float64(slots),
		Spread: t.spread / max(1, t.spreadOf), Hunting: t.hunting(),
		Series: t.series,
	}
}

// quantiles sorts the values.
func quantiles(values []float64) Quantiles {
	n := len(values)
	if n == 0 {
		return Quantiles{}
	}
	slices.Sort(values)
	at := func(q float64) float64 { return values[max(0, int(math.Ceil(q*float64(n)))-1)] }
	var sum float64
	for _, v := range values {
		sum += v
	}
	return Quantiles{P50: at(0.5), P90: at(0.9), P99: at(0.99), Mean: sum / float64(n), Max: values[n-1]}
}
