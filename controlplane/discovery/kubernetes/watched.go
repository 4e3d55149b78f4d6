package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"time"

	core "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"steelyard/internal/loops"
)

// The waits between two tries of a request that failed. An API server that is back should be used at once, and one
// that struggles not be asked by all in step.
const (
	firstRetry = time.Second
	lastRetry  = 5 * time.Second
)

// kind is what an informer holds.
type kind int

const (
	kindSlices       kind = iota // EndpointSlices
	kindPodsMetadata             // metadata of Pods
	kindPods                     // Pods
	kindPools                    // InferencePools
)

var resources = map[kind]schema.GroupVersionResource{
	kindSlices:       {Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"},
	kindPodsMetadata: {Version: "v1", Resource: "pods"},
	kindPods:         {Version: "v1", Resource: "pods"},
	kindPools:        {Group: "inference.networking.k8s.io", Version: "v1", Resource: "inferencepools"},
}

// key is what distinguishes informers.
type key struct {
	kind          kind
	namespace     string
	labels, field string // selectors
}

// watched is a shared informer with the state of its requests.
type watched struct {
	key
	client   *Client
	informer cache.SharedIndexInformer
	running  loops.Task
	users    int // guarded by client.mu

	mu   sync.Mutex
	err  error // of the latest request; nil when it succeeded
	subs map[loops.Signal]struct{}
}

// watch returns the informer of k, which runs until its last user has released it. sub is set when something has
// changed.
func (c *Client) watch(k key, sub loops.Signal) (w *watched, release func()) {
	c.mu.Lock()
	w = c.watched[k]
	if w == nil {
		w = c.start(k)
		c.watched[k] = w
	}
	w.users++
	c.mu.Unlock()
	w.mu.Lock()
	w.subs[sub] = struct{}{}
	w.mu.Unlock()
	return w, func() { c.release(w, sub) }
}

func (c *Client) release(w *watched, sub loops.Signal) {
	w.mu.Lock()
	delete(w.subs, sub)
	w.mu.Unlock()
	c.mu.Lock()
	w.users--
	last := w.users == 0
	if last {
		delete(c.watched, w.key)
	}
	c.mu.Unlock()
	if last {
		w.running.Stop()
	}
}

func (c *Client) start(k key) *watched {
	w := &watched{key: k, client: c, subs: make(map[loops.Signal]struct{})}
	example, list, follow := c.requests(k)
	w.informer = cache.NewSharedIndexInformer(w.lister(list, follow), example, 0, cache.Indexers{})
	// These fail only once the informer runs.
	_ = w.informer.SetTransform(stripped)
	_, _ = w.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { w.changed() }, UpdateFunc: func(any, any) { w.changed() },
		DeleteFunc: func(any) { w.changed() },
	})
	w.running = loops.Start(context.Background(), w.run)
	return w
}

// run runs the informer, and reports a change when it has its first answer, which may be empty.
func (w *watched) run(ctx context.Context) {
	synced := make(chan struct{})
	go func() {
		defer close(synced)
		if cache.WaitForCacheSync(ctx.Done(), w.informer.HasSynced) {
			w.changed()
		}
	}()
	w.informer.RunWithContext(ctx)
	<-synced
}

func (w *watched) changed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for sub := range w.subs {
		sub.Set()
	}
}

func (w *watched) resource() string { return resources[w.kind].Resource }

type (
	lister  = func(context.Context, meta.ListOptions) (runtime.Object, error)
	watcher = func(context.Context, meta.ListOptions) (watch.Interface, error)
)

// requests are those that an informer makes.
func (c *Client) requests(k key) (example runtime.Object, list lister, watch watcher) {
	switch r := resources[k.kind]; k.kind {
	case kindSlices:
		list, watch = typedRequests(c.discovery, k, func() *discoveryv1.EndpointSliceList {
			return &discoveryv1.EndpointSliceList{}
		})
		return &discoveryv1.EndpointSlice{}, list, watch
	case kindPods:
		list, watch = typedRequests(c.core, k, func() *core.PodList { return &core.PodList{} })
		return &core.Pod{}, list, watch
	case kindPodsMetadata:
		api := c.metadata.Resource(r).Namespace(k.namespace)
		list = func(ctx context.Context, o meta.ListOptions) (runtime.Object, error) { return api.List(ctx, o) }
		return &meta.PartialObjectMetadata{}, list, api.Watch
	default:
		api := c.dynamic.Resource(r).Namespace(k.namespace)
		list = func(ctx context.Context, o meta.ListOptions) (runtime.Object, error) { return api.List(ctx, o) }
		return &unstructured.Unstructured{}, list, api.Watch
	}
}

// cutOff is what client-go returns for a watch whose connection ends before the answer, instead of an error.
var (
	cutOff    = reflect.TypeOf(watch.NewEmptyWatch())
	errCutOff = errors.New("the connection was closed without an answer")
)

// lister makes the informer's requests wait and repeat here, because it would wait up to a minute.
func (w *watched) lister(list lister, follow watcher) cache.ListerWatcher {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o meta.ListOptions) (found runtime.Object, err error) {
			o.LabelSelector, o.FieldSelector = w.labels, w.field
			err = w.persist(ctx, "list", o, func() error {
				found, err = list(ctx, o)
				return err
			})
			return found, err
		},
		WatchFuncWithContext: func(ctx context.Context, o meta.ListOptions) (found watch.Interface, err error) {
			o.LabelSelector, o.FieldSelector = w.labels, w.field
			err = w.persist(ctx, "watch", o, func() error {
				found, err = follow(ctx, o)
				if err == nil && reflect.TypeOf(found) == cutOff {
					err = errCutOff
				}
				return err
			})
			if err != nil {
				return nil, err
			}
			return newCounted(found, w.watchFailed), nil
		},
	}
}

// watchFailed counts an error that ends a watch.
func (w *watched) watchFailed(err error) { w.client.requested(w.resource(), "watch", resultOf(err)) }

// persist makes a request until it succeeds, ctx is done or the informer has to ask something else.
func (w *watched) persist(ctx context.Context, verb string, o meta.ListOptions, request func() error) error {
	for try := 0; ; try++ {
		err := request()
		if unauthorized(err) && ctx.Err() == nil {
			// The token that was in memory is dropped with this answer, and read again for the next try.
			w.client.requested(w.resource(), verb, resultOf(err))
			err = request()
		}
		if err != nil && ctx.Err() != nil {
			return ctx.Err()
		}
		w.client.requested(w.resource(), verb, resultOf(err))
		if err == nil {
			w.record(nil)
			return nil
		}
		if forInformer(err, o) {
			return err // its next request is the one that shows whether the API server answers
		}
		w.record(w.explain(verb, err))
		wait := min(firstRetry<<min(try, 10), lastRetry)
		wait += time.Duration(rand.Float64() * 0.2 * float64(wait))
		if loops.Pause(ctx, wait); ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// record keeps the state of the requests.
func (w *watched) record(err error) {
	w.mu.Lock()
	same := fmt.Sprint(w.err) == fmt.Sprint(err)
	w.err = err
	w.mu.Unlock()
	if !same {
		w.changed()
	}
}

// failing is why the latest request failed; nil when it succeeded.
func (w *watched) failing() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// stripped is an object without what nobody here reads.
func stripped(object any) (any, error) {
	switch o := object.(type) {
	case *discoveryv1.EndpointSlice:
		o.ObjectMeta = slim(o.ObjectMeta, []string{discoveryv1.LabelServiceName})
		for i := range o.Endpoints {
			e := &o.Endpoints[i]
			e.Hints, e.DeprecatedTopology = nil, nil
		}
	case *meta.PartialObjectMetadata:
		o.ObjectMeta = slim(o.ObjectMeta, known)
	case *core.Pod:
		slimPod(o)
	case *unstructured.Unstructured:
		o.SetManagedFields(nil)
	}
	return object, nil
}

// slimPod keeps of a Pod what an endpoint is made of.
func slimPod(p *core.Pod) {
	var conditions []core.PodCondition
	for _, c := range p.Status.Conditions {
		if c.Type == core.PodReady || c.Type == Serving {
			conditions = append(conditions, core.PodCondition{Type: c.Type, Status: c.Status,
				LastTransitionTime: c.LastTransitionTime})
		}
	}
	var started []core.ContainerStatus
	for _, c := range p.Status.ContainerStatuses {
		started = append(started, core.ContainerStatus{State: core.ContainerState{Running: c.State.Running}})
	}
	gates := slices.DeleteFunc(p.Spec.ReadinessGates, func(g core.PodReadinessGate) bool {
		return g.ConditionType != Serving
	})
	controller := meta.GetControllerOf(p)
	p.ObjectMeta = slim(p.ObjectMeta, slices.Concat(known, activePorts,
		[]string{core.LabelTopologyZone, deletionCost}))
	if controller != nil {
		p.OwnerReferences = []meta.OwnerReference{{Controller: controller.Controller}}
	}
	p.Spec = core.PodSpec{NodeName: p.Spec.NodeName, ReadinessGates: gates}
	p.Status = core.PodStatus{
		Phase: p.Status.Phase, PodIP: p.Status.PodIP, PodIPs: p.Status.PodIPs, Conditions: conditions,
		ContainerStatuses: started,
	}
}

// slim keeps of an object's metadata its identity and some of its labels and annotations.
func slim(m meta.ObjectMeta, names []string) meta.ObjectMeta {
	return meta.ObjectMeta{
		Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion,
		DeletionTimestamp: m.DeletionTimestamp,
		Labels:            only(m.Labels, names), Annotations: only(m.Annotations, names),
	}
}

func only(all map[string]string, names []string) map[string]string {
	var out map[string]string
	for _, name := range names {
		if v, ok := all[name]; ok {
			if out == nil {
				out = make(map[string]string, 1)
			}
			out[name] = v
		}
	}
	return out
}
