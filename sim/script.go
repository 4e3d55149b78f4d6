package sim

import (
	"time"
)

// act does what is due in the script.
func (w *world) act() {
	a := w.script[0]
	w.script = w.script[1:]
	if len(w.script) > 0 {
		w.set(laneScript, w.script[0].at)
	} else {
		w.set(laneScript, never)
	}
	switch a.kind {
	case FlashCrowd:
		factor := a.factor
		if a.end {
			factor = 1
		}
		w.arrivals.surge(factor, w.now)
		w.set(laneArrival, w.arrivals.at)
	case ControlPlaneAway:
		for _, c := range w.controls() {
			c.goAway(!a.end)
		}
	case Join, Leave:
		for _, i := range a.pods {
			w.pods[i].present = (a.kind == Join) != a.end
		}
		w.membership()
	default:
		for _, i := range a.pods {
			w.befall(int32(i), a)
		}
	}
}

// befall changes one pod.
func (w *world) befall(i int32, a act) {
	p := w.touch(i)
	switch a.kind {
	case Stall, Hang:
		p.halted = !a.end
		p.hung = p.halted && a.kind == Hang
	case Slow:
		p.slowed = 1
		if !a.end {
			p.slowed = a.factor
		}
	case Recover:
		p.halted, p.hung, p.slowed = false, false, 1
	case StuckRunning:
		p.stuckRunning = !a.end
	case StuckWaiting:
		if p.stuckWaiting = 0; !a.end {
			p.stuckWaiting = a.factor
		}
	case Eject:
		p.ejected = !a.end
	case StaleMetrics, FreshMetrics:
		p.stale = (a.kind == StaleMetrics) != a.end
	}
	p.pace(w.now)
	w.set(w.lanes.done+i, p.completes())
}

// membership reports endpoints that came or went.
func (w *world) membership() {
	const discovered = 3 * time.Millisecond // as a push
	for _, g := range w.groups {
		if g.control != nil {
			g.control.membership()
		} else {
			g.send(w.evenly(), discovered)
		}
	}
}
