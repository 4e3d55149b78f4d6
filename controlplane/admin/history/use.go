package history

import (
	"cmp"
	"math"
	"slices"

	"steelyard/controlplane/admin/conditions"
	"steelyard/internal/api"
)

// busyRate is what an endpoint completes per second while all of it is busy, learned over about a minute of that.
type busyRate struct {
	completed, seconds float64
	// recent is the busy fraction, smoothed like the completion rate: a busy moment of an endpoint that mostly idles
	// has the rate of the idle seconds before it. Both it and its weight are sums that fade.
	recent, weight float64
}

// An engineLimit is what an engine computes per second while requests wait for it. Its prefill rate is what it would
// compute if nothing else held requests back; a short KV cache or a limit on sequences can make that a tenth.
type engineLimit struct {
	tokens, seconds, answers float64 // sums that fade, of the time in which requests waited
	waited                   float64 // seconds for which requests have waited without a break
	usual                    float64 // tokens per second, of about the last minute
}

// A refusedRate is how many requests per second Envoys refuse because of the drop fraction.
type refusedRate struct {
	counter   api.Number // the latest that was known
	perSecond float64    // of about the last ten seconds
}

// usedMean is the mean of the capacity in use, which leaps from second to second, over five minutes.
type usedMean struct {
	ring  [300]float64 // by the second, of those that are known
	known int          // seconds without a long break
	gap   int          // seconds without a value, up to now
}

// longestGap is for how many seconds the use may be unknown, as over a scrape that fails.
const longestGap = 30

// of takes in a second.
func (u *usedMean) of(used api.Number) api.Number {
	now, known := used.Value()
	if known {
		u.ring[u.known%len(u.ring)] = now
		u.known, u.gap = u.known+1, 0
	} else if u.gap++; u.gap > longestGap {
		u.known = 0
	}
	if u.known < len(u.ring) {
		return api.Number{}
	}
	var sum float64
	for _, v := range u.ring {
		sum += v
	}
	return api.Num(sum / float64(len(u.ring)))
}

// learn adds what the endpoint completed in a second, if it was busy enough to show what it can do.
func (b *busyRate) learn(e *api.Endpoint, elapsed float64) {
	const (
		enough = 0.2 // of the slots
		keep   = 60  // busy seconds
		window = 5   // seconds, that of the completion rate (package weighting)
	)
	rate, known := e.CompletionRate.Value()
	busy, alsoKnown := e.BusyFraction.Value()
	if !known || !alsoKnown || elapsed == 0 {
		return
	}
	older := math.Exp(-elapsed / window)
	b.recent, b.weight = b.recent*older+min(busy, 1)*elapsed, b.weight*older+elapsed
	busy = b.recent / b.weight
	if busy < enough {
		return
	}
	seconds := busy * elapsed
	fade := math.Exp(-seconds / keep)
	b.completed = b.completed*fade + rate*elapsed
	b.seconds = b.seconds*fade + seconds
}

// rate is completions per busy second; NaN while unknown.
func (b *busyRate) rate() float64 {
	if b.seconds < 1 {
		return math.NaN()
	}
	return b.completed / b.seconds
}

// tokensPerRequest is the work of a mean request in prompt tokens, where the unit of load is work; otherwise NaN.
func tokensPerRequest(c *api.Cluster) float64 {
	// A generated token takes an engine half as long again as one of a prompt (package weighting).
	const perOutput = 1.5
	if c.Decision.Unit != api.UnitWork {
		return math.NaN()
	}
	return c.Decision.Work.PromptTokens.Or(math.NaN()) + perOutput*c.Decision.Work.OutputTokens.Or(math.NaN())
}

// learn adds what the engine computed in a second. While requests wait all the time that is all that it can do; what it
// computed for a minute without that it can do, too.
func (l *engineLimit) learn(e *api.Endpoint, perRequest, elapsed float64) {
	const (
		// sustained is longer than the completion rate looks back, and than requests wait for an iteration to end.
		sustained = 10 // seconds
		keep      = 60 // seconds
	)
	rate, known := e.CompletionRate.Value()
	queue := e.Input("queue")
	if !known || math.IsNaN(perRequest) || e.Outlier || queue.State != "fresh" && queue.State != "hold" {
		l.waited = 0
		return
	}
	fade := math.Exp(-elapsed / keep)
	l.usual += (1 - fade) * (rate*perRequest - l.usual)
	if queue.Value.Or(0) <= 0 {
		l.waited = 0
	} else if l.waited += elapsed; l.waited > sustained {
		l.tokens = l.tokens*fade + rate*perRequest*elapsed
		l.answers = l.answers*fade + rate*elapsed
		l.seconds = l.seconds*fade + elapsed
	}
	if l.usual*l.seconds > l.tokens {
		l.tokens = l.usual * l.seconds
	}
}

// rate is tokens per second; NaN until enough was seen.
func (l *engineLimit) rate() float64 {
	const answers, seconds = 10, 5
	if l.answers < answers || l.seconds < seconds {
		return math.NaN()
	}
	return l.tokens / l.seconds
}

// learn adds what the counter rose by in some seconds.
func (r *refusedRate) learn(counter api.Number, elapsed float64) {
	const tau = 10 // seconds
	var rise float64
	if now, known := counter.Value(); known {
		rise = max(0, now-r.counter.Or(now)) // what was counted before the first look is not of these seconds
		r.counter = counter
	}
	if elapsed > 0 {
		r.perSecond += (1 - math.Exp(-elapsed/tau)) * (rise/elapsed - r.perSecond)
	}
}

// use fills in how much of the capacity is in use.
func (m *measured) use(c *api.Cluster, out *Measure) {
	const negligible = 1e-6 // of the pool: what is left can do nothing
	rates, arriving, estimate := m.possible(c)
	out.Use = api.Use{Estimate: estimate, IfLost: []api.IfLost{}}
	var all float64
	for _, r := range rates {
		all += r
	}
	if all <= 0 || math.IsNaN(all) || math.IsNaN(arriving) {
		return
	}
	out.Use.CapacityUsed = api.Num(arriving / all)
	for i, r := range rates {
		out.Endpoints[i].UseWithout = api.Num(arriving / (all - r)) // unknown for the only one
	}
	slices.SortFunc(rates, func(a, b float64) int { return cmp.Compare(b, a) })
	left, spare := all, 0
	for i, r := range rates[:len(rates)-1] {
		if left -= r; left <= all*negligible {
			break
		}
		if arriving <= left && spare == i {
			spare = i + 1
		}
		if slices.Contains([]int{1, 2, 3, 5, 10, 20, 50, 100, 200, 500}, i+1) {
			out.Use.IfLost = append(out.Use.IfLost,
				api.IfLost{Endpoints: i + 1, CapacityUsed: api.Num(arriving / left)})
		}
	}
	out.Use.ToSpare = api.Num(float64(spare))
}

// possible is what each endpoint can do per second, and what arrives, in the same unit: tokens where the unit of load
// is work, and otherwise requests. estimate is set where some endpoint counts like the others for its capacity. NaN is
// unknown.
func (m *measured) possible(c *api.Cluster) (rates []float64, arriving float64, estimate bool) {
	rates = make([]float64, len(c.Endpoints))
	arriving = c.Decision.ArrivalRate.Or(math.NaN()) + m.refused.perSecond
	if c.Decision.Unit == api.UnitWork {
		arriving *= tokensPerRequest(c)
		estimate = m.computable(c.Endpoints, rates)
	} else {
		for i := range rates {
			rates[i] = m.meters[i].busy.rate()
		}
	}
	var known []float64 // for each capacity
	for i := range c.Endpoints {
		e := &c.Endpoints[i]
		if capacity := e.Capacity.Or(0); !math.IsNaN(rates[i]) && capacity > 0 {
			known = append(known, rates[i]/capacity)
		}
	}
	typical := median(known)
	for i := range rates {
		if e := &c.Endpoints[i]; e.Outlier || e.Probed != "" || e.Reason == conditions.ReasonUnused {
			rates[i] = 0 // it answers nothing, or gets nothing, whatever it did before
		} else if math.IsNaN(rates[i]) {
			rates[i], estimate = typical*c.Endpoints[i].Capacity.Or(math.NaN()), true
		}
	}
	return rates, arriving, estimate
}

// computable writes what each engine can compute per second: no more than its limit, and where that is not known the
// same part of its prefill rate as of the others. estimate is set where that stands in.
func (m *measured) computable(endpoints []api.Endpoint, rates []float64) (estimate bool) {
	parts := make([]float64, len(endpoints)) // of the prefill rates
	var known []float64
	for i := range endpoints {
		rates[i] = endpoints[i].Work.PrefillRate.Or(math.NaN())
		if parts[i] = min(m.meters[i].limit.rate()/rates[i], 1); !math.IsNaN(parts[i]) {
			known = append(known, parts[i])
		}
	}
	usual := median(known)
	for i, part := range parts {
		switch {
		case !math.IsNaN(part):
			rates[i] *= part
		case !math.IsNaN(usual):
			rates[i], estimate = rates[i]*usual, true
		}
	}
	return estimate
}
