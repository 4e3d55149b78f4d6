package daemon

import (
	"cmp"
	"context"
	"crypto/sha256"
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
	lacking error // rights
	asked   time.Time
	priced  time.Time
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
	cluster *api.Cluster
	api.Endpoint
	pod kubernetes.Pod
}

func (a *podActions) pass(ctx context.Context, now time.Time) {
	clusters := a.inKubernetes()
	namespaces := a.namespaces(clusters)
	a.watch.Follow(namespaces)
	known, err := a.watch.Pods()
	errs := []error{err, a.rights(ctx, now, namespaces)}
	byName := map[string]kubernetes.Pod{}
	for _, p := range known {
		byName[p.Namespace+"/"+p.Name] = p
	}
	hanging := make([][]api.Endpoint, len(clusters))
	for i := range clusters {
		hanging[i] = pods.Wedged(&clusters[i], takenOut(&clusters[i], known))
	}
	a.hung.Update(clusters, slices.Concat(hanging...), now)
	var wedged []member
	var states []api.WedgedPod
	for i := range clusters {
		c, found := &clusters[i], hanging[i]
		var of []member
		for _, e := range found {
			if p, ok := byName[e.Namespace+"/"+e.Pod]; ok {
				of = append(of, member{c, e, p})
			}
		}
		for _, m := range of {
			errs = append(errs, a.warn(ctx, m, now))
		}
		evicted, err := a.evict(ctx, c, found, of, now)
		errs = append(errs, err)
		for _, m := range of {
			states = append(states, api.WedgedPod{Cluster: c.Name, Namespace: m.Namespace, Pod: m.Pod,
				Since: m.OutlierSince, Eviction: evicted[m.Address]})
		}
		wedged = append(wedged, slices.DeleteFunc(of, func(m member) bool {
			return a.hung.For(&m.Endpoint, now) < pods.ConditionAfter
		})...)
	}
	errs = append(errs, a.conditions(ctx, known, wedged, now), a.setCosts(ctx, clusters, byName, now))
	a.finish(errors.Join(errs...), states)
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

// takenOut is how many Pods in the namespaces of a cluster hang by their condition, and are endpoints no more.
func takenOut(c *api.Cluster, known []kubernetes.Pod) (n int) {
	in, there := map[string]bool{}, map[string]bool{}
	for i := range c.Endpoints {
		in[c.Endpoints[i].Namespace], there[pods.PodOf(&c.Endpoints[i])] = true, true
	}
	for _, p := range known {
		if p.Serving == "False" && in[p.Namespace] && !there[p.Namespace+"/"+p.Name] {
			n++
		}
	}
	return n
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

// hangs says what is the matter with a Pod.
func hangs(m member) string {
	return fmt.Sprintf("Its engine takes requests and has answered none since %s, while its metrics page is answered.",
		m.OutlierSince.UTC().Format(time.RFC3339))
}

// warn writes an Event about a Pod, once in warnRest.
func (a *podActions) warn(ctx context.Context, m member, now time.Time) error {
	maps.DeleteFunc(a.warned, func(_ string, at time.Time) bool { return now.Sub(at) >= warnRest })
	if _, warned := a.warned[m.pod.UID]; !a.section.Wedged.Event || warned {
		return nil
	}
	err := a.client.Warn(ctx, m.pod, "EngineHangs", hangs(m)+" Steelyard sends it next to nothing.")
	if err == nil {
		a.warned[m.pod.UID] = now
	}
	return err
}

// evict evicts at most one Pod of a cluster, and returns what became of it by its address.
func (a *podActions) evict(ctx context.Context, c *api.Cluster, found []api.Endpoint, of []member, now time.Time) (
	map[string]string, error) {
	e, due := pods.Evictable(c, found, &a.hung, now)
	i := slices.IndexFunc(of, func(m member) bool { return m.Address == e.Address })
	if !a.section.Wedged.Evict || !due || i < 0 {
		return nil, nil
	}
	result, err := a.evictOne(ctx, of[i])
	return map[string]string{e.Address: result}, err
}

// evictOne evicts a Pod, if that is allowed and no other one of its cluster was evicted in ten minutes, by any replica.
func (a *podActions) evictOne(ctx context.Context, m member) (result string, err error) {
	if err := a.client.Evict(ctx, m.pod, true); err != nil {
		if errors.Is(err, kubernetes.ErrDisrupted) {
			return err.Error(), nil
		}
		return "refused", err
	}
	ok, err := a.client.Claim(ctx, m.pod.Namespace, leaseName("eviction", m.cluster.Name), m.pod.UID, evictionRest)
	if err != nil || !ok {
		return "another Pod of its cluster was evicted in the last ten minutes", err
	}
	if err := a.client.Evict(ctx, m.pod, false); err != nil {
		if errors.Is(err, kubernetes.ErrDisrupted) {
			return err.Error(), nil
		}
		return "refused", err
	}
	a.d.options.Log.Warn("Pod evicted, because its engine hangs", "cluster", m.cluster.Name, "namespace", m.Namespace,
		"pod", m.Pod, "since", m.OutlierSince.Time)
	return "evicted", nil
}

// leaseName names a Lease of one kind for anything that has a name.
func leaseName(kind, of string) string {
	return fmt.Sprintf("steelyard-%s-%.10x", kind, sha256.Sum256([]byte(of)))
}

// conditions writes the condition of Pods that hang, that hung, and whose readiness gate waits for it.
func (a *podActions) conditions(ctx context.Context, known []kubernetes.Pod, wedged []member, now time.Time) (
	err error) {
	if !a.section.Wedged.Condition {
		return nil
	}
	why := map[string]string{}
	for _, m := range wedged {
		why[m.pod.UID] = hangs(m)
	}
	for _, p := range known {
		serving, write := pods.Condition{Wedged: why[p.UID] != "", Gated: p.Gated, Status: p.Serving,
			Since: p.ServingSince, Started: p.Started}.Next(now)
		if !write {
			continue
		}
		reason := "EngineHangs"
		if serving {
			reason = "NoFault"
		}
		err = errors.Join(err, a.client.SetServing(ctx, p, serving, reason, why[p.UID]))
	}
	return err
}

// setCosts keeps the deletion costs up to date. Of several replicas one does, in each namespace.
func (a *podActions) setCosts(ctx context.Context, clusters []api.Cluster, byName map[string]kubernetes.Pod,
	now time.Time) (err error) {
	if !a.section.DeletionCost || now.Sub(a.priced) < costInterval {
		return nil
	}
	a.priced = now
	maps.DeleteFunc(a.costs, func(_ string, at time.Time) bool { return now.Sub(at) >= costRest })
	// Of another installation, this one's Pods would have no costs.
	installation := a.client.Namespace() + "/" + cmp.Or(a.d.configuration().Replicas, &config.Replicas{}).Prefix
	mine := map[string]bool{}
	for _, namespace := range namespacesOf(clusters) {
		ok, failed := a.client.Claim(ctx, namespace, leaseName("deletion-cost", installation), a.d.replica, costLease)
		mine[namespace], err = ok, errors.Join(err, failed)
	}
	written := 0
	for name, cost := range costsOf(clusters) {
		p, known := byName[name]
		_, resting := a.costs[p.UID]
		if !known || resting || !mine[p.Namespace] || written == maxCosts || p.Cost != nil && *p.Cost == cost {
			continue
		}
		written++
		a.costs[p.UID] = now
		err = errors.Join(err, a.client.SetDeletionCost(ctx, p, cost))
	}
	return err
}

// costsOf are the deletion costs by NAMESPACE/POD. A Pod that is an endpoint more than once has the highest.
func costsOf(clusters []api.Cluster) map[string]int {
	all := map[string]int{}
	for i := range clusters {
		costs := pods.Costs(&clusters[i])
		for _, e := range clusters[i].Endpoints {
			if cost, known := costs[e.Address]; known {
				name := e.Namespace + "/" + e.Pod
				all[name] = max(all[name], cost)
			}
		}
	}
	return all
}
