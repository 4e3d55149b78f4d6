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
	// evictAfter is how long an engine has to hang before it may be evicted: some come back by themselves.
	evictAfter = time.Minute
	// conditionAfter is how long it has to hang before its condition says so.
	conditionAfter = 15 * time.Second
	// grace is how long the containers of a Pod have to run before anything is done about it: a new engine compiles
	// and loads while its first requests wait, and the next one would do the same.
	grace = 10 * time.Minute
	// triedFor is how long a Pod that is tried again goes on hanging.
	triedFor = time.Minute
)

// A Pod is an endpoint with what the Kubernetes API says about its Pod.
type Pod struct {
	api.Endpoint
	UID        string
	Started    time.Time // when the latest of its containers started; zero: unknown
	Controlled bool      // a controller replaces it
}

// Busy returns the Pods that are not to blame, whatever one of their endpoints does: another one answers, in any
// cluster, or is not known to hang, or an operator decided about it.
func Busy(clusters []api.Cluster) map[string]bool {
	busy := map[string]bool{}
	for i := range clusters {
		for k := range clusters[i].Endpoints {
			if e := &clusters[i].Endpoints[k]; !hangs(e) {
				busy[NameOf(e)] = true
			}
		}
	}
	return busy
}

// Wedged returns one endpoint of each Pod whose engine hangs: it is flagged because it answers no request, at each of
// its ports, and its metrics page is answered, so no probe of Kubernetes finds out. There are none while Steelyard does
// not see enough to say so, or if more than half of the Pods are affected: then the fault is probably not theirs. taken
// is how many Pods were taken out before, which are endpoints no more.
func Wedged(c *api.Cluster, busy map[string]bool, taken int) (wedged []api.Endpoint) {
	if !c.Ready || blind(c) {
		return nil
	}
	byName := map[string]*api.Endpoint{}
	for i := range c.Endpoints {
		byName[NameOf(&c.Endpoints[i])] = &c.Endpoints[i]
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		if e := byName[name]; e.Pod != "" && !busy[name] {
			wedged = append(wedged, *e)
		}
	}
	if 2*(len(wedged)+taken) > len(byName)+taken {
		return nil
	}
	return wedged
}

// NameOf names the Pod of an endpoint, NAMESPACE/NAME; without one it is the address.
func NameOf(e *api.Endpoint) string {
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
type Watch struct{ seen map[string]sighting } // by UID

// A sighting is when a Pod was first and last seen to hang.
type sighting struct{ first, last time.Time }

// Update takes in all Pods and the wedged ones. A Pod that is tried again goes on hanging for a while.
func (w *Watch) Update(all, wedged []Pod, now time.Time) {
	seen := map[string]sighting{}
	for i := range all {
		s, known := w.seen[all[i].UID]
		if known && tried(&all[i].Endpoint) && now.Sub(s.last) <= triedFor {
			seen[all[i].UID] = s
		}
	}
	for i := range wedged {
		s, known := w.seen[wedged[i].UID]
		if !known {
			s.first = now
		}
		seen[wedged[i].UID] = sighting{s.first, now}
	}
	w.seen = seen
}

// For is how long a Pod has hung: since then, it has done nothing and none of its containers has started.
func (w *Watch) For(p *Pod, now time.Time) time.Duration {
	s, known := w.seen[p.UID]
	if !known {
		return 0
	}
	since := s.first
	for _, at := range []time.Time{p.Started, p.OutlierSince.Time, p.WorkedAt.Time} {
		if at.After(since) {
			since = at
		}
	}
	return now.Sub(since)
}

// Reportable reports whether the condition of a wedged Pod may say that it hangs.
func (w *Watch) Reportable(p *Pod, now time.Time) bool {
	return p.grown(now) && w.For(p, now) >= conditionAfter
}

// grown reports whether its containers have run for long enough.
func (p *Pod) grown(now time.Time) bool { return !p.Started.IsZero() && now.Sub(p.Started) >= grace }

// Kept is why a wedged Pod is not evicted; empty if it may be. A long request looks like a hang, unless the engine
// counts its work as it does it; and one that has never worked would only be replaced by another that does not.
func (w *Watch) Kept(p *Pod, now time.Time) string {
	switch {
	case !p.Controlled:
		return "not evicted: it has no controller that would replace it"
	case !p.grown(now):
		return "not evicted: a container of it has run for less than ten minutes"
	case p.WorkedAt.IsZero():
		return "not evicted: its metrics page has not shown work while that was done"
	case w.For(p, now) < evictAfter:
		return "not evicted: it has hung for less than a minute"
	}
	return ""
}

// Evictable returns the one of the wedged Pods of a cluster that has hung for the longest, of those that may be
// evicted, if another Pod is well.
func Evictable(c *api.Cluster, wedged []Pod, w *Watch, now time.Time) (Pod, bool) {
	may := slices.DeleteFunc(slices.Clone(wedged), func(p Pod) bool { return w.Kept(&p, now) != "" })
	well := slices.ContainsFunc(c.Endpoints, func(e api.Endpoint) bool {
		return !e.Outlier && e.Probed == "" && e.Override == nil && e.LastScrape.Error == "" && e.Share.Or(0) > 0
	})
	if len(may) == 0 || !well {
		return Pod{}, false
	}
	return slices.MinFunc(may, func(a, b Pod) int {
		return cmp.Or(cmp.Compare(w.For(&b, now), w.For(&a, now)), cmp.Compare(a.Address, b.Address))
	}), true
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
