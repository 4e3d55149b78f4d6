package leasetest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"steelyard/internal/lease"
)

// A Shelf is where replicas keep one lease.
type Shelf struct {
	// Store is the store of one more replica.
	Store func() lease.Store
	// Lose has the shelf lose all that it has.
	Lose func()
}

// patience bounds what a real store takes for an answer on a busy machine.
const patience = 20 * time.Second

// A party is a replica with its store.
type party struct {
	lease.Record
	store lease.Store
}

func (s Shelf) party(name string) *party {
	return &party{lease.Record{ID: name, Name: "replica " + name, Address: "10.0.0.1:18000"}, s.Store()}
}

// fataler is a test, or a check of rapid.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// hold asks until there is an answer: a store may refuse a question, because another replica wrote at the same time.
func (p *party) hold(t fataler, floor uint64) lease.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		owner, err := p.store.Hold(ctx, p.Record, floor)
		if err == nil {
			return owner
		}
		if ctx.Err() != nil {
			t.Fatalf("%s has no answer: %v", p.ID, err)
		}
	}
}

// with is the record as an owner with an epoch.
func (p *party) with(epoch uint64) lease.Record {
	r := p.Record
	r.Epoch = epoch
	return r
}

// Contract tests what lease.Store promises.
func Contract(t *testing.T, s Shelf) {
	for name, test := range map[string]func(*testing.T, Shelf){
		"the first one has it":                    firstHasIt,
		"one that does not renew it loses it":     losesIt,
		"one that releases it loses it":           releasesIt,
		"epochs rise above all that were seen":    epochsRise,
		"one of many that ask at once has it":     oneOfMany,
		"it is what the store in memory is":       sameAsMemory,
		"a question ends with its context":        endsWithContext,
		"the longest text of an owner comes back": longText,
	} {
		t.Run(name, func(t *testing.T) {
			s.Lose()
			test(t, s)
		})
	}
}

func firstHasIt(t *testing.T, s Shelf) {
	a, b := s.party("a"), s.party("b")
	for range 3 {
		for _, p := range []*party{a, b} {
			if got := p.hold(t, 0); got != a.with(1) {
				t.Fatalf("%s hears that the owner is %+v, want %+v", p.ID, got, a.with(1))
			}
		}
	}
}

func losesIt(t *testing.T, s Shelf) {
	a, b := s.party("a"), s.party("b")
	asked := time.Now()
	a.hold(t, 0)
	for {
		got := b.hold(t, 0)
		passed := time.Since(asked)
		if got.ID == "b" {
			if passed < lease.TTL {
				t.Errorf("it is lost after %v, want %v", passed, lease.TTL)
			}
			if want := b.with(2); got != want || a.hold(t, 0) != want {
				t.Errorf("the next owner is %+v, want %+v", got, want)
			}
			return
		}
		if passed > patience {
			t.Fatalf("after %v the owner is %+v", passed, got)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func releasesIt(t *testing.T, s Shelf) {
	a, b := s.party("a"), s.party("b")
	a.hold(t, 0)
	b.hold(t, 0)
	if err := b.store.Release(t.Context(), b.Record); err != nil {
		t.Errorf("one that does not have it: %v", err)
	}
	if got := b.hold(t, 0); got != a.with(1) {
		t.Errorf("another one has released it: %+v", got)
	}
	if err := a.store.Release(t.Context(), a.Record); err != nil {
		t.Fatal(err)
	}
	if got := b.hold(t, 0); got != b.with(2) {
		t.Errorf("after its release the owner is %+v, want %+v", got, b.with(2))
	}
}

func epochsRise(t *testing.T, s Shelf) {
	a, b := s.party("a"), s.party("b")
	a.hold(t, 0)
	for _, p := range []*party{b, a} {
		if got := p.hold(t, 40); got != a.with(41) {
			t.Errorf("%s has seen epoch 40, and hears that the owner is %+v", p.ID, got)
		}
	}
	s.Lose()
	if got := b.hold(t, 41); got != b.with(42) {
		t.Errorf("after a loss the owner is %+v, want %+v", got, b.with(42))
	}
	s.Lose()
	c := s.party("c")
	c.hold(t, 0) // it has just started, and has seen nothing
	if got := b.hold(t, 42); got != c.with(43) {
		t.Errorf("after a loss the owner is %+v, want %+v", got, c.with(43))
	}
	if _, err := b.store.Hold(t.Context(), b.Record, lease.MaxEpoch); err == nil {
		t.Error("there is an epoch above the highest")
	}
}

func oneOfMany(t *testing.T, s Shelf) {
	var asking sync.WaitGroup
	answers := make(chan lease.Record, 8)
	for i := range cap(answers) {
		p := s.party(fmt.Sprint(i))
		asking.Go(func() { answers <- p.hold(t, 0) })
	}
	asking.Wait()
	first := <-answers
	for range cap(answers) - 1 {
		if got := <-answers; got != first {
			t.Errorf("one hears of the owner %+v, another one of %+v", first, got)
		}
	}
}

func endsWithContext(t *testing.T, s Shelf) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if p := s.party("a"); s.real() {
		if owner, err := p.store.Hold(ctx, p.Record, 0); err == nil {
			t.Errorf("the owner is %+v", owner)
		}
	}
}

// real reports whether the shelf is not the one in memory.
func (s Shelf) real() bool {
	_, memory := s.Store().(*Memory)
	return !memory
}

func longText(t *testing.T, s Shelf) {
	p := s.party("a")
	for range 253 {
		p.Address = "a" + p.Address
	}
	if got := p.hold(t, 0); got != p.with(1) {
		t.Errorf("it comes back as %+v", got)
	}
}

// sameAsMemory compares with the store in memory, in any order of questions, releases and losses. That a lease ends is
// left to another test: whether it has ended when a question comes, a test does not know.
func sameAsMemory(t *testing.T, s Shelf) {
	rapid.Check(t, func(t *rapid.T) {
		s.Lose()
		model, now := &Memory{}, time.Now()
		model.Now = func() time.Time { return now }
		parties := []*party{s.party("a"), s.party("b"), s.party("c")}
		renewed := now
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			p := rapid.SampledFrom(parties).Draw(t, "replica")
			floor := rapid.Uint64Range(0, 8).Draw(t, "floor")
			got := p.hold(t, floor)
			if time.Since(renewed) > lease.TTL/2 {
				t.Skip("the machine is too busy")
			}
			want, _ := model.Hold(t.Context(), p.Record, floor)
			if got != want {
				t.Fatalf("%s, with a floor of %d, hears of the owner %+v, want %+v", p.ID, floor, got, want)
			}
			owner := parties[got.ID[0]-'a']
			switch rapid.SampledFrom([]string{"", "", "release", "lose"}).Draw(t, "then") {
			case "release":
				owner.hold(t, 0) // as an owner does
				if err := owner.store.Release(t.Context(), owner.Record); err != nil {
					t.Fatalf("releasing: %v", err)
				}
				_ = model.Release(t.Context(), owner.Record)
			case "lose":
				s.Lose()
				model.Lose()
			default:
				owner.hold(t, 0)
			}
			renewed = time.Now()
		}
	})
}
