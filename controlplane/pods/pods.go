// Package pods decides what is written about Pods into the Kubernetes API: which of them hang while they look healthy,
// which one of these may be evicted, and which ones a smaller pool can best do without. It is values in, values out;
// the daemon asks and writes.
package pods

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"steelyard/internal/api"
)

const (
	// evictAfter is how long an engine has to hang before it may be evicted: some come back by themselves, and a new
	// one may take minutes to load its model.
	evictAfter = time.Minute
	// ConditionAfter is how long it has to hang before its condition says so.
	ConditionAfter = 15 * time.Second
	// classes are how many deletion costs there are. Few, so that a cost rarely changes; of Pods in one class,
	// Kubernetes removes the youngest, whose caches are the coldest.
	classes = 4
)

// Wedged returns one endpoint of each Pod whose engine hangs: it is flagged because it answers no request, at each of
// its ports, and its metrics page is answered, so no probe of Kubernetes finds out. There are none while Steelyard does
// not see enough to say so, or if more than half of the Pods are affected: then the fault is probably not theirs. taken
// is how many Pods were taken out before, which are endpoints no more.
func Wedged(c *api.Cluster, taken int) (wedged []api.Endpoint) {
	if !c.Ready || blind(c) {
		return nil
	}
	byPod := map[string][]*api.Endpoint{}
	for i := range c.Endpoints {
		e := &c.Endpoints[i]
		byPod[PodOf(e)] = append(byPod[PodOf(e)], e)
	}
	for _, name := range slices.Sorted(maps.Keys(byPod)) {
		ports := byPod[name]
		if ports[0].Pod != "" && !slices.ContainsFunc(ports, func(e *api.Endpoint) bool { return !hangs(e) }) {
			wedged = append(wedged, *ports[0])
		}
	}
	if 2*(len(wedged)+taken) > len(byPod)+taken {
		return nil
	}
	return wedged
}

// PodOf names the Pod of an endpoint, NAMESPACE/NAME; without one it is the address.
func PodOf(e *api.Endpoint) string {
	if e.Pod == "" {
		return e.Address
	}
	return e.Namespace + "/" + e.Pod
}

// hangs reports whether an endpoint is flagged because it answers no request, while its page is answered. One that is
// tried again has not been asked enough to say so.
func hangs(e *api.Endpoint) bool {
	answers := !e.LastScrape.At.IsZero() && e.LastScrape.Error == ""
	return answers && e.Override == nil && flagged(e)
}

// blind reports whether a source of what is known about the endpoints is down, or misses some Envoys.
func blind(c *api.Cluster) bool {
	return slices.ContainsFunc(c.Sources, func(s api.SourceStatus) bool {
		return s.State == api.SourceDown || s.State == api.SourcePartial
	})
}

// flagged reports whether an endpoint takes requests and answers none.
func flagged(e *api.Endpoint) bool {
	return e.Outlier && strings.HasPrefix(e.OverloadReason, "stalled")
}

// tried reports whether an endpoint that was flagged for that is being tried again.
func tried(e *api.Endpoint) bool { return strings.HasPrefix(e.Probed, "stalled") }

// A Watch remembers since when each Pod has hung, as Steelyard saw it. The endpoint's own time is its last answer,
// which may be long before: while most of a pool stalls, none of its Pods is to blame.
type Watch struct{ since map[string]time.Time }

// Update takes in the clusters and their wedged endpoints. A Pod that is tried again goes on hanging.
func (w *Watch) Update(clusters []api.Cluster, wedged []api.Endpoint, now time.Time) {
	since := map[string]time.Time{}
	for i := range clusters {
		for j := range clusters[i].Endpoints {
			e := &clusters[i].Endpoints[j]
			if began, known := w.since[PodOf(e)]; known && e.Pod != "" && tried(e) {
				since[PodOf(e)] = began
			}
		}
	}
	for i := range wedged {
		name := PodOf(&wedged[i])
		began, known := w.since[name]
		if !known {
			began = now
		}
		since[name] = began
	}
	w.since = since
}

// For is how long the Pod of an endpoint has hung.
func (w *Watch) For(e *api.Endpoint, now time.Time) time.Duration {
	since, known := w.since[PodOf(e)]
	if !known {
		return 0
	}
	return now.Sub(since)
}

// Evictable returns the one of the wedged endpoints of a cluster that has hung for the longest, if that is long enough
// and another Pod is well.
func Evictable(c *api.Cluster, wedged []api.Endpoint, w *Watch, now time.Time) (api.Endpoint, bool) {
	well := slices.ContainsFunc(c.Endpoints, func(e api.Endpoint) bool {
		return !e.Outlier && e.Probed == "" && e.Override == nil && e.LastScrape.Error == "" && e.Share.Or(0) > 0
	})
	if len(wedged) == 0 || !well {
		return api.Endpoint{}, false
	}
	first := slices.MinFunc(wedged, func(a, b api.Endpoint) int {
		return cmp.Or(cmp.Compare(w.For(&b, now), w.For(&a, now)), cmp.Compare(a.Address, b.Address))
	})
	return first, w.For(&first, now) >= evictAfter
}

// retry is how long the condition of a Pod that hung says so, unless its container starts again before.
const retry = 10 * time.Minute

// A Condition is what the condition of a Pod says, and what else bears on it.
type Condition struct {
	Wedged  bool
	Gated   bool      // a readiness gate waits for it
	Status  string    // True, False, or empty if there is none
	Since   time.Time // since when it has that status
	Started time.Time // when a container of the Pod last started
}

// Next returns what the condition has to say, and whether it says something else now. A Pod that is not ready gets no
// requests, so it cannot show that it is well again: what ends the condition is a new start of its container, or time.
func (c Condition) Next(now time.Time) (serving, write bool) {
	switch {
	case c.Wedged && (c.Status != "False" || !c.Started.After(c.Since)):
		return false, c.Status != "False"
	case c.Status == "False":
		again := c.Started.After(c.Since) || now.Sub(c.Since) >= retry
		return again, again
	}
	return true, c.Status == "" && c.Gated
}

// Costs returns the deletion costs of the endpoints of a cluster, by address: 0 for the quarter of the pool with the
// least outstanding work, 3 for the one with the most: in seconds if they are known of all, else in requests. Endpoints
// that hang or are drained have no work worth keeping. Those whose load is unknown have none.
func Costs(c *api.Cluster) map[string]int {
	type loaded struct {
		address string
		work    float64
	}
	bySeconds := !slices.ContainsFunc(c.Endpoints, func(e api.Endpoint) bool {
		_, known := e.Work.Seconds.Value()
		return !known
	})
	var all []loaded
	for i := range c.Endpoints {
		e := &c.Endpoints[i]
		work, known := e.Load.Value()
		if bySeconds {
			work, known = e.Work.Seconds.Value()
		}
		if flagged(e) || tried(e) || e.Override != nil && e.Override.Kind == api.OverrideDrain {
			work, known = 0, true
		}
		if e.Pod != "" && known {
			all = append(all, loaded{e.Address, work})
		}
	}
	slices.SortFunc(all, func(a, b loaded) int {
		return cmp.Or(cmp.Compare(a.work, b.work), cmp.Compare(a.address, b.address))
	})
	costs := make(map[string]int, len(all))
	for i, l := range all {
		costs[l.address] = i * classes / len(all)
	}
	return costs
}
