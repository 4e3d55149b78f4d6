package kubernetes

import (
	"context"
	"fmt"
	"time"

	coordination "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"steelyard/internal/lease"
)

// ownerKey is the annotation of a Lease with its owner: the identity of its holder has no address.
const ownerKey = "steelyard.dev/owner"

// A Lease keeps the lease on the queue in an object of the group coordination.k8s.io. The API server decides between
// two who write at the same time, by the object's version; that it has run out, each replica finds by its own clock:
// the object has not changed for lease.TTL. Times in it are for people only. It is a lease.Store.
type Lease struct {
	api             rest.Interface
	namespace, name string
	requested       func(resource, verb, result string)

	seen  *coordination.Lease // the latest that is known; nil for none
	since time.Time           // when that version was first seen
}

// Lease makes the lease of a name, in the namespace of this process.
func (c *Client) Lease(name string) *Lease {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leased = true
	return &Lease{api: c.coordination, namespace: c.namespace, name: name, requested: c.requested}
}

// Hold implements lease.Store.
func (l *Lease) Hold(ctx context.Context, self lease.Record, floor uint64) (lease.Record, error) {
	if !l.holds(self) { // otherwise what is known is what this replica wrote
		if err := l.look(ctx); err != nil {
			return lease.Record{}, err
		}
	}
	next := self
	if l.seen != nil && !l.holds(self) && !l.free(time.Now()) {
		if next = ownerOf(l.seen); next.Epoch >= floor {
			return next, nil
		}
	}
	owner, err := l.write(ctx, next, floor)
	if err != nil {
		l.seen = nil // it may have been written or not, by this replica or by another: the next question looks
		return lease.Record{}, err
	}
	return owner, nil
}

func (l *Lease) holds(self lease.Record) bool { return l.seen != nil && ownerOf(l.seen).ID == self.ID }

func (l *Lease) free(now time.Time) bool {
	return ownerOf(l.seen).ID == "" || now.Sub(l.since) >= lease.TTL
}

// look reads the object.
func (l *Lease) look(ctx context.Context) error {
	found := &coordination.Lease{}
	err := l.api.Get().Namespace(l.namespace).Resource("leases").Name(l.name).Do(ctx).Into(found)
	l.requested("leases", "get", resultOf(err))
	switch {
	case apierrors.IsNotFound(err):
		l.seen = nil
	case err != nil:
		return l.explain("get", err)
	case l.seen == nil || l.seen.ResourceVersion != found.ResourceVersion:
		l.seen, l.since = found, time.Now()
	}
	return nil
}

// write makes a replica the owner, with an epoch that is not below floor, unless the object has changed since it was
// read. An owner that it finds with a higher epoch than it wrote asks again: its own version has changed.
func (l *Lease) write(ctx context.Context, owner lease.Record, floor uint64) (lease.Record, error) {
	next := &coordination.Lease{ObjectMeta: meta.ObjectMeta{Namespace: l.namespace, Name: l.name}}
	if l.seen != nil {
		next = l.seen.DeepCopy()
	}
	now, before := meta.NowMicro(), ownerOf(next)
	if owner.Epoch = before.Epoch; before.ID != owner.ID || before.Epoch < floor {
		owner.Epoch = max(before.Epoch, floor) + 1
		next.Spec.AcquireTime = &now
	}
	if owner.Epoch > lease.MaxEpoch {
		return lease.Record{}, fmt.Errorf("the Lease %s in namespace %s has reached the highest epoch: delete it, and "+
			"restart all replicas", l.name, l.namespace)
	}
	meta.SetMetaDataAnnotation(&next.ObjectMeta, ownerKey, owner.Text())
	transitions, seconds := int32(owner.Epoch), int32((lease.TTL+time.Second-1)/time.Second)
	next.Spec.HolderIdentity, next.Spec.LeaseTransitions = &owner.Name, &transitions
	next.Spec.LeaseDurationSeconds, next.Spec.RenewTime = &seconds, &now
	r, verb := l.api.Put().Name(l.name), "update"
	if l.seen == nil {
		r, verb = l.api.Post(), "create"
	}
	written := &coordination.Lease{}
	err := r.Namespace(l.namespace).Resource("leases").Body(next).Do(ctx).Into(written)
	l.requested("leases", verb, resultOf(err))
	if err != nil {
		return lease.Record{}, l.explain(verb, err)
	}
	l.seen, l.since = written, time.Now()
	return owner, nil
}

// Release implements lease.Store.
func (l *Lease) Release(ctx context.Context, self lease.Record) error {
	if !l.holds(self) {
		return nil
	}
	next := l.seen.DeepCopy()
	delete(next.Annotations, ownerKey)
	next.Spec.HolderIdentity = nil
	err := l.api.Put().Namespace(l.namespace).Resource("leases").Name(l.name).Body(next).Do(ctx).Error()
	l.requested("leases", "update", resultOf(err))
	l.seen = nil
	return err
}

// Close does nothing: the client is not the lease's.
func (l *Lease) Close() {}

// ownerOf returns the owner that an object names; without an ID if it names none.
func ownerOf(l *coordination.Lease) lease.Record {
	epoch := uint64(0)
	if t := l.Spec.LeaseTransitions; t != nil && *t > 0 {
		epoch = uint64(*t)
	}
	r, err := lease.Parse(l.Annotations[ownerKey], epoch)
	if err != nil { // another program wrote it
		return lease.Record{Epoch: epoch}
	}
	return r
}

func (l *Lease) explain(verb string, err error) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("Steelyard may not %s leases in namespace %s, so no replica grants places: give its service "+
			"account a Role there with the verbs get, create and update on leases.coordination.k8s.io: %w", verb,
			l.namespace, err)
	}
	return fmt.Errorf("cannot %s the Lease %s in namespace %s: %w", verb, l.name, l.namespace, err)
}
