package ledger

import "time"

const (
	calmShare  = 0.7             // of the threshold; below it a mode may end
	calmPeriod = 5 * time.Second // for which the rate stays there before the mode ends
)

// SetModeThresholds sets the request rates, per second of one Envoy, above
// which its entries are batched, and replaced by load reports. Zero means never.
// Modes change with the next events and reports.
func (l *Ledger) SetModeThresholds(batchAbove, reportsAbove float64) {
	l.mu.Lock()
	defer l.release()
	l.batchAbove, l.reportsAbove = batchAbove, reportsAbove
}

// modeAt returns the mode for a rate.
func (l *Ledger) modeAt(perSecond float64) Mode {
	switch {
	case l.reportsAbove > 0 && perSecond > l.reportsAbove:
		return ModeReports
	case l.batchAbove > 0 && perSecond > l.batchAbove:
		return ModeBatched
	}
	return ModeEvents
}

// chooseMode changes the mode of an Envoy when its rate requires it. It enters and leaves ModeReports only with a
// report, because the counts then start from that report's gauge.
func (l *Ledger) chooseMode(e *envoy, now time.Time, atReport bool) {
	perSecond := e.rate.now(now)
	up := l.modeAt(perSecond)
	if e.open >= maxOpen {
		up = ModeReports
	}
	if up == ModeReports && e.mode != ModeReports && !atReport {
		up = max(e.mode, l.batched())
	}
	if up > e.mode {
		l.transition(e, up)
		return
	}
	down := l.modeAt(perSecond / calmShare)
	if e.mode == ModeReports && (!atReport || e.progress > maxOpen/2) {
		down = ModeReports
	}
	switch {
	case down >= e.mode:
		e.calm = time.Time{}
	case e.calm.IsZero():
		e.calm = now
	case now.Sub(e.calm) >= calmPeriod:
		if e.mode == ModeBatched {
			e.unbatched = now
		}
		l.transition(e, down)
	}
}

// batched returns the mode before ModeReports.
func (l *Ledger) batched() Mode {
	if l.batchAbove > 0 {
		return ModeBatched
	}
	return ModeEvents
}

// transition sets the mode, and with it what the Envoy is counted by.
func (l *Ledger) transition(e *envoy, m Mode) {
	l.restate(e, func() { l.setMode(e, m) })
}

func (l *Ledger) setMode(e *envoy, m Mode) {
	if e.mode == m {
		return
	}
	if e.mode == ModeReports {
		e.wide = false // its log shows them again
	}
	e.mode, e.calm = m, time.Time{}
	l.regroup(e)
	l.epoch++
	l.generation.Add(1)
}

// Modes returns the modes of all Envoys that have a stream; an Envoy without one is in ModeEvents. The generation
// changes with every change of a mode.
func (l *Ledger) Modes() (generation uint64, modes map[Envoy]Mode) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	modes = make(map[Envoy]Mode, len(l.envoys))
	for node, e := range l.envoys {
		modes[node] = e.mode
	}
	return l.generation.Load(), modes
}

// ModeGeneration returns only the generation. It takes no lock.
func (l *Ledger) ModeGeneration() uint64 { return l.generation.Load() }
