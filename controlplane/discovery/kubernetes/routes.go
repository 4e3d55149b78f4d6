package kubernetes

import (
	"cmp"
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Routes of the Gateway API, as Envoy Gateway names their kinds.
var routeResources = map[string]schema.GroupVersionResource{
	"httproute": {Group: "gateway.networking.k8s.io", Version: "v1", Resource: "httproutes"},
	"grpcroute": {Group: "gateway.networking.k8s.io", Version: "v1", Resource: "grpcroutes"},
}

// A BackendRef is a backend of a rule of a route.
type BackendRef struct {
	Group, Kind, Namespace, Name string
	Weight                       uint32
}

// A route is what is read of one.
type route struct {
	Spec struct {
		Rules []struct {
			BackendRefs []struct {
				Group     string  `json:"group"`
				Kind      string  `json:"kind"`
				Namespace string  `json:"namespace"`
				Name      string  `json:"name"`
				Weight    *uint32 `json:"weight"`
			} `json:"backendRefs"`
		} `json:"rules"`
	} `json:"spec"`
}

// Backends returns the backends of a rule of a route, as the API has them now: weights that are older than the
// gateway's would be in force until it asks again. A route that is gone has none: the gateway will soon know.
func (c *Client) Backends(ctx context.Context, kind, namespace, name string, rule int) ([]BackendRef, error) {
	resource, ok := routeResources[kind]
	if !ok {
		return nil, fmt.Errorf("a route of the kind %q is not one that Steelyard knows", kind)
	}
	found, err := c.dynamic.Resource(resource).Namespace(namespace).Get(ctx, name, meta.GetOptions{})
	c.requested(resource.Resource, "get", resultOf(err))
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, mayNot("get", resource.Resource+"."+resource.Group, namespace, err)
	}
	var r route
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, &r); err != nil {
		return nil, fmt.Errorf("%s %s/%s cannot be read: %w", kind, namespace, name, err)
	}
	if rule >= len(r.Spec.Rules) {
		return nil, fmt.Errorf("%s %s/%s has %d rules and not one of the number %d: it has just changed", kind,
			namespace, name, len(r.Spec.Rules), rule)
	}
	var out []BackendRef
	for _, b := range r.Spec.Rules[rule].BackendRefs {
		weight := uint32(1)
		if b.Weight != nil {
			weight = *b.Weight
		}
		out = append(out, BackendRef{Group: b.Group, Kind: cmp.Or(b.Kind, "Service"),
			Namespace: cmp.Or(b.Namespace, namespace), Name: b.Name, Weight: weight})
	}
	return out, nil
}
