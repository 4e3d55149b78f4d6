package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"steelyard/internal/loops"
)

// A FoundPool is an InferencePool of the API.
type FoundPool struct {
	Namespace, Name string
	Picker          bool // it has an endpointPickerRef
	AppProtocol     string
	Created         time.Time

	// For its status.
	uid, version string
	generation   int64
	parents      []any
}

// Unserved is why Steelyard cannot serve it; empty if it can.
func (p *FoundPool) Unserved() string {
	if p.AppProtocol == "" || p.AppProtocol == "http" {
		return ""
	}
	return fmt.Sprintf("its appProtocol is %s, and only http is served", p.AppProtocol)
}

// Pools passes on the InferencePools of namespaces whenever they change, until ctx is done: by namespace, those that
// the API has answered for. An error is why it does not answer, while the pools known stay.
func (c *Client) Pools(ctx context.Context, namespaces []string, found func(map[string][]FoundPool, error)) {
	sub := loops.NewSignal()
	defer c.subscribe(sub)()
	var all []*watched
	for _, namespace := range namespaces {
		w, release := c.watch(key{kind: kindPools, namespace: namespace}, sub)
		defer release()
		all = append(all, w)
	}
	whenSettled(ctx, sub, func() { found(c.foundIn(all)) })
}

// whenSettled calls look at once, and a moment after each change, until ctx is done. A change that comes in this moment
// does not prolong it: changes may never end.
func whenSettled(ctx context.Context, changed loops.Signal, look func()) {
	for changed.Set(); ; {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		if loops.Pause(ctx, settle); ctx.Err() != nil {
			return
		}
		look()
	}
}

func (c *Client) foundIn(all []*watched) (found map[string][]FoundPool, err error) {
	found, err = map[string][]FoundPool{}, c.unreachable()
	for _, w := range all {
		err = errors.Join(err, w.failing())
		if !w.informer.HasSynced() {
			continue
		}
		pools := []FoundPool{}
		for _, object := range w.informer.GetStore().List() {
			pools = append(pools, foundPool(object.(*unstructured.Unstructured)))
		}
		slices.SortFunc(pools, func(a, b FoundPool) int { return strings.Compare(a.Name, b.Name) })
		found[w.namespace] = pools
	}
	return found, err
}

func foundPool(o *unstructured.Unstructured) FoundPool {
	picker, _, _ := unstructured.NestedFieldNoCopy(o.Object, "spec", "endpointPickerRef")
	protocol, _, _ := unstructured.NestedString(o.Object, "spec", "appProtocol")
	parents, _, _ := unstructured.NestedSlice(o.Object, "status", "parents")
	return FoundPool{Namespace: o.GetNamespace(), Name: o.GetName(), Picker: picker != nil, AppProtocol: protocol,
		Created: o.GetCreationTimestamp().Time, uid: string(o.GetUID()), version: o.GetResourceVersion(),
		generation: o.GetGeneration(), parents: parents}
}
