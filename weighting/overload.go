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

// shed settles the share of requests to refuse.
func (l *Law) shed(p *pool, d *Decision) {
	const fallFor = 10 * time.Second
	target := p.refuse()
	fall := l.params.Shedding.MaxDrop * max(0, p.now.Sub(l.dropAt)).Seconds() / fallFor.Seconds()
	if p.free() {
		l.drop = 0
	} else {
		l.drop = max(target, l.drop-fall, 0)
	}
	l.dropAt = p.now
	const steps = 100 // a hundredth is as fine as a push is worth
	d.DropFraction = math.Round(max(0, min(l.drop, l.params.Shedding.MaxDrop, 1))*steps) / steps
}

// refuse is the share that the mean queue over the whole pool asks for.
func (p *pool) refuse() float64 {
	s := &p.params.Shedding
	var waiting, slots float64
	for i := range p.members {
		if m := &p.members[i]; !math.IsNaN(m.queued) {
			waiting += m.queued * m.slotCount
			slots += m.slotCount
		}
	}
	switch depth := waiting / slots; {
	case !s.Enabled || slots == 0 || depth <= s.QueueStart:
		return 0
	case depth >= s.QueueFull:
		return s.MaxDrop
	default:
		return (depth - s.QueueStart) / (s.QueueFull - s.QueueStart) * s.MaxDrop
	}
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
