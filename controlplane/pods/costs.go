package pods

import (
	"math"
	"slices"
	"time"

	"steelyard/internal/api"
)

const (
	// highest is the highest deletion cost. There are few, so that a cost rarely changes; of Pods with the same cost,
	// Kubernetes removes the youngest, whose caches are the coldest.
	highest = 3
	// usual is the cost of a Pod that has as much work as the mean of its pool.
	usual = 2
	// beyond is how far past the middle between two costs the work has to be for another one.
	beyond = 0.25
	// memory is the time constant in which work is smoothed.
	memory = 5 * time.Minute
)

// A Work is what a Pod has to do, in comparison to the mean of its pool.
type Work struct {
	Part float64
	None bool // it hangs or is drained, so that it has no work worth keeping
}

// WorkOf returns the work of the Pods of clusters, NAMESPACE/POD. A Pod that is an endpoint more than once has the
// most of these. Those whose load is unknown have none.
func WorkOf(clusters []api.Cluster) map[string]Work {
	all := map[string]Work{}
	for i := range clusters {
		for name, work := range workOf(&clusters[i]) {
			if was, known := all[name]; !known || was.None || !work.None && work.Part > was.Part {
				all[name] = work
			}
		}
	}
	return all
}

// workOf is in seconds if they are known of all, else in requests. Where the mean is less than one, it counts as one:
// a Pod of an idle pool that has a request has little work.
func workOf(c *api.Cluster) map[string]Work {
	bySeconds := !slices.ContainsFunc(c.Endpoints, func(e api.Endpoint) bool {
		_, known := e.Work.Seconds.Value()
		return !known
	})
	all := map[string]Work{}
	sum, n := 0.0, 0.0
	for i := range c.Endpoints {
		e := &c.Endpoints[i]
		work, known := e.Load.Value()
		if bySeconds {
			work, known = e.Work.Seconds.Value()
		}
		none := flagged(e) || tried(e) || e.Override != nil && e.Override.Kind == api.OverrideDrain
		if known && !none {
			sum, n = sum+work, n+1
		}
		if was, there := all[NameOf(e)]; e.Pod != "" && (known || none) && (!there || was.None || work > was.Part) {
			all[NameOf(e)] = Work{work, none}
		}
	}
	for name, work := range all {
		work.Part /= max(sum/max(n, 1), 1)
		all[name] = work
	}
	return all
}

// Costs are the deletion costs of Pods: 0 without work, 2 with as much as the mean of the pool, 3 with half as much
// again. Work is smoothed, and a cost changes only where it is clearly another one, so that costs of a balanced pool do
// not move.
type Costs struct {
	parts map[string]smoothed // by name
	at    time.Time
}

// A smoothed part is the mean of all until it is that of the last minutes.
type smoothed struct {
	part  float64
	since time.Time
}

// Update takes in the work of Pods and the costs that are written, and returns those to write.
func (c *Costs) Update(work map[string]Work, written map[string]int, now time.Time) map[string]int {
	parts, costs := make(map[string]smoothed, len(work)), make(map[string]int, len(work))
	for name, w := range work {
		if w.None {
			costs[name] = 0
			continue
		}
		cost, has := written[name]
		has = has && cost >= 0 && cost <= highest
		s, known := c.parts[name]
		switch {
		case known:
			if passed := now.Sub(c.at); passed > 0 {
				keep := math.Exp(-passed.Seconds() / min(memory, now.Sub(s.since)).Seconds())
				s.part = w.Part + (s.part-w.Part)*keep
			}
		case has: // as another replica, or this one before a restart, found
			s = smoothed{float64(cost) / usual, now.Add(-memory)}
		default:
			s = smoothed{w.Part, now}
		}
		exact := usual * s.part
		if !has || math.Abs(exact-float64(cost)) > 0.5+beyond {
			cost = int(min(math.Round(exact), highest))
		}
		parts[name], costs[name] = s, cost
	}
	c.parts, c.at = parts, now
	return costs
}
