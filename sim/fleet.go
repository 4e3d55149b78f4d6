package sim

// The pods and events of a scenario, and what the pods complete.

import (
	"cmp"
	"slices"

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

// throughput is what engines of these groups complete in a second when they never
// lack work. It is of the requests from the beginning of the trace on, some ten
// minutes of them.
func (s *Scenario) throughput(g *PodGroup) float64 {
	p := newPrompts(s)
	return g.speed() * g.Engine.Throughput(func() (int, int, int) {
		r := p.take()
		return r.prompt, r.cached, r.output
	})
}
