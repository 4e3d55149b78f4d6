package weighting

// The lag of the reports
//
// Gauges lag by an iteration of an engine or by an exporter's own interval, access logs wait in buffers, and no
// timestamp shows it. A law that takes late loads for present ones sends all that arrives meanwhile to the endpoint
// that was idle, then to the next one. But its own decisions come back in the reports: an endpoint gets its share of
// the arrivals, so the arrivals a that were reported of it for the time from t0 to t1 have, if reports are late by x,
// the log-likelihood
//
//	a·ln(w) − rate·(t1 − t0)·w    w  a fifth of an equal share + four fifths of the mean share from t0 − x to t1 − x
//
// Over all endpoints these are summed for each x of a few, and fade within minutes. The reports are late by the x with
// the largest sum, once it exceeds that of no lag by more than chance explains. The lag is a part of the horizon.
// Where shares hardly change there is no evidence, and a lag does no harm. A lag that is known evens out the shares of
// endpoints that batch continuously, so there it stands until little of its evidence is left: otherwise it would be
// forgotten and found again, each time by doing harm.

import (
	"math"
	"slices"
	"time"
)

// lags are the lags that the law distinguishes.
var lags = [...]time.Duration{
	0, 125 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second,
	4 * time.Second,
}

const (
	lagTick    = 125 * time.Millisecond
	lagTicks   = 64          // of a history: the largest lag, and as long a time between two readings
	lagShown   = 20.0        // more than the log-likelihood of no lag: significant
	lagGone    = 5.0         // less is none
	lagCertain = 50.0        // more does not count
	lagOne     = 2.0         // the most that one comparison counts: a counter may be wrong
	lagTau     = time.Minute // in which evidence fades
	lagSpan    = 2 * lagTick // of a comparison, at least
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
	since time.Time         // of the arrivals
	came  float64           // requests
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
	switch above := l.scores[best] - max(l.scores[0], l.scores[1]); {
	case above >= lagShown:
		l.late = lags[best]
	case above < gone:
		l.late = 0
	}
	return l.late
}

// observe takes in what arrived, at a rate of the whole pool.
func (l *lag) observe(p *pool, perSecond float64) {
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
		if h := m.history; m.came.at.After(h.since) {
			h.came += m.came.requests
			if h.came > 0 || m.came.at.Sub(h.since) >= lagSpan {
				l.compare(h, m.came.at, perSecond, 1/float64(len(p.members)))
				h.since, h.came = m.came.at, 0
			}
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
			m.history = &history{first: l.ticks + ticks + 1, since: p.now}
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

// compare holds the arrivals at an endpoint until some time against the shares that it had, for each lag.
func (l *lag) compare(h *history, until time.Time, perSecond, equal float64) {
	dt := until.Sub(h.since).Seconds()
	var scores [len(lags)]float64
	for i, x := range lags {
		from, ok := l.sumAt(h, h.since.Add(-x))
		if !ok {
			return
		}
		to, _ := l.sumAt(h, until.Add(-x))
		w := lagEqual*equal + (1-lagEqual)*(to-from)/dt
		scores[i] = h.came*math.Log(w) - perSecond*dt*w
	}
	for i := range l.scores {
		l.scores[i] += min(max(-lagOne, scores[i]-scores[0]), lagOne)
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
