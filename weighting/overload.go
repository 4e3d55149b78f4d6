package weighting

// The overload flag
//
// An endpoint is overloaded when its queue per slot, its utilization or (if configured) its mean queue time reaches the
// enter threshold, and no longer when all are under their leave thresholds or unknown. Each state, and a flag once
// raised, lasts at least MinDwell. A queue raises no flag unless the endpoint has more to do than a median one, by at
// least the dwell: else it would idle before its flag is down. It keeps one until the endpoint has had no more to do
// than a median one for a dwell. A mean queue time counts only while requests complete.
//
// At most MaxShare of a pool is flagged, those that stall or fail first and then those longest overloaded. This bound
// takes precedence over the dwell. A flag is a preference for others: where no other endpoint could take the requests,
// because all are overloaded, or asleep, gone or not used by the proxies, none is flagged for its load, or all are.
//
// An engine that sleeps is flagged at once, and only while fresh reports show it. It is no part of the pool that these
// bounds are about.

import (
	"fmt"
	"math"
	"slices"
)

// A candidate is an endpoint with all that the proxies learn of it besides its share.
type candidate struct {
	*judged

	inEffect Override // by an operator
	queued   float64  // requests waiting per slot; NaN unknown
	flagged  bool
	lifted   bool // its flag, for a trial
}

// candidates are the endpoints with their flags; unflagged is how many have none.
func (p *pool) candidates(b *buffer[candidate], members []judged, inEffect []Override, u *unit) (
	out []candidate, unflagged int) {
	out = b.take(len(members))
	for i := range out {
		m := &out[i]
		m.judged, m.inEffect = &members[i], inEffect[i]
		m.queued = m.queuedPerSlot()
		m.hysteresis(p, u)
	}
	p.setFlags(out)
	for i := range out {
		if m := &out[i]; !m.flagged {
			unflagged++
		} else if !m.decided.flagged {
			m.shownSince = p.now
		}
	}
	return out, unflagged
}

// setFlags determines which of those that are overloaded or out are flagged.
func (p *pool) setFlags(members []candidate) {
	var ejected, over []*candidate
	awake, others := 0, 0 // others could take what is kept from those that are flagged
	for i := range members {
		m := &members[i]
		if m.flagged = m.asleep(); m.flagged {
			continue
		}
		awake++
		switch {
		case m.ejected():
			ejected = append(ejected, m)
		case m.overloaded:
			over = append(over, m)
		case !m.state.Unused && !m.gone && !m.inEffect.Drained:
			others++
		}
	}
	// A stable order keeps the same members flagged while more are overloaded than may be.
	slices.SortStableFunc(over, func(a, b *candidate) int { return a.flagSince.Compare(b.flagSince) })
	flags := slices.Concat(ejected, over) // the overloaded ones do serve
	switch most := p.params.Overload.most(awake); {
	case others > 0:
		flags = flags[:min(len(flags), most)]
	case len(flags) < len(members):
		flags = flags[:min(len(ejected), most)] // with a flag for load they would be as good as what takes nothing
	}
	trials := flaggedGetNothing(awake-len(flags), len(members))
	for _, m := range flags {
		m.lifted = !m.out() && trials && m.state.Tried > 0
		m.flagged = !m.lifted && !(m.inEffect.Share > 0) // proxies would not send a flagged one its share
	}
}

// most is how many of a pool may be flagged.
func (o *Overload) most(pool int) int {
	const rounding = 1e-9 // 0.29 of 100 is 29
	return int(min(max(0, o.MaxShare), 1)*float64(pool) + rounding)
}

// hysteresis moves one member between overloaded and not. Lost evidence is no evidence: a server that has gone silent
// does not stay overloaded.
func (m *candidate) hysteresis(p *pool, u *unit) {
	o := &p.params.Overload
	over := func(value, enter, leave float64) bool {
		return value >= enter || m.overloaded && value >= leave
	}
	// One that is not ahead by the time that a flag lasts would be idle before its flag is down, and its load with the
	// others: what it holds is for the weights.
	ahead := m.ahead(u)
	if !(ahead <= 0) {
		m.aheadAt = p.now
	}
	behind := ahead < o.MinDwell.Seconds() && !(m.overloaded && p.now.Sub(m.aheadAt) < o.MinDwell)
	utilization, queueTime := m.utilization(), m.meanQueueTime(p)
	recent := p.now.Sub(m.completed) <= p.params.Decay // an older mean may be none of its queue
	slow := o.QueueTimeEnter > 0 && recent &&
		over(queueTime, o.QueueTimeEnter.Seconds(), o.QueueTimeLeave.Seconds())
	strained := slow || over(utilization, o.UtilizationEnter, o.UtilizationLeave) && !(u.byWork && behind)
	queued := over(m.queued, o.QueueEnter, o.QueueLeave) && !behind && (m.overloaded || !m.ceiling.showsNone(&m.server))
	on, changed := queued || strained, newer(m.flagSince, m.shownSince)
	if on == m.overloaded || !changed.IsZero() && p.now.Sub(changed) < o.MinDwell {
		return
	}
	m.overloaded, m.flagSince, m.flagReason = on, p.now, ""
	switch {
	case !on:
	case queued:
		m.flagReason = m.queueReason(p, u)
	case slow:
		m.flagReason = fmt.Sprintf("mean queue time %.3g s >= %.3g s", queueTime, o.QueueTimeEnter.Seconds())
	default:
		m.flagReason = fmt.Sprintf("utilization %.3g >= %.3g", utilization, o.UtilizationEnter)
	}
}

// queueReason says in a sentence why a queue is too long.
func (m *candidate) queueReason(p *pool, u *unit) string {
	if !u.byWork {
		return fmt.Sprintf("queue per slot %.3g >= %.3g", m.queued, p.params.Overload.QueueEnter)
	}
	reason := fmt.Sprintf("%.0f requests wait", m.queued)
	if seconds := m.work(u).Seconds; !math.IsNaN(seconds) { // the prefill rate is known
		reason += fmt.Sprintf(", %.1f s of work", seconds)
	}
	return reason
}

// ahead is by how many seconds the member has more to do than a median one; NaN while no pace is known.
func (m *judged) ahead(u *unit) float64 {
	unit := 1 / u.pace // seconds for each unit of level
	if u.byWork {
		unit = u.requestWork / u.prefillRate
	}
	return (m.holding(m.workload).level() - orZero(u.level)) * unit
}

// utilization is as reported; NaN while unknown.
func (m *laden) utilization() float64 {
	if u := &m.seen.utilization; u.usable() {
		return u.Value
	}
	return math.NaN()
}

// queuedPerSlot is requests waiting per slot; NaN while unknown. In-flight counts show it only where the slots are not
// assumed.
func (m *judged) queuedPerSlot() float64 {
	switch {
	case m.blackout:
		return math.NaN()
	case m.seen.queue.usable():
		return m.seen.queue.Value / m.slotCount
	case m.slotsSource == CapacityWork:
		return math.NaN()
	case m.slotsSource != CapacityAssumed && trusted(m.loadState) && m.loadSource != LoadMedian:
		return max(0, m.load-m.atOnce()) / m.slotCount
	}
	return math.NaN()
}
