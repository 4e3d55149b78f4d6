package kubernetes

import (
	"context"
	"errors"
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

// whenSettled calls look at once, and whenever changes have come and then none for a moment, until ctx is done.
func whenSettled(ctx context.Context, changed loops.Signal, look func()) {
	settled := time.NewTimer(0)
	defer settled.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
			settled.Reset(settle)
		case <-settled.C:
			look()
		}
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
	_, picker, _ := unstructured.NestedFieldNoCopy(o.Object, "spec", "endpointPickerRef")
	protocol, _, _ := unstructured.NestedString(o.Object, "spec", "appProtocol")
	return FoundPool{o.GetNamespace(), o.GetName(), picker, protocol}
}
