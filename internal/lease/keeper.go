package lease

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"steelyard/internal/loops"
)

// patience bounds one question to the store: after it, there is time for one more in the Term.
const patience = 2 * Every

// farewell bounds the release of a lease when the process stops.
const farewell = 200 * time.Millisecond

// A Store keeps the lease.
type Store interface {
	// Hold renews the lease of self, or takes it where nobody has it, with an epoch above floor and above all before.
	// It returns who has it, which is another replica where the lease is not free. Self's own epoch does not count.
	Hold(ctx context.Context, self Record, floor uint64) (owner Record, err error)
	// Release frees the lease if self has it.
	Release(ctx context.Context, self Record) error
}

// A State is what a replica knows of the lease at a moment.
type State struct {
	Owner  Record // the zero Record: not known yet
	Before Record // the owner before
	Mine   bool   // the owner is this replica, which acts before Until, or for ever where that is zero
	Until  time.Time
	Since  time.Time // when this replica first knew of the owner
}

// A Keeper asks the store again and again.
type Keeper struct {
	self    Record
	store   Store
	changed func(State)
	log     *slog.Logger

	mu    sync.Mutex
	claim *Claim
	err   error
}

// NewKeeper makes a keeper for a replica. Run starts it. changed is called after each answer of the store, under a
// lock, and must not block.
func NewKeeper(self Record, store Store, changed func(State), log *slog.Logger) *Keeper {
	return &Keeper{self: self, store: store, changed: changed, log: log, claim: NewClaim(self.ID)}
}

// Run asks until ctx is done, and then releases the lease.
func (k *Keeper) Run(ctx context.Context) error {
	k.ask(ctx)
	loops.Every(ctx, Every, func(time.Time) { k.ask(ctx) })
	k.mu.Lock()
	has := k.claim.owner.ID == k.self.ID
	k.claim.until = time.Now()
	k.changed(k.state())
	k.mu.Unlock()
	if has {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
		defer cancel()
		if err := k.store.Release(ctx, k.self); err != nil {
			k.log.Debug("the lease was not released", "error", err)
		}
	}
	return nil
}

// ask asks the store once.
func (k *Keeper) ask(ctx context.Context) {
	k.mu.Lock()
	floor := k.claim.Floor()
	k.mu.Unlock()
	asked := time.Now()
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	owner, err := k.store.Hold(limited, k.self, floor)
	if ctx.Err() != nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	failed := k.err == nil && err != nil
	k.err = err
	changed := err == nil && k.claim.Answered(asked, time.Now(), owner)
	if failed || changed {
		k.report()
	}
	k.changed(k.state())
}

// Told takes in a new owner that has told this replica so.
func (k *Keeper) Told(owner Record) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.claim.Told(time.Now(), owner) {
		k.report()
		k.changed(k.state())
	}
}

// Err is why the store does not answer; nil while it does.
func (k *Keeper) Err() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.err
}

func (k *Keeper) report() {
	if k.err != nil {
		k.log.Warn("the lease cannot be renewed or read", "error", k.err)
		return
	}
	o := k.claim.owner
	k.log.Info("the lease has an owner", "owner", o.Name, "address", o.Address, "epoch", o.Epoch,
		"this_replica", o.ID == k.self.ID)
}

func (k *Keeper) state() State {
	c := k.claim
	return State{Owner: c.owner, Before: c.before, Mine: c.owner.ID == k.self.ID, Until: c.until, Since: c.since}
}
