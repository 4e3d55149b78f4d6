package weighting

// The lag of the reports
//
// Gauges lag by an iteration of an engine or by an exporter's own interval, access logs wait in buffers, and no
// timestamp shows it. A law that takes late loads for present ones sends all that arrives meanwhile to the endpoint
// that was idle, then to the next one. But its own decisions come back in the reports: an endpoint gets its share of
// the arrivals, so the arrivals a that were read from it at t1, and were not at t0, the reading before, have, if
// reports are late by x, the log-likelihood
//
//	a·ln(w)    w  a fifth of an equal share + four fifths of the mean share from t0 − x to t1 − x
//
// Over all endpoints these are summed for each x of a few, and fade within minutes. The reports are late by the x with
// the largest sum, once it exceeds that of no lag by more than chance explains. The lag is a part of the horizon. One
// that is shorter than the time between two readings counts as none: an endpoint whose share was high gets requests,
// and its share falls, all between the two.
//
// Requests whose endpoint a hash chose (affinity) are no such arrivals. Where shares hardly change there is no
// evidence, and a lag does no harm. A lag that is known evens out the shares of endpoints that batch continuously, so
// there it stands until little of its evidence is left: otherwise it would be forgotten and found again, each time by
// doing harm.

import (
	"math"
	"slices"
	"time"
)

// lags are the lags that the law distinguishes.
var lags = [...]time.Duration{
	0, 2 * lagTick, 4 * lagTick, 8 * lagTick, 16 * lagTick, 32 * lagTick, 64 * lagTick, 128 * lagTick,
}

const (
	lagTick    = time.Second / 32
	lagTicks   = 256         // of a history: the largest lag, and as long a time between two readings
	lagShown   = 20.0        // more than the log-likelihood of no lag: significant
	lagGone    = 2.0         // less is none
	lagCertain = 50.0        // more does not count
	lagOne     = 2.0         // the most that one comparison counts: a counter may be wrong
	lagTau     = time.Minute // in which evidence fades
	lagEqual   = 0.2         // part of an equal share
)

// lag is how late the reports show what decisions did, as far as the arrivals show it.
type lag struct {
	at     time.Time          // of the last step
	ticks  int                // of lagTick since the beginning
	tick   time.Time          // the last of them
	scores [len(lags)]float64 // above that of no lag
	late   time.Duration      // the lag, as far as it is known
}

// A history is the shares of an endpoint that were in force.
type history struct {
	sum   float64           // share-seconds
	sums  [lagTicks]float64 // at the ticks; a ring
	first int               // tick
	read  time.Time         // when the arrivals were read last
}

// settle determines the lag by the evidence; limits says that requests wait for slots.
func (l *lag) settle(limits bool) time.Duration {
	best, gone := 1, lagGone
	for i, score := range l.scores {
		if score > l.scores[best] {
			best = i
		}
	}
	if limits {
		gone = lagShown
	}
	switch above := l.scores[best] - l.scores[0]; {
	case above >= lagShown:
		l.late = lags[best]
	case above < gone:
		l.late = 0
	}
	return l.late
}

// observe takes in what arrived.
func (l *lag) observe(p *pool) {
	elapsed := p.now.Sub(l.at)
	if l.at.IsZero() || elapsed < 0 || elapsed > lagTicks*lagTick/2 {
		*l = lag{tick: p.now, scores: l.scores, late: l.late}
		for i := range p.members {
			p.members[i].history = nil
		}
		elapsed = 0
	}
	l.advance(p, elapsed)
	keep := math.Exp(-elapsed.Seconds() / lagTau.Seconds())
	for i := range l.scores {
		l.scores[i] *= keep
	}
	for i := range p.members {
		m := &p.members[i]
		if h := m.history; m.came.at.After(h.read) {
			if m.came.requests > 0 {
				l.compare(h, &m.came, 1/float64(len(p.members)))
			}
			h.read = m.came.at
		}
	}
	best := slices.Max(l.scores[:])
	for i := range l.scores {
		l.scores[i] = max(l.scores[i], best-lagCertain)
	}
}

// advance brings the histories up to now, by the shares that were in force since the last step.
func (l *lag) advance(p *pool, elapsed time.Duration) {
	was, ticks := p.now.Add(-elapsed), 0
	for p.now.Sub(l.tick) >= time.Duration(ticks+1)*lagTick {
		ticks++
	}
	for i := range p.members {
		m := &p.members[i]
		if m.history == nil {
			m.history = &history{first: l.ticks + ticks + 1, read: p.now}
		}
		h, share := m.history, m.share
		if m.shareFlagged {
			share = 0
		}
		for n := 1; n <= ticks; n++ {
			at := l.tick.Add(time.Duration(n) * lagTick)
			h.sums[(l.ticks+n)%lagTicks] = h.sum + share*at.Sub(was).Seconds()
		}
		h.sum += share * elapsed.Seconds()
	}
	l.ticks += ticks
	l.tick = l.tick.Add(time.Duration(ticks) * lagTick)
	l.at = p.now
}

// compare holds the arrivals since the last reading against the shares that the endpoint had, for each lag.
func (l *lag) compare(h *history, came *arrived, equal float64) {
	passed := came.at.Sub(h.read)
	var scores [len(lags)]float64
	for i, x := range lags {
		from, ok := l.sumAt(h, h.read.Add(-x))
		if !ok {
			return
		}
		to, _ := l.sumAt(h, came.at.Add(-x))
		scores[i] = came.requests * math.Log(lagEqual*equal+(1-lagEqual)*(to-from)/passed.Seconds())
	}
	none := scores[0] // or a lag that ends within the time from one reading to the next
	for i, x := range lags {
		if x <= passed {
			none = max(none, scores[i])
			continue
		}
		l.scores[i] += min(max(-lagOne, scores[i]-none), lagOne)
	}
}

// sumAt is the share-seconds until some time; false where that is before the history.
func (l *lag) sumAt(h *history, t time.Time) (float64, bool) {
	since := l.tick.Sub(t)
	if since <= 0 {
		last := h.sums[l.ticks%lagTicks]
		if l.ticks < h.first || l.at.Equal(l.tick) {
			return h.sum, true
		}
		part := min(float64(-since)/float64(l.at.Sub(l.tick)), 1)
		return last + part*(h.sum-last), true
	}
	back := int(since / lagTick) // whole ticks
	after, before := l.ticks-back, l.ticks-back-1
	if before < h.first || l.ticks-before >= lagTicks {
		return 0, false
	}
	part := float64(since%lagTick) / float64(lagTick)
	return h.sums[after%lagTicks]*(1-part) + h.sums[before%lagTicks]*part, true
}
