package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	names "k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// ErrDisrupted is the error of an eviction that a PodDisruptionBudget does not allow now.
var ErrDisrupted = errors.New("its PodDisruptionBudget does not allow an eviction now")

// SetServing writes the condition Serving of a Pod.
func (c *Client) SetServing(ctx context.Context, p Pod, serving bool, reason, message string) error {
	status := core.ConditionFalse
	if serving {
		status = core.ConditionTrue
	}
	return c.patch(ctx, p, "status", map[string]any{"metadata": map[string]any{"uid": p.UID},
		"status": map[string]any{"conditions": []core.PodCondition{{
			Type: Serving, Status: status, Reason: reason, Message: message, LastTransitionTime: meta.Now()}}}})
}

// SetDeletionCost writes the deletion cost of a Pod.
func (c *Client) SetDeletionCost(ctx context.Context, p Pod, cost int) error {
	return c.patch(ctx, p, "", map[string]any{"metadata": map[string]any{"uid": p.UID,
		"annotations": map[string]string{deletionCost: strconv.Itoa(cost)}}})
}

// patch changes a Pod, unless another one has its name by now.
func (c *Client) patch(ctx context.Context, p Pod, subresource string, change map[string]any) error {
	body, err := json.Marshal(change)
	if err != nil {
		return err
	}
	request := c.core.Patch(names.StrategicMergePatchType).Namespace(p.Namespace).Resource("pods").Name(p.Name)
	resource := "pods"
	if subresource != "" {
		request, resource = request.SubResource(subresource), resource+"/"+subresource
	}
	return c.written(request.Body(body).Do(ctx), "patch", resource, p)
}

// written returns how a write ended. A Pod that is gone, or another one of its name, needs none.
func (c *Client) written(r rest.Result, verb, resource string, p Pod) error {
	err := r.Error()
	c.requested(resource, verb, resultOf(err))
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return mayNot(verb, resource, p.Namespace, err)
}

// Warn writes an Event about a Pod: one for each reason, for as long as the API server keeps it, which is an hour by
// default. Replicas write the same one.
func (c *Client) Warn(ctx context.Context, p Pod, reason, message string) error {
	now := meta.Now()
	e := &core.Event{
		ObjectMeta: meta.ObjectMeta{Namespace: p.Namespace,
			Name: fmt.Sprintf("%.200s.%.8s.%s", p.Name, p.UID, strings.ToLower(reason))},
		InvolvedObject: core.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: p.Namespace, Name: p.Name,
			UID: names.UID(p.UID)},
		Reason: reason, Message: message, Type: core.EventTypeWarning, Count: 1,
		FirstTimestamp: now, LastTimestamp: now,
		Source: core.EventSource{Component: "steelyard"},
	}
	err := c.core.Post().Namespace(p.Namespace).Resource("events").Body(e).Do(ctx).Error()
	c.requested("events", "create", resultOf(err))
	if apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return mayNot("create", "events", p.Namespace, err)
}

// Evict evicts a Pod as kubectl drain does, or only asks whether that is allowed.
func (c *Client) Evict(ctx context.Context, p Pod, ask bool) error {
	options := map[string]any{"preconditions": map[string]any{"uid": p.UID}}
	if ask {
		options["dryRun"] = []string{meta.DryRunAll}
	}
	body, err := json.Marshal(map[string]any{"apiVersion": "policy/v1", "kind": "Eviction",
		"metadata": map[string]any{"namespace": p.Namespace, "name": p.Name}, "deleteOptions": options})
	if err != nil {
		return err
	}
	r := c.core.Post().Namespace(p.Namespace).Resource("pods").Name(p.Name).SubResource("eviction").MaxRetries(0).
		SetHeader("Content-Type", "application/json").Body(body).Do(ctx)
	if apierrors.IsTooManyRequests(r.Error()) {
		c.requested("pods/eviction", "create", resultOf(r.Error()))
		return ErrDisrupted
	}
	return c.written(r, "create", "pods/eviction", p)
}

var leases = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}

// Claim takes a Lease for a time, or keeps it if holder has it. ok is false while another holder has it. Of several
// that claim at the same time one gets it.
func (c *Client) Claim(ctx context.Context, namespace, name, holder string, length time.Duration) (ok bool, err error) {
	api := c.dynamic.Resource(leases).Namespace(namespace)
	spec := map[string]any{"holderIdentity": holder, "leaseDurationSeconds": int64(length.Seconds()),
		"renewTime": time.Now().UTC().Format("2006-01-02T15:04:05.000000Z07:00")}
	verb := "get"
	lease, err := api.Get(ctx, name, meta.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		verb = "create"
		_, err = api.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": map[string]any{"name": name},
			"spec": spec}}, meta.CreateOptions{})
	case err == nil && taken(lease, holder, time.Now()):
		return false, nil
	case err == nil:
		verb = "update"
		lease.Object["spec"] = spec
		_, err = api.Update(ctx, lease, meta.UpdateOptions{})
	}
	c.requested("leases", verb, resultOf(err))
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return false, nil // another one was faster
	}
	return err == nil, mayNot(verb, "leases", namespace, err)
}

// taken reports whether another holder has a Lease.
func taken(lease *unstructured.Unstructured, holder string, now time.Time) bool {
	by, _, _ := unstructured.NestedString(lease.Object, "spec", "holderIdentity")
	text, _, _ := unstructured.NestedString(lease.Object, "spec", "renewTime")
	seconds, _, _ := unstructured.NestedInt64(lease.Object, "spec", "leaseDurationSeconds")
	renewed, err := time.Parse(time.RFC3339Nano, text)
	return by != holder && err == nil && now.Before(renewed.Add(time.Duration(seconds)*time.Second))
}
