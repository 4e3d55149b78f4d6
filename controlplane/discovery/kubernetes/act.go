package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	names "k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// The errors of an eviction that is not done, and is no fault.
var (
	ErrDisrupted = errors.New("its PodDisruptionBudget does not allow an eviction now")
	ErrGone      = errors.New("it is gone already")
)

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
	err = request.Body(body).Do(ctx).Error()
	c.requested(resource, "patch", resultOf(err))
	if gone(err) {
		return nil
	}
	return mayNot("patch", resource, p.Namespace, err)
}

// gone reports whether a Pod is gone, or another one has its name.
func gone(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsConflict(err) }

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
	err = c.core.Post().Namespace(p.Namespace).Resource("pods").Name(p.Name).SubResource("eviction").MaxRetries(0).
		SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Error()
	c.requested("pods/eviction", "create", resultOf(err))
	switch {
	case gone(err):
		return ErrGone
	case apierrors.HasStatusCause(err, policy.DisruptionBudgetCause): // the API server answers 429 for load, too
		return ErrDisrupted
	}
	return mayNot("create", "pods/eviction", p.Namespace, err)
}

// Claim takes a Lease for a time, or keeps it if holder has it. ok is false while another holder has it. Of several
// that claim at the same time one gets it.
func (c *Client) Claim(ctx context.Context, namespace, name, holder string, length time.Duration) (ok bool, err error) {
	lease := &coordination.Lease{}
	err = c.coordination.Get().Namespace(namespace).Resource("leases").Name(name).Do(ctx).Into(lease)
	now, verb := meta.NowMicro(), "get"
	var put *rest.Request
	switch {
	case apierrors.IsNotFound(err):
		lease = &coordination.Lease{ObjectMeta: meta.ObjectMeta{Namespace: namespace, Name: name}}
		put, verb = c.coordination.Post(), "create"
	case err == nil && taken(lease.Spec, holder, now.Time):
		return false, nil
	case err == nil:
		put, verb = c.coordination.Put().Name(name), "update"
	}
	if put != nil {
		seconds := int32(length.Seconds())
		lease.Spec = coordination.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &now}
		err = put.Namespace(namespace).Resource("leases").Body(lease).Do(ctx).Error()
	}
	c.requested("leases", verb, resultOf(err))
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return false, nil // another one was faster
	}
	return err == nil, mayNot(verb, "leases", namespace, err)
}

// taken reports whether another holder has a Lease.
func taken(l coordination.LeaseSpec, holder string, now time.Time) bool {
	if l.HolderIdentity == nil || l.RenewTime == nil || l.LeaseDurationSeconds == nil {
		return false
	}
	ends := l.RenewTime.Add(time.Duration(*l.LeaseDurationSeconds) * time.Second)
	return *l.HolderIdentity != holder && now.Before(ends)
}
