package override

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"steelyard/internal/api"
)

var noon = time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)

func drain(address string, length time.Duration) api.Override {
	return api.Override{Cluster: "llama", Address: address, Kind: api.OverrideDrain, Since: api.At(noon),
		Until: api.At(noon.Add(length)), By: "anna", Reason: "new driver"}
}

func pin(address string, share float64) api.Override {
	o := drain(address, time.Hour)
	o.Kind, o.Share = api.OverridePin, api.Num(share)
	return o
}

// A memory is a store that can fail.
type memory struct {
	texts map[string]string
	err   error
}

func (m *memory) Load(context.Context) (map[string]string, error) { return maps.Clone(m.texts), m.err }

func (m *memory) Save(_ context.Context, name, text string) error {
	if m.err == nil {
		m.texts[name] = text
	}
	return m.err
}

func (m *memory) Delete(_ context.Context, name string) error {
	if m.err == nil {
		delete(m.texts, name)
	}
	return m.err
}

func ignore(string) {}

func addresses(all []api.Override) string {
	var out []string
	for _, o := range all {
		out = append(out, o.Address)
	}
	return strings.Join(out, " ")
}

func TestAnOverrideEndsAtItsTimeOrWhenItIsRemoved(t *testing.T) {
	var changed []string
	b := New(func(cluster string) { changed = append(changed, cluster) })
	for _, o := range []api.Override{drain("b:1", time.Minute), drain("a:1", time.Hour), pin("b:1", 0.25)} {
		if err := b.Put(o); err != nil {
			t.Fatal(err)
		}
	}
	if got := b.Of("llama", noon); len(got) != 2 || got["b:1"].Kind != api.OverridePin {
		t.Errorf("%+v: the later one of an endpoint counts", got)
	}
	if got := b.Of("other", noon); got != nil {
		t.Errorf("of another cluster: %+v", got)
	}
	if _, ok := b.Remove("llama", "b:1"); !ok {
		t.Error("it was not there")
	}
	if _, ok := b.Remove("llama", "b:1"); ok {
		t.Error("it was there twice")
	}
	later := noon.Add(time.Hour)
	if got := b.All(later.Add(-1)); addresses(got) != "a:1" {
		t.Errorf("just before its end: %v", got)
	}
	if got := b.Of("llama", later); got != nil {
		t.Errorf("at its end: %v", got)
	}
	if got := b.Expire(later); addresses(got) != "a:1" || len(b.Expire(later)) != 0 {
		t.Errorf("ended: %v", got)
	}
	if got := strings.Join(changed, " "); got != "llama llama llama llama llama" {
		t.Errorf("changed %q", got)
	}
}

func TestWhatIsNoOverrideIsRefused(t *testing.T) {
	with := func(change func(*api.Override)) api.Override {
		o := pin("a:1", 0.5)
		change(&o)
		return o
	}
	for says, o := range map[string]api.Override{
		`kind "stop"`:                   with(func(o *api.Override) { o.Kind = "stop" }),
		"share: write":                  with(func(o *api.Override) { o.Share = api.Number{} }),
		"0.0001 to 0.99":                with(func(o *api.Override) { o.Share = api.Num(1) }),
		"share: a drained":              with(func(o *api.Override) { o.Kind = api.OverrideDrain }),
		"an override ends after 0s":     with(func(o *api.Override) { o.Until = o.Since }),
		"an override ends after 169h0m": with(func(o *api.Override) { o.Until = api.At(noon.Add(169 * time.Hour)) }),
		"reason: write at most":         with(func(o *api.Override) { o.Reason = "a\nb" }),
	} {
		if err := New(ignore).Put(o); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v, want %q", o, err, says)
		}
	}
}

func TestOverridesOutliveARestartInTheStore(t *testing.T) {
	s := &memory{texts: map[string]string{"garbage": "{", "llama x:1": `{"cluster": "llama"}`}}
	before := New(ignore)
	_ = before.Put(drain("a:1", time.Hour))
	_ = before.Put(pin("b:1", 0.25))
	if _, _, err := before.Sync(t.Context(), s, noon); err != nil {
		t.Fatal(err)
	}
	changed := 0
	after := New(func(string) { changed++ })
	added, removed, err := after.Sync(t.Context(), s, noon.Add(time.Minute))
	if err != nil || len(added) != 2 || len(removed) != 0 || changed != 1 {
		t.Errorf("%v, %v, %v, changed %d times", added, removed, err, changed)
	}
	want := []api.Override{drain("a:1", time.Hour), pin("b:1", 0.25)}
	want[0].Kept, want[1].Kept = true, true
	numbers := cmp.Comparer(func(a, b api.Number) bool { return a == b })
	if diff := cmp.Diff(want, after.All(noon), numbers); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, before.All(noon), numbers); diff != "" {
		t.Errorf("of the first (-want +got):\n%s", diff)
	}
}

// Two replicas with one store follow one another.
func TestReplicasTakeOverWhatTheOthersChange(t *testing.T) {
	s := &memory{texts: map[string]string{}}
	one, two := New(ignore), New(ignore)
	sync := func(b *Registry) (added, removed []api.Override) {
		t.Helper()
		added, removed, err := b.Sync(t.Context(), s, noon)
		if err != nil {
			t.Fatal(err)
		}
		return added, removed
	}
	_ = one.Put(drain("a:1", time.Hour))
	sync(one)
	if added, _ := sync(two); addresses(added) != "a:1" {
		t.Errorf("added %v", added)
	}
	if added, removed := sync(two); len(added)+len(removed) != 0 {
		t.Errorf("again: %v, %v", added, removed)
	}
	_, _ = two.Remove("llama", "a:1")
	sync(two)
	if _, removed := sync(one); addresses(removed) != "a:1" || len(one.All(noon)) != 0 {
		t.Errorf("removed %v, left %v", removed, one.All(noon))
	}
	_ = one.Put(drain("a:1", time.Hour))
	sync(one)
	sync(two)
	_ = two.Put(pin("a:1", 0.1)) // in place of the other's
	sync(two)
	sync(one)
	if got := one.Of("llama", noon)["a:1"]; got.Kind != api.OverridePin {
		t.Errorf("%+v", got)
	}
}

func TestOverridesWorkWhileTheStoreDoesNot(t *testing.T) {
	s := &memory{texts: map[string]string{}, err: errors.New("redis is away")}
	b := New(ignore)
	_ = b.Put(drain("a:1", time.Hour))
	if _, _, err := b.Sync(t.Context(), s, noon); err == nil || !strings.Contains(err.Error(), "redis is away") {
		t.Errorf("%v", err)
	}
	if got := b.All(noon); len(got) != 1 || got[0].Kept {
		t.Errorf("%+v", got)
	}
	s.err = nil
	if _, _, err := b.Sync(t.Context(), s, noon); err != nil || !b.All(noon)[0].Kept {
		t.Errorf("%v, %+v", err, b.All(noon))
	}
	_, _ = b.Remove("llama", "a:1")
	s.err = errors.New("away again")
	_, _, _ = b.Sync(t.Context(), s, noon)
	s.err = nil
	_, _, _ = b.Sync(t.Context(), s, noon)
	if delete(s.texts, written); len(s.texts) != 0 || len(b.All(noon)) != 0 {
		t.Errorf("removed while the store was away: %v, %v", s.texts, b.All(noon))
	}
}

// A store that was emptied, such as a Redis that restarts without a file or evicts the key, has removed nothing.
func TestOverridesOutliveALossOfTheStore(t *testing.T) {
	s := &memory{texts: map[string]string{}}
	one, two := New(ignore), New(ignore)
	sync := func(all ...*Registry) {
		t.Helper()
		for _, b := range all {
			if _, removed, err := b.Sync(t.Context(), s, noon); err != nil || len(removed) != 0 {
				t.Errorf("removed %v, %v", removed, err)
			}
		}
	}
	_ = one.Put(drain("a:1", time.Hour))
	_ = one.Put(drain("b:1", time.Hour))
	sync(one, two)
	_, _ = one.Remove("llama", "b:1")
	sync(one)
	_, _, _ = two.Sync(t.Context(), s, noon)
	clear(s.texts)
	sync(two, one, two, one)
	for _, b := range []*Registry{one, two} {
		if got := b.All(noon); addresses(got) != "a:1" || !got[0].Kept {
			t.Errorf("%+v", got)
		}
	}
	after := New(ignore)
	if added, _, _ := after.Sync(t.Context(), s, noon); addresses(added) != "a:1" {
		t.Errorf("a new process has %v", added)
	}
	_, _ = one.Remove("llama", "a:1")
	sync(one)
	if _, removed, _ := two.Sync(t.Context(), s, noon); addresses(removed) != "a:1" {
		t.Errorf("removed %v", removed)
	}
}
