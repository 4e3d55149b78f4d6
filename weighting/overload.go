package weighting

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// flag settles which members are overloaded, and which of those are flagged.
func (l *Law) flag(p *pool) {
	var over []*member
	for i := range p.members {
		m := &p.members[i]
		m.queued = p.queuedPerSlot(m)
		m.hysteresis(p)
		if m.overloaded {
			over = append(over, m)
		}
	}
	// A stable order keeps the same members flagged while more are overloaded
	// than may be.
	slices.SortStableFunc(over, func(a, b *member) int {
		return cmp.Or(a.flagSince.Compare(b.flagSince), cmp.Compare(a.Address, b.Address))
	})
	if len(over) < len(p.members) {
		over = over[:min(len(over), p.params.Overload.most(len(p.members)))]
	}
	for _, m := range over {
		m.flagged = true
	}
	for i := range p.members {
		p.members[i].show(p.now)
	}
}

// most is how many of a pool may be flagged.
func (o *Overload) most(pool int) int {
	const rounding = 1e-9 // 0.29 of 100 is 29
	return int(min(max(0, o.MaxShare), 1)*float64(pool) + rounding)
}

// show notes since when the proxies have seen the flag.
func (m *member) show(now time.Time) {
	switch {
	case !m.flagged:
		m.shownSince = time.Time{}
	case m.shownSince.IsZero():
		m.shownSince = now
	}
}

// hysteresis moves one member between overloaded and not. Evidence that is lost
// is none: a server that has gone silent does not stay overloaded.
func (m *member) hysteresis(p *pool) {
	o := &p.params.Overload
	if changed := later(m.flagSince, m.shownSince); !changed.IsZero() && p.now.Sub(changed) < o.MinDwell {
		return
	}
	utilization := math.NaN()
	if u := &m.seen.utilization; u.tells() {
		utilization = u.Value
	}
	switch {
	case !m.overloaded && m.queued >= o.QueueEnter:
		m.setFlag(true, p.now, fmt.Sprintf("queue per slot %.3g >= %.3g", m.queued, o.QueueEnter))
	case !m.overloaded && utilization >= o.UtilizationEnter:
		m.setFlag(true, p.now, fmt.Sprintf("utilization %.3g >= %.3g", utilization, o.UtilizationEnter))
	case m.overloaded && !(m.queued >= o.QueueLeave) && !(utilization >= o.UtilizationLeave):
		m.setFlag(false, p.now, "")
	}
}

func (m *memory) setFlag(on bool, now time.Time, reason string) {
	m.overloaded, m.flagSince, m.flagReason = on, now, reason
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// queuedPerSlot is requests waiting per slot; NaN where nothing tells. In-flight
// counts tell only where the slots are not assumed.
func (p *pool) queuedPerSlot(m *member) float64 {
	switch {
	case m.blackout:
		return math.NaN()
	case m.seen.queue.tells():
		return m.seen.queue.Value / m.slotCount
	case m.slotsSource != CapacityAssumed && believed(m.loadState) && m.loadSource != LoadMedian:
		return max(0, m.load-m.slotCount) / m.slotCount
	}
	return math.NaN()
}

// free reports whether shedding is off, or any member could start a request now:
// it has a free slot, or, where its slots are only assumed, an empty queue.
func (p *pool) free() bool {
	for i := range p.members {
		m := &p.members[i]
		room := m.load < m.slotCount && !(m.queued > 0)
		if m.slotsSource == CapacityAssumed {
			room = room || m.queued == 0
		}
		if believed(m.loadState) && room {
			return true
		}
	}
	return !p.params.Shedding.Enabled
}
