package kubernetes

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	names "k8s.io/apimachinery/pkg/types"
)

// controllerName marks the parents in the status of a pool that this package writes.
const controllerName = "steelyard.dev/gateway"

// A Parent is a Gateway whose routes name a pool.
type Parent struct {
	Gateway names.NamespacedName
	Refused string // why the pool is not served; empty if it is
}

// SetParents writes the parents into the status of a pool, next to those of other controllers. A status that has them
// already stays.
func (c *Client) SetParents(ctx context.Context, namespace, name string, parents []Parent) error {
	pools := c.dynamic.Resource(resources[kindPools]).Namespace(namespace)
	pool, err := pools.Get(ctx, name, meta.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return mayNot("get", "inferencepools", namespace, err)
	}
	before, _, _ := unstructured.NestedSlice(pool.Object, "status", "parents")
	after := slices.DeleteFunc(slices.Clone(before), func(p any) bool { return ours(p) != nil })
	for _, p := range parents {
		after = append(after, p.entry(before, pool.GetGeneration()))
	}
	if reflect.DeepEqual(before, after) || len(before)+len(after) == 0 {
		return nil
	}
	if err := unstructured.SetNestedSlice(pool.Object, after, "status", "parents"); err != nil {
		return fmt.Errorf("the status of InferencePool %s/%s cannot be read: %w", namespace, name, err)
	}
	_, err = pools.UpdateStatus(ctx, pool, meta.UpdateOptions{})
	return mayNot("update", "inferencepools/status", namespace, err)
}

// ours returns an entry if this package wrote it.
func ours(entry any) map[string]any {
	if e, ok := entry.(map[string]any); ok && e["controllerName"] == controllerName {
		return e
	}
	return nil
}

// entry is a parent as the API has it. Its time stays while it says the same.
func (p Parent) entry(before []any, generation int64) map[string]any {
	condition := map[string]any{"type": "Accepted", "status": "True", "reason": "Accepted",
		"message":            "Steelyard balances it by load.",
		"lastTransitionTime": time.Now().UTC().Format(time.RFC3339), "observedGeneration": generation}
	if p.Refused != "" {
		condition["status"], condition["reason"], condition["message"] = "False", "NotSupportedByParent", p.Refused
	}
	ref := map[string]any{"group": "gateway.networking.k8s.io", "kind": "Gateway", "namespace": p.Gateway.Namespace,
		"name": p.Gateway.Name}
	for _, e := range before {
		if was := ours(e); was != nil && reflect.DeepEqual(was["parentRef"], ref) {
			conditions, _ := was["conditions"].([]any)
			for _, old := range conditions {
				if old, ok := old.(map[string]any); ok && old["status"] == condition["status"] {
					condition["lastTransitionTime"] = old["lastTransitionTime"]
				}
			}
		}
	}
	return map[string]any{"controllerName": controllerName, "parentRef": ref, "conditions": []any{condition}}
}

// mayNot names the right that is missing, where the API server refuses.
func mayNot(verb, resource, namespace string, err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsForbidden(err):
		return fmt.Errorf("Steelyard may not %s %s in namespace %s: give its service account a Role there with that "+
			"right: %w", verb, resource, namespace, err)
	}
	return fmt.Errorf("%s %s in namespace %s: %w", verb, resource, namespace, err)
}
