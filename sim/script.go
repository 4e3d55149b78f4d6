package sim

import (
	"cmp"
	"slices"
	"time"

	"steelyard/sim/engine"
)

// An act is one change of the world: an event's beginning or its end.
type act struct {
	at     instant
	kind   EventKind
	end    bool
	pods   []int
	factor float64
}

// script is all that happens, in order.
func (s *Scenario) script() []act {
	var acts []act
	for _, e := range s.Events {
		pods := e.Pods
		if len(pods) == 0 {
			pods = s.all()
		}
		acts = append(acts, act{at: at(e.At), kind: e.Kind, pods: pods, factor: e.Factor})
		if e.For > 0 {
			acts = append(acts, act{at: at(e.At + e.For), kind: e.Kind, end: true, pods: pods, factor: e.Factor})
		}
	}
	slices.SortStableFunc(acts, func(a, b act) int { return cmp.Compare(a.at, b.at) })
	return acts
}

func (s *Scenario) all() []int {
	var all []int
	for _, g := range s.Pods {
		for range g.Count {
			all = append(all, len(all))
		}
	}
	return all
}

// pods are the servers as they are at the start.
func (s *Scenario) pods() []pod {
	var pods []pod
	for _, g := range s.Pods {
		p := pod{slots: g.Slots, capacity: cmp.Or(g.Capacity, float64(g.Slots)), speed: g.speed(), slowed: 1,
			present: true, metrics: g.Metrics}
		if g.Sharing {
			p.sharing = g.SlowDown
		}
		for range g.Count {
			if g.Engine != nil {
				p.engine = engine.New(*g.Engine)
				p.pace(0)
			}
			pods = append(pods, p)
		}
	}
	first := make([]EventKind, len(pods))
	for _, a := range s.script() {
		for _, i := range a.pods {
			if i < len(pods) && first[i] == "" && (a.kind == Join || a.kind == Leave) {
				first[i] = a.kind
				pods[i].present = a.kind != Join
			}
		}
	}
	return pods
}

func (g *PodGroup) speed() float64 {
	if g.Speed == 0 {
		return 1
	}
	return g.Speed
}

// capacity is the requests per second that the pods that are there complete with
// all slots taken, or with engines that never lack work.
func (s *Scenario) capacity(pods []pod) (perSecond float64) {
	for i := range s.Pods {
		g := &s.Pods[i]
		present := 0
		for k := range g.Count {
			if pods[k].present {
				present++
			}
		}
		switch {
		case present == 0:
		case g.Engine != nil:
			perSecond += float64(present) * s.throughput(g)
		default:
			perSecond += float64(present) * pods[0].fullRate() / s.Service.Mean.Seconds()
		}
		pods = pods[g.Count:]
	}
	return perSecond
}

// ArrivalRate is the requests per second that arrive, but for flash crowds. The
// scenario may have events at pods that are not there, and no other mistakes.
func (s Scenario) ArrivalRate() float64 {
	s = s.withDefaults()
	return s.rate(s.capacity(s.pods()))
}

// rate is requests per second, given those that the pods can complete.
func (s *Scenario) rate(capacity float64) float64 {
	if s.Rate > 0 {
		return s.Rate
	}
	return s.Load * capacity
}

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
