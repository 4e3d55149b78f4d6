package weighting

// The overload flag
//
// An endpoint is overloaded when its queue per slot, its utilization or (if configured) its mean queue time reaches the
// enter threshold, and no longer when all are under their leave thresholds or unknown. Each state, and a flag once
// raised, lasts at least MinDwell. A queue raises no flag unless the endpoint has more to do than a median one, by at
// least the dwell: else it would idle before its flag is down. A mean queue time counts only while requests complete.
// At most MaxShare of a pool is flagged, those that stall or fail first and then those longest overloaded, unless all
// of it is; this bound takes precedence over the dwell.
//
// An engine that sleeps is flagged at once, and only while fresh reports show it. It is no part of the pool that these
// bounds are about.
//
// Proxies send nothing to flagged endpoints while a tenth of the pool has no flag. That is waste when the others are
// full. So flags for overload are lifted while none of the endpoints that are not overloaded has a free slot and their
// queues are at QueueLeave, and put back when these are half as deep. They are also lifted where there is no such
// endpoint but some that the proxies do not use, or that are gone. An endpoint whose flag for its queue is lifted is
// filled like the others, which are as full by then; one that is short of memory or slow gets a trickle, a twentieth of
// its part of the capacity.

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// flag determines which members are overloaded, and which of those are flagged.
func (l *Law) flag(p *pool) {
	var over []*member
	awake := 0
	for i := range p.members {
		m := &p.members[i]
		m.queued = p.queuedPerSlot(m)
		m.hysteresis(p)
		m.flagged = m.asleep()
		if m.flagged {
			continue
		}
		awake++
		if m.overloaded || m.ejected() {
			over = append(over, m)
		}
	}
	// A stable order keeps the same members flagged while more are overloaded
	// than may be. Those that stall or fail come first: the others do serve.
	slices.SortStableFunc(over, func(a, b *member) int {
		return cmp.Or(
			cmp.Compare(b.rank(), a.rank()),
			a.flagSince.Compare(b.flagSince),
			cmp.Compare(a.Address, b.Address),
		)
	})
	switch {
	case len(over) < awake:
		over = over[:min(len(over), p.params.Overload.most(awake))]
	case awake < len(p.members):
		over = nil // a flag would make them as good as those that sleep
	}
	for _, m := range over {
		m.flagged = true
	}
	l.lift.update(p, len(over), awake)
	trials := p.flaggedGetNothing(awake - len(over))
	for i := range p.members {
		m := &p.members[i]
		m.lifted = m.flagged && !m.out() && (l.lift.on || trials && m.health.Tried > 0)
		m.flagged = m.flagged && !m.lifted && !(m.inEffect.Share > 0) // proxies would not send a flagged one its share
		if !m.flagged {
			p.unflagged++
		}
		m.noteShown(p.now)
	}
}

// rank is 1 for an ejected endpoint.
func (m *member) rank() int {
	if m.ejected() {
		return 1
	}
	return 0
}

// unused reports whether the proxies send nothing to the endpoint, whatever its share.
func (m *member) unused() bool { return m.health.Unused && !m.flagged }

// lift is whether the flags for overload are lifted because the rest of the pool is saturated.
type lift struct {
	on    bool
	since time.Time
}

// update lifts the flags when none of the members that are not overloaded has a free slot and their queues are so deep
// that a flag would stay, and puts them back when these are half as deep or one has a free slot. Where there are no
// such members that the proxies use, the rest is full whatever it is.
func (f *lift) update(p *pool, flags, awake int) {
	var waiting, slots, free float64
	noOther := true
	for i := range p.members {
		m := &p.members[i]
		if m.overloaded || m.out() || m.health.Unused || m.gone || m.inEffect.Drained {
			continue
		}
		noOther = false
		if n := m.waiting(); !math.IsNaN(n) {
			waiting, slots, free = waiting+n, slots+m.slotCount, free+m.freeSlots(n)
		}
	}
	leave, depth, on := p.params.Overload.QueueLeave, waiting/slots, f.on
	switch {
	case flags == 0 || flags == awake:
		on = false
	case p.now.Sub(f.since) < p.params.Overload.MinDwell:
	case !f.on:
		on = noOther || free == 0 && depth >= leave
	default:
		on = noOther || free == 0 && depth >= leave/2
	}
	if on != f.on {
		f.on, f.since = on, p.now
	}
}

// fixed is what part of its capacity share a member gets whatever the others hold; 0 for one that is filled.
//
// A member that was flagged for its queue and has its flag lifted is filled like the others, which by now are as full.
// One that is short of memory or slow is so whatever its queue, and gets a small part, as does one that is probed where
// nothing would show whether it answers each request at once with an error. One that the proxies do not use gets the
// whole, so that its use shows when it begins again; until then that goes to the others in proportion to theirs. By
// scrapes only, one that answers each request at once with an error looks the same, and proxies that choose by their
// least requests would send it most of them.
func (m *member) fixed(p *pool) float64 {
	const trickle = 0.05
	switch {
	case m.lifted && m.strained || m.health.Blind:
		return trickle
	case m.unused() && !p.counted:
		return max(trickle, p.againstBias())
	case m.unused():
		return 1
	}
	return 0
}

// againstBias is the part of a share of which proxies that choose by their least requests make about the whole, by
// Envoy's default bias, where they have no request in flight and a median load at the others. How many proxies there
// are is not known here. With fewer they make more of it, and with more the bias is small.
func (p *pool) againstBias() float64 {
	const proxies = 10
	own := orZero(p.median(func(m *member) (float64, bool) { return m.load, m.loadSource != LoadMedian })) / proxies
	return 1 / ((own + 1) * (own + 1))
}

// most is how many of a pool may be flagged.
func (o *Overload) most(pool int) int {
	const rounding = 1e-9 // 0.29 of 100 is 29
	return int(min(max(0, o.MaxShare), 1)*float64(pool) + rounding)
}

// noteShown remembers since when the proxies have seen the flag.
func (m *member) noteShown(now time.Time) {
	switch {
	case !m.flagged:
		m.shownSince = time.Time{}
	case m.shownSince.IsZero():
		m.shownSince = now
	}
}

// hysteresis moves one member between overloaded and not. Lost evidence is no evidence: a server that has gone silent
// does not stay overloaded.
func (m *member) hysteresis(p *pool) {
	o := &p.params.Overload
	over := func(value, enter, leave float64) bool {
		return value >= enter || m.overloaded && value >= leave
	}
	// One that is not ahead by the time that a flag lasts would be idle before its flag is down, and its load with the
	// others: what it holds is for the weights.
	ahead := m.ahead(p)
	behind := ahead < o.MinDwell.Seconds() && !(m.overloaded && ahead > 0)
	utilization, queueTime := m.utilization(), m.meanQueueTime(p)
	recent := p.now.Sub(m.completed) <= p.params.Decay // an older mean may be none of its queue
	slow := o.QueueTimeEnter > 0 && recent &&
		over(queueTime, o.QueueTimeEnter.Seconds(), o.QueueTimeLeave.Seconds())
	m.strained = slow || over(utilization, o.UtilizationEnter, o.UtilizationLeave) && !(p.byWork && behind)
	queued := over(m.queued, o.QueueEnter, o.QueueLeave) && !behind && (m.overloaded || !m.ceiling.showsNone(&m.server))
	changed := later(m.flagSince, m.shownSince)
	if on := queued || m.strained; on == m.overloaded || !changed.IsZero() && p.now.Sub(changed) < o.MinDwell {
		return
	}
	m.overloaded, m.flagSince, m.flagReason = !m.overloaded, p.now, ""
	switch {
	case !m.overloaded:
	case queued:
		m.flagReason = m.queueReason(p)
	case slow:
		m.flagReason = fmt.Sprintf("mean queue time %.3g s >= %.3g s", queueTime, o.QueueTimeEnter.Seconds())
	default:
		m.flagReason = fmt.Sprintf("utilization %.3g >= %.3g", utilization, o.UtilizationEnter)
	}
}

// queueReason says in a sentence why a queue is too long.
func (m *member) queueReason(p *pool) string {
	if !p.byWork {
		return fmt.Sprintf("queue per slot %.3g >= %.3g", m.queued, p.params.Overload.QueueEnter)
	}
	reason := fmt.Sprintf("%.0f requests wait", m.queued)
	if seconds := m.work(p).Seconds; !math.IsNaN(seconds) { // the prefill rate is known
		reason += fmt.Sprintf(", %.1f s of work", seconds)
	}
	return reason
}

// ahead is by how many seconds the member has more to do than a median one; NaN while no pace is known.
func (m *member) ahead(p *pool) float64 {
	unit := 1 / p.pace // seconds for each unit of level
	if p.byWork {
		unit = p.requestWork / p.prefillRate
	}
	return (m.holding(m.workload).level() - orZero(p.load)) * unit
}

// utilization is as reported; NaN while unknown.
func (m *member) utilization() float64 {
	if u := &m.seen.utilization; u.usable() {
		return u.Value
	}
	return math.NaN()
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// queuedPerSlot is requests waiting per slot; NaN while unknown. In-flight counts show it only where the slots are not
// assumed.
func (p *pool) queuedPerSlot(m *member) float64 {
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
