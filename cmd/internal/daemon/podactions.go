package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"steelyard/controlplane/config"
	"steelyard/controlplane/discovery/kubernetes"
	"steelyard/controlplane/pods"
	"steelyard/internal/api"
	"steelyard/internal/loops"
)

// The times of what is written about Pods.
const (
	podsInterval   = 5 * time.Second
	rightsInterval = time.Minute
	evictionRest   = 10 * time.Minute // after an eviction, until the next of the same cluster
	warnRest       = time.Hour
	costInterval   = 15 * time.Second
	costRest       = time.Minute // after a cost of a Pod was written
	costLease      = 3 * costInterval
	maxCosts       = 50               // written in one pass
	maxErrors      = 4                // that are shown: one for each right
	podsPatience   = 20 * time.Second // that all requests of a pass may take
)

// podActions write about Pods, one pass after the other.
type podActions struct {
	d       *Daemon
	section config.Kubernetes
	client  *kubernetes.Client
	watch   *kubernetes.PodWatch

	hung    pods.Watch
	in      map[string][]string // the clusters in which each Pod is or was, by UID
	lacking error               // rights
	asked   time.Time
	priced  time.Time
	work    pods.Costs
	costs   map[string]time.Time // when the cost of a Pod was written, by UID
	warned  map[string]time.Time // when there was an Event about a Pod, by UID

	mu     sync.Mutex
	status api.PodActions
}

// runPodActions writes about Pods what the configuration asks for, until ctx is done.
func (d *Daemon) runPodActions(ctx context.Context) error {
	a := &d.podActions
	a.d, a.section, a.costs, a.warned = d, d.configuration().Kubernetes, map[string]time.Time{}, map[string]time.Time{}
	if !a.section.ActsOnPods() {
		return nil
	}
	select {
	case <-ctx.Done():
		return nil
	case <-d.kubernetes.connected:
	}
	a.client = d.kubernetes.client
	a.watch = a.client.WatchPods()
	defer a.watch.Follow(nil)
	loops.Every(ctx, podsInterval, func(now time.Time) {
		limited, cancel := context.WithTimeout(ctx, podsPatience)
		defer cancel()
		a.pass(limited, now)
	})
	return nil
}

// state is the state of what is written about Pods.
func (a *podActions) state() api.PodActions {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.status
}

// A member is an endpoint with its Pod.
type member struct {
	pods.Pod
	at kubernetes.Pod
}

// A view is what is known of Pods in one pass.
type view struct {
	clusters []api.Cluster
	known    []kubernetes.Pod          // in all namespaces of the clusters
	byName   map[string]kubernetes.Pod // NAMESPACE/NAME
	used     map[string]bool           // that are endpoints, NAMESPACE/NAME
}

func (a *podActions) pass(ctx context.Context, now time.Time) {
	v := view{clusters: a.inKubernetes()}
	namespaces := a.namespaces(v.clusters)
	a.watch.Follow(namespaces)
	known, err := a.watch.Pods()
	errs := []error{err, a.rights(ctx, now, namespaces)}
	v.known, v.byName, v.used = known, map[string]kubernetes.Pod{}, map[string]bool{}
	for _, p := range known {
		v.byName[p.Namespace+"/"+p.Name] = p
	}
	hanging := a.findHanging(&v, now)
	var wedged []member
	states := make([]api.WedgedPod, 0, len(wedged))
	for i := range v.clusters {
		c, found := &v.clusters[i], hanging[i]
		followed := a.d.streams.Followed(c.Name)
		for _, m := range found {
			errs = append(errs, a.warn(ctx, m, followed, now))
		}
		became, err := a.evict(ctx, c, found, followed, now)
		errs = append(errs, err)
		for _, m := range found {
			states = append(states, api.WedgedPod{Cluster: c.Name, Namespace: m.Namespace, Pod: m.Endpoint.Pod,
				Since: m.OutlierSince, Eviction: became[m.UID]})
			if followed && a.hung.Reportable(&m.Pod, now) {
				wedged = append(wedged, m)
			}
		}
	}
	errs = append(errs, a.conditions(ctx, known, wedged, now), a.setCosts(ctx, &v, now))
	a.finish(errors.Join(errs...), states)
}

// findHanging finds the Pods of each cluster that hang, and remembers of all in which clusters they are.
func (a *podActions) findHanging(v *view, now time.Time) (hanging [][]member) {
	var all, wedged []pods.Pod
	in := map[string][]string{}
	for i := range v.clusters {
		for _, e := range v.clusters[i].Endpoints {
			name := pods.NameOf(&e)
			v.used[name] = true
			if m, ok := v.member(&e); ok {
				all = append(all, m.Pod)
				if !slices.Contains(in[m.UID], v.clusters[i].Name) {
					in[m.UID] = append(in[m.UID], v.clusters[i].Name)
				}
			}
		}
	}
	for _, p := range v.known {
		if _, used := in[p.UID]; !used && a.in[p.UID] != nil {
			in[p.UID] = a.in[p.UID]
		}
	}
	a.in = in
	busy := pods.Busy(v.clusters)
	for i := range v.clusters {
		var found []member
		for _, e := range pods.Wedged(&v.clusters[i], busy, takenOut(&v.clusters[i], v, in)) {
			if m, ok := v.member(&e); ok {
				found, wedged = append(found, m), append(wedged, m.Pod)
			}
		}
		hanging = append(hanging, found)
	}
	a.hung.Update(all, wedged, now)
	return hanging
}

// member returns an endpoint with its Pod, if that is known.
func (v *view) member(e *api.Endpoint) (member, bool) {
	p, ok := v.byName[pods.NameOf(e)]
	return member{pods.Pod{Endpoint: *e, UID: p.UID, Started: p.Started, Controlled: p.Controlled}, p},
		ok && e.Pod != ""
}

// takenOut is how many Pods of a cluster hang by their condition, and are endpoints no more. Where it is not known in
// which clusters a Pod was, it counts in all of its namespace.
func takenOut(c *api.Cluster, v *view, in map[string][]string) (n int) {
	namespaces := map[string]bool{}
	for i := range c.Endpoints {
		namespaces[c.Endpoints[i].Namespace] = true
	}
	for _, p := range v.known {
		of := in[p.UID]
		if p.Serving == "False" && namespaces[p.Namespace] && !v.used[p.Namespace+"/"+p.Name] &&
			(of == nil || slices.Contains(of, c.Name)) {
			n++
		}
	}
	return n
}

// finish makes the result of a pass the state, and logs an error that is new.
func (a *podActions) finish(err error, wedged []api.WedgedPod) {
	text := ""
	if err != nil {
		text = strings.Join(api.Limit(slices.Compact(strings.Split(err.Error(), "\n")), maxErrors), "; ")
	}
	a.mu.Lock()
	before := a.status.Error
	a.status = api.PodActions{Enabled: true, Wedged: wedged, Error: text}
	a.mu.Unlock()
	if text != "" && text != before {
		a.d.options.Log.Warn("something cannot be written about Pods", "error", text)
	}
}

// inKubernetes are the clusters whose endpoints are Pods.
func (a *podActions) inKubernetes() []api.Cluster {
	return slices.DeleteFunc(a.d.Clusters(), func(c api.Cluster) bool {
		return !slices.ContainsFunc(c.Endpoints, func(e api.Endpoint) bool { return e.Pod != "" })
	})
}

// namespaces names where the Pods of clusters are, or will be by the configuration: with a readiness gate, no Pod is
// an endpoint before its condition is written.
func (a *podActions) namespaces(clusters []api.Cluster) []string {
	cfg, all := a.d.configuration(), namespacesOf(clusters)
	for i := range cfg.Clusters {
		switch e := &cfg.Clusters[i].Endpoints; {
		case e.Kubernetes != nil:
			all = append(all, cmp.Or(e.Kubernetes.Namespace, a.client.Namespace()))
		case e.InferencePool != nil:
			all = append(all, cmp.Or(e.InferencePool.Namespace, a.client.Namespace()))
		}
	}
	if cfg.Pools != nil {
		all = append(all, cfg.Pools.Namespaces...)
		if len(cfg.Pools.Namespaces) == 0 {
			all = append(all, a.client.Namespace())
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// namespacesOf returns the namespaces of the Pods of clusters.
func namespacesOf(clusters []api.Cluster) []string {
	all := map[string]bool{}
	for i := range clusters {
		for _, e := range clusters[i].Endpoints {
			if e.Pod != "" {
				all[e.Namespace] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// rights asks now and then for the rights that the configuration needs, so that one that is missing is known before it
// is needed.
func (a *podActions) rights(ctx context.Context, now time.Time, namespaces []string) error {
	if now.Sub(a.asked) < rightsInterval {
		return a.lacking
	}
	a.asked, a.lacking = now, nil
	needed := neededRights(a.section)
	for _, namespace := range namespaces {
		for _, component := range slices.Sorted(maps.Keys(needed)) {
			lacking, err := a.missing(ctx, namespace, needed[component])
			if len(lacking) > 0 {
				err = fmt.Errorf("Steelyard may not %s in namespace %s: apply manifests/components/%s there",
					strings.Join(lacking, ", "), namespace, component)
			}
			a.lacking = errors.Join(a.lacking, err)
		}
	}
	return a.lacking
}

// missing are the rights that Steelyard does not have in a namespace.
func (a *podActions) missing(ctx context.Context, namespace string, needed []kubernetes.Right) (
	lacking []string, err error) {
	for _, r := range needed {
		may, failed := a.client.May(ctx, namespace, r)
		if err = errors.Join(err, failed); failed == nil && !may {
			lacking = append(lacking, r.String())
		}
	}
	return lacking, err
}

// neededRights returns the rights that a configuration needs, by the component that has the Role.
func neededRights(section config.Kubernetes) map[string][]kubernetes.Right {
	lease := []kubernetes.Right{{Verb: "get", Group: "coordination.k8s.io", Resource: "leases"},
		{Verb: "create", Group: "coordination.k8s.io", Resource: "leases"},
		{Verb: "update", Group: "coordination.k8s.io", Resource: "leases"}}
	all := map[string][]kubernetes.Right{}
	if section.Wedged.Event {
		all["pod-event"] = []kubernetes.Right{{Verb: "create", Resource: "events"}}
	}
	if section.Wedged.Condition {
		all["pod-condition"] = []kubernetes.Right{{Verb: "patch", Resource: "pods", Subresource: "status"}}
	}
	if section.Wedged.Evict {
		evict := kubernetes.Right{Verb: "create", Resource: "pods", Subresource: "eviction"}
		all["pod-eviction"] = append([]kubernetes.Right{evict}, lease...)
	}
	if section.DeletionCost {
		all["pod-deletion-cost"] = append([]kubernetes.Right{{Verb: "patch", Resource: "pods"}}, lease...)
	}
	return all
}
