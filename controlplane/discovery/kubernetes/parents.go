package kubernetes

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	names "k8s.io/apimachinery/pkg/types"

	"steelyard/internal/api"
)

// The kinds of parents of a pool.
const (
	GatewayKind = "Gateway"
	ServiceKind = "Service"
)

var gateways = schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "gateways"}

// maxParents is how many the API lets a pool have.
const maxParents = 32

// A ParentRef names what sends requests to a pool by Steelyard's weights: a Gateway, or the Service of Steelyard that
// Envoys have them from.
type ParentRef struct{ Kind, Namespace, Name string }

// Gateway is NAMESPACE/NAME of a Gateway; empty of another kind.
func (p ParentRef) Gateway() string {
	if p.Kind != GatewayKind {
		return ""
	}
	return p.Namespace + "/" + p.Name
}

// A Parent is one in the status of a pool.
type Parent struct {
	ParentRef
	Refused string // why it does not serve the pool; empty if it does
}

// ControllerName marks the parents that one installation of Steelyard writes, among those of others.
func ControllerName(namespace, service string) string {
	if service == "" {
		return "steelyard.dev/" + namespace
	}
	return "steelyard.dev/" + namespace + "/" + service
}

// An entry is a parent as the API has it.
type entry struct {
	ControllerName string `json:"controllerName"`
	ParentRef      struct {
		Group     *string `json:"group"`
		Kind      string  `json:"kind"`
		Namespace string  `json:"namespace"`
		Name      string  `json:"name"`
	} `json:"parentRef"`
	Conditions []meta.Condition `json:"conditions"`
}

// Parents returns those that a controller has written into the status of a pool.
func (p *FoundPool) Parents(controller string) (out []Parent) {
	for _, raw := range p.parents {
		if e := read(raw); e.ControllerName == controller {
			out = append(out, e.parent(p.Namespace))
		}
	}
	return out
}

// ServedByOthers reports whether another controller has written that a Gateway of its own takes the pool.
func (p *FoundPool) ServedByOthers(controller string) bool {
	return slices.ContainsFunc(p.parents, func(raw any) bool {
		e := read(raw)
		parent := e.parent(p.Namespace)
		return e.ControllerName != controller && parent.Kind == GatewayKind && parent.Refused == ""
	})
}

// read returns what is known of an entry: one of an odd shape has no name.
func read(raw any) (e entry) {
	text, err := json.Marshal(raw)
	if err == nil {
		err = json.Unmarshal(text, &e)
	}
	if err != nil {
		return entry{}
	}
	return e
}

func (e *entry) parent(own string) (p Parent) {
	p.ParentRef = ParentRef{cmp.Or(e.ParentRef.Kind, GatewayKind), cmp.Or(e.ParentRef.Namespace, own), e.ParentRef.Name}
	for _, c := range e.Conditions {
		if c.Type == "Accepted" && c.Status == meta.ConditionFalse {
			p.Refused = cmp.Or(c.Message, c.Reason, "refused")
		}
	}
	return p
}

// SetParents makes parents those that a controller has in the status of a pool as it was found, as far as the API lets
// it have so many, and reports whether it wrote. A status that has them already stays, and so do the parents of other
// controllers. If the pool has changed since, the error is ErrChanged.
func (c *Client) SetParents(ctx context.Context, controller string, p *FoundPool, parents []Parent) (bool, error) {
	after := api.Limit(p.withParents(controller, parents, time.Now()), maxParents)
	if len(after)+len(p.parents) == 0 || reflect.DeepEqual(after, p.parents) {
		return false, nil
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"parents": after},
		"metadata": map[string]any{"uid": p.uid, "resourceVersion": p.version}})
	if err != nil {
		return false, fmt.Errorf("writing the status of InferencePool %s/%s: %w", p.Namespace, p.Name, err)
	}
	_, err = c.dynamic.Resource(resources[kindPools]).Namespace(p.Namespace).Patch(ctx, p.Name, names.MergePatchType,
		patch, meta.PatchOptions{}, "status")
	c.requested("inferencepools/status", "patch", resultOf(err))
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case apierrors.IsConflict(err):
		return false, ErrChanged
	case err != nil && !RightMissing(err):
		return false, fmt.Errorf("writing the status of InferencePool %s/%s: %w", p.Namespace, p.Name, err)
	}
	return err == nil, mayNot("patch", "inferencepools/status", p.Namespace, err)
}

// RightMissing reports whether the API server itself refuses what is to be patched, in its own words: a webhook that
// refuses one object may answer with the same code.
func RightMissing(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "cannot patch resource")
}

// withParents returns the entries that the status has next: those of others as they are.
func (p *FoundPool) withParents(controller string, parents []Parent, now time.Time) (after []any) {
	before := map[ParentRef][]meta.Condition{}
	for _, raw := range p.parents {
		e := read(raw)
		if e.ControllerName != controller {
			after = append(after, raw)
			continue
		}
		before[e.parent(p.Namespace).ParentRef] = e.Conditions
	}
	for _, parent := range parents {
		after = append(after, parent.entry(controller, p.generation, before[parent.ParentRef], now))
	}
	return after
}

// entry is a parent as the API has it. The times of its conditions stay while they say the same.
func (p Parent) entry(controller string, generation int64, before []meta.Condition, now time.Time) map[string]any {
	accepted := meta.Condition{Type: "Accepted", Status: meta.ConditionTrue, Reason: "Accepted",
		Message: "Steelyard has its endpoints, with weights by load, for the Envoys of this Gateway."}
	if p.Refused != "" {
		accepted.Status, accepted.Reason, accepted.Message = meta.ConditionFalse, "NotSupportedByParent", p.Refused
	} else if p.Kind == ServiceKind {
		accepted.Message = "Envoys follow the weights that Steelyard computes. No Gateway has accepted it."
	}
	resolved := meta.Condition{Type: "ResolvedRefs", Status: meta.ConditionTrue, Reason: "ResolvedRefs",
		Message: "Steelyard needs no endpointPickerRef."}
	var conditions []any
	for _, c := range []meta.Condition{accepted, resolved} {
		since := now
		for _, was := range before {
			if was.Type == c.Type && was.Status == c.Status {
				since = was.LastTransitionTime.Time
			}
		}
		conditions = append(conditions, map[string]any{"type": c.Type, "status": string(c.Status), "reason": c.Reason,
			"message": c.Message, "lastTransitionTime": since.UTC().Format(time.RFC3339),
			"observedGeneration": generation})
	}
	group := "gateway.networking.k8s.io"
	if p.Kind == ServiceKind {
		group = ""
	}
	return map[string]any{"controllerName": controller, "conditions": conditions, "parentRef": map[string]any{
		"group": group, "kind": p.Kind, "namespace": p.Namespace, "name": p.Name}}
}

// Attached reports whether a Gateway is there and has routes, by its own status.
func (c *Client) Attached(ctx context.Context, namespace, name string) (bool, error) {
	found, err := c.dynamic.Resource(gateways).Namespace(namespace).Get(ctx, name, meta.GetOptions{})
	c.requested(gateways.Resource, "get", resultOf(err))
	var status *apierrors.StatusError
	if errors.As(err, &status) && apierrors.IsNotFound(err) {
		if details := status.ErrStatus.Details; details != nil && details.Name == name { // not the whole kind
			return false, nil
		}
	}
	if err != nil {
		return false, mayNot("get", gateways.Resource+"."+gateways.Group, namespace, err)
	}
	listeners, _, _ := unstructured.NestedSlice(found.Object, "status", "listeners")
	sets, _, _ := unstructured.NestedInt64(found.Object, "status", "attachedListenerSets") // which count their own
	for _, l := range listeners {
		if l, ok := l.(map[string]any); ok && l["attachedRoutes"] != int64(0) {
			return true, nil
		}
	}
	return sets > 0 || len(listeners) == 0, nil // none before its controller has written them
}
