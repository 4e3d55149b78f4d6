package override

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"steelyard/internal/api"
)

// The bounds of overrides.
const (
	Shortest = time.Second
	Longest  = 7 * 24 * time.Hour // a longer one belongs in the configuration
	Most     = 1000               // of a process

	LeastShare = 0.0001
	MostShare  = 0.99

	longestReason = 200 // bytes
)

// A key is what an override is about. An endpoint has at most one.
type key struct{ cluster, address string }

// A Registry holds the overrides of a process. Its methods can be called from any goroutine.
type Registry struct {
	changed func(cluster string) // without the lock

	mu      sync.Mutex
	all     map[key]api.Override
	removed map[key]bool // removed here, but not yet from the store
}

// New returns a Registry without overrides. changed is called whenever those of a cluster have changed.
func New(changed func(cluster string)) *Registry {
	return &Registry{changed: changed, all: make(map[key]api.Override), removed: make(map[key]bool)}
}

// Check returns what is wrong with an override by itself.
func Check(o api.Override) error {
	length := o.Until.Sub(o.Since.Time)
	share, known := o.Share.Value()
	switch {
	case o.Kind != api.OverrideDrain && o.Kind != api.OverridePin:
		return fmt.Errorf("kind %q: write %s or %s", o.Kind, api.OverrideDrain, api.OverridePin)
	case o.Kind == api.OverrideDrain && known:
		return errors.New("share: a drained endpoint gets nothing; leave it out, or pin the endpoint")
	case o.Kind == api.OverridePin && !(known && share >= LeastShare && share <= MostShare):
		return fmt.Errorf("share: write the part of the requests, %v to %v", LeastShare, MostShare)
	case length < Shortest || length > Longest:
		return fmt.Errorf("an override ends after %v: write %v to %v", length, Shortest, Longest)
	case len(o.Reason) > longestReason || strings.ContainsFunc(o.Reason, func(r rune) bool { return r < ' ' }):
		return fmt.Errorf("reason: write at most %d bytes, in one line", longestReason)
	}
	return nil
}

// Put adds an override, in place of the one that its endpoint has.
func (b *Registry) Put(o api.Override) error {
	if err := Check(o); err != nil {
		return err
	}
	k := key{o.Cluster, o.Address}
	b.mu.Lock()
	if _, there := b.all[k]; !there && len(b.all) >= Most {
		b.mu.Unlock()
		return fmt.Errorf("there are %d overrides already: remove some", Most)
	}
	o.Kept = false
	o.Since, o.Until = api.At(o.Since.Round(0)), api.At(o.Until.Round(0)) // as they come back from a store
	b.all[k] = o
	delete(b.removed, k)
	b.mu.Unlock()
	b.changed(o.Cluster)
	return nil
}

// Remove removes the override of an endpoint. ok is false if there is none.
func (b *Registry) Remove(cluster, address string) (o api.Override, ok bool) {
	k := key{cluster, address}
	b.mu.Lock()
	if o, ok = b.all[k]; ok {
		delete(b.all, k)
		b.removed[k] = true
	}
	b.mu.Unlock()
	if ok {
		b.changed(cluster)
	}
	return o, ok
}

// Of returns the overrides of a cluster that have not ended, by address; nil for none.
func (b *Registry) Of(cluster string, now time.Time) map[string]api.Override {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out map[string]api.Override
	for k, o := range b.all {
		if k.cluster == cluster && now.Before(o.Until.Time) {
			if out == nil {
				out = make(map[string]api.Override)
			}
			out[k.address] = o
		}
	}
	return out
}

// All returns the overrides that have not ended, sorted by cluster and address.
func (b *Registry) All(now time.Time) []api.Override {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]api.Override, 0, len(b.all))
	for _, o := range b.all {
		if now.Before(o.Until.Time) {
			out = append(out, o)
		}
	}
	slices.SortFunc(out, func(x, y api.Override) int {
		return cmp.Or(strings.Compare(x.Cluster, y.Cluster), strings.Compare(x.Address, y.Address))
	})
	return out
}

// Expire removes the overrides that have ended, and returns them.
func (b *Registry) Expire(now time.Time) []api.Override {
	b.mu.Lock()
	var ended []api.Override
	for k, o := range b.all {
		if !now.Before(o.Until.Time) {
			ended = append(ended, o)
			delete(b.all, k)
			b.removed[k] = true
		}
	}
	b.mu.Unlock()
	for _, o := range ended {
		b.changed(o.Cluster)
	}
	return ended
}

// A Store keeps texts by name, such as a hash in Redis.
type Store interface {
	Load(ctx context.Context) (map[string]string, error)
	Save(ctx context.Context, name, text string) error
	Delete(ctx context.Context, name string) error
}

// written is in every Store that overrides were written to, also when all are removed: without it the Store lost them.
const written = "written"

// name is the name of an override in a Store. Neither a cluster nor an address has white space in it.
func (k key) name() string { return k.cluster + " " + k.address }

// Sync brings the Registry and the store in line: what changed here is written, what others changed is taken over. It
// returns what others added and removed.
func (b *Registry) Sync(ctx context.Context, s Store, now time.Time) (added, removed []api.Override, err error) {
	if err := b.write(ctx, s); err != nil {
		return nil, nil, err
	}
	texts, err := s.Load(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("reading overrides: %w", err)
	}
	if _, ok := texts[written]; !ok {
		b.writeAgain()
	}
	there := make(map[key]api.Override)
	for name, text := range texts {
		var o api.Override
		if json.Unmarshal([]byte(text), &o) != nil || Check(o) != nil || (key{o.Cluster, o.Address}).name() != name {
			continue // of another version, or no override at all
		}
		if now.Before(o.Until.Time) {
			o.Kept = true
			there[key{o.Cluster, o.Address}] = o
		}
	}
	added, removed = b.replace(there)
	changed := make(map[string]bool)
	for _, o := range slices.Concat(added, removed) {
		changed[o.Cluster] = true
	}
	for cluster := range changed {
		b.changed(cluster)
	}
	return added, removed, nil
}

// write writes what changed here.
func (b *Registry) write(ctx context.Context, s Store) error {
	b.mu.Lock()
	fresh := maps.Clone(b.all)
	gone := maps.Clone(b.removed)
	b.mu.Unlock()
	for k := range gone {
		if err := s.Delete(ctx, k.name()); err != nil {
			return fmt.Errorf("removing an override: %w", err)
		}
		b.mu.Lock()
		delete(b.removed, k)
		b.mu.Unlock()
	}
	saved := false
	for k, o := range fresh {
		if o.Kept {
			continue
		}
		saved = true
		text, err := json.Marshal(o)
		if err != nil {
			return fmt.Errorf("keeping an override: %w", err)
		}
		if err := s.Save(ctx, k.name(), string(text)); err != nil {
			return fmt.Errorf("keeping an override: %w", err)
		}
		b.mu.Lock()
		if current, ok := b.all[k]; ok && current == o {
			current.Kept = true
			b.all[k] = current
		}
		b.mu.Unlock()
	}
	if !saved {
		return nil
	}
	if err := s.Save(ctx, written, "yes"); err != nil { // last: others take what is missing next to it to be removed
		return fmt.Errorf("keeping overrides: %w", err)
	}
	return nil
}

// writeAgain has the next Sync write every override: the store was emptied, which removes none.
func (b *Registry) writeAgain() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for k, o := range b.all {
		o.Kept = false
		b.all[k] = o
	}
}

// replace takes over what is in the store: what was written, and is not in it any more, was removed by others.
func (b *Registry) replace(there map[key]api.Override) (added, removed []api.Override) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for k, o := range b.all {
		if _, ok := there[k]; !ok && o.Kept {
			removed = append(removed, o)
			delete(b.all, k)
		}
	}
	for k, o := range there {
		current, ok := b.all[k]
		if b.removed[k] || ok && (!current.Kept || current == o) || !ok && len(b.all) >= Most {
			continue
		}
		b.all[k] = o
		added = append(added, o)
	}
	return added, removed
}
