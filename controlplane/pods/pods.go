// Package pods decides what is written about Pods into the Kubernetes API: which of them hang while they look healthy,
// which one of these may be evicted, and which ones a smaller pool can best do without. It is values in, values out;
// the daemon asks and writes.
package pods

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"steelyard/internal/api"
)

const (
	// evictAfter is how long an engine has to hang before it may be evicted: some come back by themselves, and a new
	// one may take minutes to load its model.
	evictAfter = time.Minute
	// classes are how many deletion costs there are. Few, so that a cost rarely changes; of Pods in one class,
	// Kubernetes removes the youngest, whose caches are the coldest.
	classes = 4
)

// Wedged returns the endpoints whose engine hangs: it answers no request, and its metrics page is answered, so no probe
// of Kubernetes finds out. There are none while Steelyard does not see enough to say so, or if more than half of the
// pool is affected: then the fault is probably not theirs.
func Wedged(c *api.Cluster) (wedged []api.Endpoint) {
	if !c.Ready || blind(c) {
		return nil
	}
	for i := range c.Endpoints {
		e := &c.Endpoints[i]
		answers := !e.LastScrape.At.IsZero() && e.LastScrape.Error == ""
		if e.Pod != "" && stalls(e) && answers && e.Override == nil {
			wedged = append(wedged, *e)
		}
	}
	if 2*len(wedged) > len(c.Endpoints) {
		return nil
	}
	return wedged
}

// blind reports whether a source of what is known about the endpoints is down.
func blind(c *api.Cluster) bool {
	return slices.ContainsFunc(c.Sources, func(s api.SourceStatus) bool { return s.State == api.SourceDown })
}

// stalls reports whether an endpoint takes requests and answers none, or did when it was last tried.
func stalls(e *api.Endpoint) bool {
	return e.Outlier && strings.HasPrefix(e.OverloadReason, "stalled") || strings.HasPrefix(e.Probed, "stalled")
}

// Evictable returns the one of the wedged endpoints of a cluster that has hung for the longest, if that is long enough
// and another endpoint is well.
func Evictable(c *api.Cluster, wedged []api.Endpoint, now time.Time) (api.Endpoint, bool) {
	well := slices.ContainsFunc(c.Endpoints, func(e api.Endpoint) bool {
		return !e.Outlier && e.Probed == "" && e.Override == nil && e.LastScrape.Error == "" && e.Share.Or(0) > 0
	})
	if len(wedged) == 0 || !well {
		return api.Endpoint{}, false
	}
	first := slices.MinFunc(wedged, func(a, b api.Endpoint) int {
		return cmp.Or(a.OutlierSince.Compare(b.OutlierSince.Time), cmp.Compare(a.Address, b.Address))
	})
	return first, !first.OutlierSince.IsZero() && now.Sub(first.OutlierSince.Time) >= evictAfter
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
// least outstanding work, 3 for the one with the most. Endpoints that hang or are drained have no work worth keeping.
// Those whose load is unknown have none.
func Costs(c *api.Cluster) map[string]int {
	type loaded struct {
		address string
		work    float64
	}
	var all []loaded
	for i := range c.Endpoints {
		e := &c.Endpoints[i]
		work, known := outstanding(e)
		if stalls(e) || e.Override != nil && e.Override.Kind == api.OverrideDrain {
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

// outstanding is the work of an endpoint: in seconds where they are known, else in requests.
func outstanding(e *api.Endpoint) (work float64, known bool) {
	if seconds, known := e.Work.Seconds.Value(); known {
		return seconds, true
	}
	return e.Load.Value()
}
