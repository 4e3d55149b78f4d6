package lease_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"steelyard/e2e/rig/leasetest"
	"steelyard/internal/lease"
)

// A shop is a store whose answers come late or not at all.
type shop struct {
	leasetest.Memory

	mu       sync.Mutex
	late     time.Duration // of each answer; the store has acted at once
	lost     bool          // the store acts, and no answer comes
	away     bool          // no question comes to the store
	released int
}

func (s *shop) Hold(ctx context.Context, self lease.Record, floor uint64) (owner lease.Record, err error) {
	s.mu.Lock()
	late, lost, away := s.late, s.lost, s.away
	s.mu.Unlock()
	if !away {
		owner, err = s.Memory.Hold(ctx, self, floor)
	}
	if lost || away {
		late = time.Hour
	}
	select {
	case <-ctx.Done():
		return lease.Record{}, ctx.Err()
	case <-time.After(late):
		return owner, err
	}
}

func (s *shop) Release(ctx context.Context, self lease.Record) error {
	s.set(func(s *shop) { s.released++ })
	return s.Memory.Release(ctx, self)
}

func (s *shop) set(f func(*shop)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s)
}

// A follower notes the states that a keeper reports.
type follower struct {
	*lease.Keeper
	mu   sync.Mutex
	last lease.State
	stop context.CancelFunc
	done sync.WaitGroup
}

func keep(t *testing.T, id string, s lease.Store) *follower {
	t.Helper()
	f := &follower{}
	f.Keeper = lease.NewKeeper(lease.Record{ID: id, Name: id}, s, func(s lease.State) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.last = s
	}, slog.New(slog.DiscardHandler))
	return f
}

func (f *follower) run(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	f.stop = sync.OnceFunc(func() {
		cancel()
		f.done.Wait()
	})
	f.done.Go(func() { _ = f.Run(ctx) })
	t.Cleanup(f.stop)
}

func (f *follower) state() lease.State {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

// acts reports whether the replica acts now.
func (f *follower) acts() bool {
	s := f.state()
	return s.Mine && time.Now().Before(s.Until)
}

func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// TestAnAnswerThatIsLateDoesNotLengthenTheTerm: it counts from the question.
func TestAnAnswerThatIsLateDoesNotLengthenTheTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shop{late: 200 * time.Millisecond}
		k := keep(t, "a", s)
		k.run(t)
		pass(210 * time.Millisecond)
		if until := time.Until(k.state().Until); !k.acts() || until > lease.Term-210*time.Millisecond {
			t.Errorf("it acts for %v more", until)
		}
		pass(time.Second)
		for range 50 {
			if pass(100 * time.Millisecond); !k.acts() {
				t.Fatal("it stops, though each answer comes within its term")
			}
		}
	})
}

// TestAnOwnerWhoseAnswersAreLostStopsBeforeAnotherMayHaveTheLease, though the store renews it.
func TestAnOwnerWhoseAnswersAreLostStopsBeforeAnotherMayHaveTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shop{}
		a, b := keep(t, "a", s), keep(t, "b", s)
		a.run(t)
		pass(time.Millisecond)
		b.run(t)
		pass(time.Second)
		if !a.acts() || b.acts() || b.state().Owner.ID != "a" {
			t.Fatalf("the owners are %+v and %+v", a.state(), b.state())
		}
		s.set(func(s *shop) { s.away = true })
		pass(lease.Term)
		if a.acts() || a.Err() == nil {
			t.Errorf("without answers it acts, or there is no error: %v", a.Err())
		}
		s.set(func(s *shop) { s.away, s.lost = false, true })
		pass(time.Second)
		s.set(func(s *shop) { s.lost = false })
		for range 100 {
			pass(20 * time.Millisecond)
			if a.acts() && b.acts() {
				t.Fatal("two replicas act")
			}
		}
		if !a.acts() && !b.acts() {
			t.Error("none acts")
		}
	})
}

// TestABlindOwnerGivesTheLeaseToOneThatOffers, once, and keeps it if nobody takes it.
func TestABlindOwnerGivesTheLeaseToOneThatOffers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shop{}
		a, b := keep(t, "a", s), keep(t, "b", s)
		why := ""
		a.Blind = func() string { return why } // changed while nothing else runs
		a.run(t)
		pass(time.Millisecond)
		b.run(t)
		offer := func() {
			self, able := b.Offer()
			if self.Epoch = a.state().Owner.Epoch; !able {
				t.Error("it could not act")
			}
			a.Told(self)
		}
		offer()
		pass(time.Second)
		if !a.acts() || s.released > 0 {
			t.Fatal("an owner gives its lease up that sees everything")
		}
		why = "discovery fails"
		pass(5 * time.Second)
		if _, able := a.Offer(); !a.acts() || able {
			t.Fatal("an owner gives its lease up though nobody else wants it, or would take another's")
		}
		offer()
		for range 30 {
			pass(10 * time.Millisecond)
			if a.acts() && b.acts() {
				t.Fatal("two replicas act")
			}
		}
		if !b.acts() || b.state().Owner.Epoch != 2 {
			t.Fatalf("after its offer, b has %+v", b.state())
		}
		b.stop()
		pass(2 * time.Second)
		if !a.acts() || a.state().Owner.Epoch != 3 {
			t.Fatalf("without another, a has %+v", a.state())
		}
		offer()
		pass(time.Second)
		if !a.acts() || s.released != 2 {
			t.Error("an owner gives its lease up again within a minute")
		}
	})
}

// TestEpochsGoOnRising where the store has lost its own, and from one store to the next.
func TestEpochsGoOnRising(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shop{}
		s.Set(lease.Record{}, 40)
		a, b := keep(t, "a", s), keep(t, "b", s)
		a.run(t)
		pass(time.Millisecond)
		b.run(t)
		pass(time.Second)
		s.Lose()
		pass(time.Second)
		owner := a.state().Owner
		if owner.Epoch != 42 || b.state().Owner != owner {
			t.Errorf("after a loss the owner is %+v, and to b %+v", owner, b.state().Owner)
		}
		b.stop()
		next := &shop{}
		next.Set(lease.Record{ID: "c"}, 3)
		c := keep(t, "b", next)
		c.Rise(b.Floor())
		c.run(t)
		pass(lease.TTL / 2)
		if got := c.state().Owner; got.ID != "c" || got.Epoch != 43 {
			t.Errorf("in another store the owner is %+v, want the one there, with an epoch above 42", got)
		}
	})
}

// TestAStoreThatFailsIsAnErrorUntilItAnswers, and a replica that stops frees the lease.
func TestAStoreThatFailsIsAnErrorUntilItAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shop{away: true}
		k := keep(t, "a", s)
		k.run(t)
		pass(time.Second)
		if !errors.Is(k.Err(), context.DeadlineExceeded) || k.acts() {
			t.Errorf("the error is %v", k.Err())
		}
		s.set(func(s *shop) { s.away = false })
		pass(time.Second)
		if k.Err() != nil || !k.acts() {
			t.Errorf("the error stays: %v", k.Err())
		}
		k.stop()
		if k.acts() || s.released != 1 {
			t.Error("a replica that stops keeps the lease")
		}
	})
}

// TestTwoHalvesOfAStoreDoNotTakeTheLeaseFromEachOtherAllTheTime: each has an owner, which tells the other one, as after
// a Redis that has come apart. One acts at a time, for long enough to grant places.
func TestTwoHalvesOfAStoreDoNotTakeTheLeaseFromEachOtherAllTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, half := &shop{}, &shop{}
		a, b := keep(t, "a", s), keep(t, "b", half)
		a.run(t)
		pass(time.Second)
		half.Set(lease.Record{ID: "a"}, 1) // which is not renewed there
		b.run(t)
		var owner string
		var changes int
		var least, since = time.Hour, time.Now()
		for end := time.Now().Add(time.Minute); time.Now().Before(end); pass(10 * time.Millisecond) {
			for from, to := range map[*follower]*follower{a: b, b: a} {
				if o := from.state(); o.Mine && o.Owner.Epoch > to.state().Owner.Epoch {
					to.Told(o.Owner)
				}
			}
			if a.acts() && b.acts() {
				t.Fatal("both act")
			}
			if o := a.state().Owner.ID; o != owner {
				if changes++; changes > 2 {
					least = min(least, time.Since(since))
				}
				owner, since = o, time.Now()
			}
		}
		if changes < 3 || least < 2*time.Second {
			t.Errorf("the owner changes %d times, the first time after %v; want time to grant places", changes, least)
		}
	})
}
