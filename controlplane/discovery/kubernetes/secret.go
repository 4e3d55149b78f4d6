package kubernetes

import (
	"context"
	"errors"
	"maps"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// ErrChanged is the error of a write if someone else was faster.
var ErrChanged = errors.New("the object has changed meanwhile")

// A Secret is one of Steelyard's namespace.
type Secret struct {
	Data   map[string][]byte
	object core.Secret
}

// Secret reads a Secret of Steelyard's namespace.
func (c *Client) Secret(ctx context.Context, name string) (s Secret, err error) {
	err = c.core.Get().Namespace(c.namespace).Resource("secrets").Name(name).Do(ctx).Into(&s.object)
	c.requested("secrets", "get", resultOf(err))
	s.Data = s.object.Data
	return s, mayNot("get", "secret "+name, c.namespace, err)
}

// FillSecret adds to a Secret that was read. If it has changed since, the error is ErrChanged.
func (c *Client) FillSecret(ctx context.Context, s Secret, data map[string][]byte) error {
	next := s.object.DeepCopy()
	next.Data = map[string][]byte{}
	maps.Copy(next.Data, s.Data)
	maps.Copy(next.Data, data)
	err := c.core.Put().Namespace(c.namespace).Resource("secrets").Name(next.Name).Body(next).Do(ctx).
		Into(&core.Secret{})
	c.requested("secrets", "update", resultOf(err))
	if apierrors.IsConflict(err) {
		return ErrChanged
	}
	return mayNot("update", "secret "+next.Name, c.namespace, err)
}
