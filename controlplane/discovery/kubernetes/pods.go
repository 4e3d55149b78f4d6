package kubernetes

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strconv"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"steelyard/internal/loops"
)

// What is written about Pods.
const (
	// Serving is the condition of a Pod, which its readiness gate may name.
	Serving = "steelyard.dev/serving"
	// deletionCost is the annotation by which a ReplicaSet chooses the Pods to remove: those with the lowest first.
	deletionCost = "controller.kubernetes.io/pod-deletion-cost"
)

// A Pod is what is known of one, besides its endpoint.
type Pod struct {
	Namespace, Name, UID string
	Controlled           bool      // a controller replaces it
	Gated                bool      // its readiness gates name Serving
	Serving              string    // status of that condition; empty without one
	ServingSince         time.Time // since when it has that status
	Started              time.Time // when the latest of its containers started
	Cost                 *int      // its deletion cost; nil without a valid one
}

// A PodWatch follows the Pods of namespaces. It is for one goroutine.
type PodWatch struct {
	client  *Client
	changed loops.Signal // nothing waits for it
	watched map[string]*watched
	release map[string]func()
}

// WatchPods returns a PodWatch of no namespace.
func (c *Client) WatchPods() *PodWatch {
	return &PodWatch{c, loops.NewSignal(), map[string]*watched{}, map[string]func(){}}
}

// Follow makes these namespaces, and no others, those that are followed. An empty one is Steelyard's own.
func (p *PodWatch) Follow(namespaces []string) {
	wanted := map[string]bool{}
	for _, name := range namespaces {
		name = p.client.orOwn(name)
		if wanted[name] = true; p.watched[name] == nil {
			p.watched[name], p.release[name] = p.client.watch(key{kind: kindPods, namespace: name}, p.changed)
		}
	}
	for name := range maps.Clone(p.watched) {
		if !wanted[name] {
			p.release[name]()
			delete(p.watched, name)
			delete(p.release, name)
		}
	}
}

// Pods returns those of the API, sorted by namespace and name. An error is why some are missing or old.
func (p *PodWatch) Pods() (all []Pod, err error) {
	err = p.client.unreachable()
	for _, name := range slices.Sorted(maps.Keys(p.watched)) {
		w := p.watched[name]
		err = errors.Join(err, w.failing())
		for _, object := range w.informer.GetStore().List() {
			all = append(all, podOf(object.(*core.Pod)))
		}
	}
	slices.SortFunc(all, func(a, b Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return all, err
}

func podOf(o *core.Pod) Pod {
	p := Pod{Namespace: o.Namespace, Name: o.Name, UID: string(o.UID), Controlled: meta.GetControllerOf(o) != nil}
	p.Gated = len(o.Spec.ReadinessGates) > 0 // only those of Serving are kept
	for _, c := range o.Status.Conditions {
		if c.Type == Serving {
			p.Serving, p.ServingSince = string(c.Status), c.LastTransitionTime.Time
		}
	}
	for _, c := range o.Status.ContainerStatuses {
		if c.State.Running != nil && c.State.Running.StartedAt.After(p.Started) {
			p.Started = c.State.Running.StartedAt.Time
		}
	}
	if cost, err := strconv.Atoi(o.Annotations[deletionCost]); err == nil {
		p.Cost = &cost
	}
	return p
}
