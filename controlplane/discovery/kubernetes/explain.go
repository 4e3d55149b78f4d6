package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// forInformer reports whether an error is the informer's to deal with: it has to ask from another version on. One that
// asked for a stream of all objects (SendInitialEvents) asks for a list where the API server refuses that; a list or a
// watch that is refused as wrong is a fault like any other, such as that of a proxy in between.
func forInformer(err error, o meta.ListOptions) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) ||
		apierrors.HasStatusCause(err, meta.CauseTypeResourceVersionTooLarge) ||
		o.SendInitialEvents != nil &&
			(apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsNotAcceptable(err))
}

func unauthorized(err error) bool { return apierrors.IsUnauthorized(err) }

// resultOf is how a request ended, as a label of a metric.
func resultOf(err error) string {
	var network net.Error
	switch {
	case err == nil:
		return "ok"
	case apierrors.IsResourceExpired(err) || apierrors.IsGone(err):
		return "expired"
	case unauthorized(err):
		return "unauthorized"
	case apierrors.IsForbidden(err):
		return "forbidden"
	case apierrors.IsNotFound(err):
		return "not_found"
	case apierrors.IsTooManyRequests(err):
		return "too_many_requests"
	case apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err):
		return "unavailable"
	case errors.As(err, &network), errors.Is(err, errCutOff):
		return "connection"
	}
	return "other"
}

// explain names what is missing, where the API server refuses.
func (w *watched) explain(verb string, err error) error {
	r := resources[w.kind]
	what := r.Resource
	if r.Group != "" {
		what += "." + r.Group
	}
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("Steelyard may not %s %s in namespace %s: give its service account a Role there with the "+
			"verbs list and watch on %s: %w", verb, what, w.namespace, what, err)
	case unauthorized(err):
		return fmt.Errorf("the Kubernetes API server refuses the credentials, which are read again for the next try: "+
			"cannot %s %s in namespace %s: %w", verb, what, w.namespace, err)
	case apierrors.IsNotFound(err) && w.kind == kindPools:
		return fmt.Errorf("the Kubernetes API has no %s/%s: install the CustomResourceDefinitions of the Gateway API "+
			"Inference Extension: %w", what, r.Version, err)
	}
	return fmt.Errorf("cannot %s %s in namespace %s: %w", verb, what, w.namespace, err)
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
