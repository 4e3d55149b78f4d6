package lag

import (
	"math"
	"slices"
	"time"
)

// lags are those that are distinguished.
var lags = [...]time.Duration{0, 2 * tick, 4 * tick, 8 * tick, 16 * tick, 32 * tick, 64 * tick, 128 * tick}

const (
	tick    = time.Second / 32
	kept    = 256         // ticks of a history: the largest lag, and as long a time between two readings
	shown   = 20.0        // more than the log-likelihood of no lag: the budget for a false alarm
	gone    = 2.0         // less is none
	certain = 50.0        // bound: more does not count
	single  = 2.0         // the most that one comparison counts: a counter may be wrong
	fades   = time.Minute // in which evidence fades
	even    = 0.2         // part of an equal share
)

// An Estimator follows the endpoints of one pool.
type Estimator struct {
	Late time.Duration // how late the reports are, as far as it is known

	at     time.Time          // of the last step
	ticks  int                // since the beginning
	tick   time.Time          // the last of them
	scores [len(lags)]float64 // log-likelihoods, above that of no lag
}

// An Endpoint is one of the pool in a step.
type Endpoint struct {
	*History
	Share    float64   // of the traffic, in force since the step before
	Requests float64   // that came since the step before
	ReadAt   time.Time // of these; zero: no reading
}

// A History is the shares of an endpoint that were in force. The zero History begins with the next step.
type History struct {
	sum   float64       // share-seconds
	sums  [kept]float64 // at the ticks; a ring
	first int           // tick; 0 before it begins
	until time.Time     // the last step that the endpoint was in
	read  time.Time     // when the arrivals were read last
}

// Step takes in what arrived; limits says that requests wait for slots.
func (l *Estimator) Step(now time.Time, pool []Endpoint, limits bool) {
	elapsed := now.Sub(l.at)
	if l.at.IsZero() || elapsed < 0 || elapsed > kept*tick/2 {
		*l = Estimator{tick: now, scores: l.scores, Late: l.Late}
		for _, e := range pool {
			*e.History = History{}
		}
		elapsed = 0
	}
	l.advance(now, pool, elapsed)
	keep := math.Exp(-elapsed.Seconds() / fades.Seconds())
	for i := range l.scores {
		l.scores[i] *= keep
	}
	for i := range pool {
		if e := &pool[i]; e.ReadAt.After(e.read) {
			if e.Requests > 0 {
				l.compare(e, 1/float64(len(pool)))
			}
			e.read = e.ReadAt
		}
	}
	best := slices.Max(l.scores[:])
	for i := range l.scores {
		l.scores[i] = max(l.scores[i], best-certain)
	}
	l.settle(limits)
}

// settle determines the lag by the evidence.
func (l *Estimator) settle(limits bool) {
	best, least := 1, gone
	for i, score := range l.scores {
		if score > l.scores[best] {
			best = i
		}
	}
	if limits {
		least = shown
	}
	switch above := l.scores[best] - l.scores[0]; {
	case above >= shown:
		l.Late = lags[best]
	case above < least:
		l.Late = 0
	}
}

// advance brings the histories up to now, by the shares that were in force since the last step.
func (l *Estimator) advance(now time.Time, pool []Endpoint, elapsed time.Duration) {
	was, ticks := now.Add(-elapsed), int(now.Sub(l.tick)/tick)
	for _, e := range pool {
		h := e.History
		if h.first == 0 || !h.until.Equal(was) { // it was away, and the ring has what it was eight seconds before
			*h = History{first: l.ticks + ticks + 1, read: now}
		}
		h.until = now
		for n := 1; n <= ticks; n++ {
			at := l.tick.Add(time.Duration(n) * tick)
			h.sums[(l.ticks+n)%kept] = h.sum + e.Share*at.Sub(was).Seconds()
		}
		h.sum += e.Share * elapsed.Seconds()
	}
	l.ticks += ticks
	l.tick = l.tick.Add(time.Duration(ticks) * tick)
	l.at = now
}

// compare holds the arrivals since the last reading against the shares that the endpoint had, for each lag.
func (l *Estimator) compare(e *Endpoint, equal float64) {
	passed := e.ReadAt.Sub(e.read)
	var scores [len(lags)]float64
	for i, x := range lags {
		from, ok := l.sumAt(e.History, e.read.Add(-x))
		if !ok {
			return
		}
		to, _ := l.sumAt(e.History, e.ReadAt.Add(-x))
		scores[i] = e.Requests * math.Log(even*equal+(1-even)*(to-from)/passed.Seconds())
	}
	none := scores[0] // or a lag that ends within the time from one reading to the next
	for i, x := range lags {
		if x <= passed {
			none = max(none, scores[i])
			continue
		}
		l.scores[i] += min(max(-single, scores[i]-none), single)
	}
}

// sumAt is the share-seconds until some time; false where that is before the history.
func (l *Estimator) sumAt(h *History, t time.Time) (float64, bool) {
	since := l.tick.Sub(t)
	if since <= 0 {
		last := h.sums[l.ticks%kept]
		if l.ticks < h.first || l.at.Equal(l.tick) {
			return h.sum, true
		}
		part := min(float64(-since)/float64(l.at.Sub(l.tick)), 1)
		return last + part*(h.sum-last), true
	}
	back := int(since / tick) // whole ticks
	after, before := l.ticks-back, l.ticks-back-1
	if before < h.first || l.ticks-before >= kept {
		return 0, false
	}
	part := float64(since%tick) / float64(tick)
	return h.sums[after%kept]*(1-part) + h.sums[before%kept]*part, true
}
