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
	ByFilter                     bool   // only a filter of the rule names it (ExtensionRef), so it gets no requests
	Generation                   int64  // of its route: each change of that has another
	Filters                      bool   // it has some of its own
	TLSPolicy                    string // the BackendTLSPolicy for it, in its namespace; empty: none
}

// A route is what is read of one.
type route struct {
	Metadata struct {
		Generation int64 `json:"generation"`
	} `json:"metadata"`
	Spec struct {
		Rules []struct {
			Filters     []filter `json:"filters"`
			BackendRefs []struct {
				Group     string   `json:"group"`
				Kind      string   `json:"kind"`
				Namespace string   `json:"namespace"`
				Name      string   `json:"name"`
				Weight    *uint32  `json:"weight"`
				Filters   []filter `json:"filters"`
			} `json:"backendRefs"`
		} `json:"rules"`
	} `json:"spec"`
}

// A filter is what is read of one: Envoy Gateway passes an extensionRef on like a backend.
type filter struct {
	ExtensionRef *struct {
		Group string `json:"group"`
		Kind  string `json:"kind"`
		Name  string `json:"name"`
	} `json:"extensionRef"`
}

// named appends what filters name, which is always of the route's namespace.
func named(out []BackendRef, namespace string, filters []filter) []BackendRef {
	for _, f := range filters {
		if r := f.ExtensionRef; r != nil {
			out = append(out, BackendRef{Group: r.Group, Kind: r.Kind, Namespace: namespace, Name: r.Name,
				ByFilter: true})
		}
	}
	return out
}

// Backends returns the backends of a rule of a route, and what its filters name, as the API has them now: weights that
// are older than the gateway's would be in force until it asks again. A route that is gone has none: the gateway will
// soon know.
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
	out, err := c.backendsOf(ctx, namespace, r, rule)
	for i := range out {
		out[i].Generation = r.Metadata.Generation
	}
	return out, err
}

func (c *Client) backendsOf(ctx context.Context, namespace string, r route, rule int) (out []BackendRef, err error) {
	policies := map[string][]tlsPolicy{} // by namespace
	out = named(out, namespace, r.Spec.Rules[rule].Filters)
	for _, b := range r.Spec.Rules[rule].BackendRefs {
		weight := uint32(1)
		if b.Weight != nil {
			weight = *b.Weight
		}
		ref := BackendRef{Group: b.Group, Kind: cmp.Or(b.Kind, "Service"), Namespace: cmp.Or(b.Namespace, namespace),
			Name: b.Name, Weight: weight, Filters: len(b.Filters) > 0}
		if ref.Kind != "Service" { // whose policies the gateway follows
			if _, read := policies[ref.Namespace]; !read {
				if policies[ref.Namespace], err = c.tlsPolicies(ctx, ref.Namespace); err != nil {
					return nil, err
				}
			}
			ref.TLSPolicy = policyFor(policies[ref.Namespace], ref)
		}
		out = append(named(out, namespace, b.Filters), ref)
	}
	return out, nil
}

// maxTLSPolicies bounds those that are read of a namespace.
const maxTLSPolicies = 500

var tlsPolicyResource = schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1",
	Resource: "backendtlspolicies"}

// A tlsPolicy is what is read of a BackendTLSPolicy.
type tlsPolicy struct {
	meta.ObjectMeta `json:"metadata"`
	Spec            struct {
		TargetRefs []struct {
			Group string `json:"group"`
			Kind  string `json:"kind"`
			Name  string `json:"name"`
		} `json:"targetRefs"`
	} `json:"spec"`
}

// tlsPolicies reads the BackendTLSPolicies of a namespace; none where the API has no such kind.
func (c *Client) tlsPolicies(ctx context.Context, namespace string) (out []tlsPolicy, err error) {
	list, err := c.dynamic.Resource(tlsPolicyResource).Namespace(namespace).List(ctx,
		meta.ListOptions{Limit: maxTLSPolicies})
	c.requested(tlsPolicyResource.Resource, "list", resultOf(err))
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, mayNot("list", tlsPolicyResource.Resource+"."+tlsPolicyResource.Group, namespace, err)
	}
	for i := range list.Items {
		var p tlsPolicy
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &p); err != nil {
			return nil, fmt.Errorf("BackendTLSPolicy %s/%s cannot be read: %w", namespace, list.Items[i].GetName(), err)
		}
		out = append(out, p)
	}
	return out, nil
}

// policyFor returns the name of the policy that names a backend; empty if none does.
func policyFor(policies []tlsPolicy, b BackendRef) string {
	for _, p := range policies {
		for _, t := range p.Spec.TargetRefs {
			if t.Group == b.Group && t.Kind == b.Kind && t.Name == b.Name {
				return p.Name
			}
		}
	}
	return ""
}
