package kubernetes

import (
	"context"
	"fmt"

	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// The virtual resource whose rights are those on Steelyard itself.
const (
	adminGroup    = "steelyard.dev"
	adminResource = "admin"
)

// A Holder is who has a token of the Kubernetes API, and what it may do with this Steelyard. The zero value stands for
// a token that the API server does not accept.
type Holder struct {
	Name              string
	MayGet, MayUpdate bool
}

// Review asks the API server about a token. The questions are those that anyone may ask of themselves, sent with the
// token, so Steelyard needs no right for them. Rights are looked up in Steelyard's namespace.
func (c *Client) Review(ctx context.Context, token string) (h Holder, err error) {
	var self authentication.SelfSubjectReview
	err = c.askAs(ctx, c.authentication, token, "selfsubjectreviews", &authentication.SelfSubjectReview{}, &self)
	if unauthorized(err) {
		return Holder{}, nil
	}
	if err != nil {
		return Holder{}, err
	}
	h.Name = self.Status.UserInfo.Username
	for verb, may := range map[string]*bool{"get": &h.MayGet, "update": &h.MayUpdate} {
		var answer authorization.SelfSubjectAccessReview
		err := c.askAs(ctx, c.authorization, token, "selfsubjectaccessreviews", &authorization.SelfSubjectAccessReview{
			Spec: authorization.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorization.ResourceAttributes{
				Namespace: c.namespace, Verb: verb, Group: adminGroup, Resource: adminResource}}}, &answer)
		if err != nil {
			return Holder{}, err
		}
		*may = answer.Status.Allowed
	}
	return h, nil
}

// askAs sends a review with the token of someone else, once.
func (c *Client) askAs(
	ctx context.Context, api rest.Interface, token, resource string, body, into runtime.Object,
) error {
	err := api.Post().Resource(resource).SetHeader("Authorization", "Bearer "+token).MaxRetries(0).Body(body).
		Do(ctx).Into(into)
	c.requested(resource, "create", resultOf(err))
	switch {
	case err == nil, unauthorized(err):
		return err
	case apierrors.IsForbidden(err):
		return fmt.Errorf("the Kubernetes API server lets the token create no %s, as system:basic-user does: %w",
			resource, err)
	}
	return fmt.Errorf("the Kubernetes API server %s cannot be asked about a token: %w", c.server, err)
}

// A Right is one that Steelyard needs in a namespace.
type Right struct{ Verb, Group, Resource, Subresource string }

// String is the right as kubectl auth can-i has it.
func (r Right) String() string {
	resource := r.Resource
	if r.Group != "" {
		resource += "." + r.Group
	}
	if r.Subresource != "" {
		resource += "/" + r.Subresource
	}
	return r.Verb + " " + resource
}

// May reports whether Steelyard has a right in a namespace.
func (c *Client) May(ctx context.Context, namespace string, r Right) (bool, error) {
	var answer authorization.SelfSubjectAccessReview
	err := c.own.Post().Resource("selfsubjectaccessreviews").Body(&authorization.SelfSubjectAccessReview{
		Spec: authorization.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorization.ResourceAttributes{
			Namespace: c.orOwn(namespace), Verb: r.Verb, Group: r.Group, Resource: r.Resource,
			Subresource: r.Subresource}}}).Do(ctx).Into(&answer)
	c.requested("selfsubjectaccessreviews", "create", resultOf(err))
	return answer.Status.Allowed, err
}
