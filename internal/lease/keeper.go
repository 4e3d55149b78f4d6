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

// farewell bounds the release of a lease.
const farewell = 200 * time.Millisecond

// rest is how long an owner that gave up its lease leaves it to others, and pride for how long it then keeps it: should
// nobody have taken it, it is not to give it up again and again.
const rest, pride = time.Second, time.Minute

// A Store keeps the lease.
type Store interface {
	// Hold renews the lease of self, or takes it where nobody has it, and returns who has it. Its epoch is above floor
	// and above all before: where another replica has it with a lower one, that replica has a higher one from now on.
	// Self's own epoch does not count.
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
	// Blind says why another replica may act better than this one; empty: none does. It is set before Run, and called
	// without a lock.
	Blind func() string

	self    Record
	store   Store
	changed func(State)
	log     *slog.Logger

	mu    sync.Mutex
	claim *Claim
	err   error
	gives string    // why the lease is to be given up; empty: it is not
	gave  time.Time // when it was last given up
}

// NewKeeper makes a keeper for a replica. Run starts it. changed is called after each answer of the store, under a
// lock, and must not block.
func NewKeeper(self Record, store Store, changed func(State), log *slog.Logger) *Keeper {
	return &Keeper{self: self, store: store, changed: changed, log: log, claim: NewClaim(self.ID),
		Blind: func() string { return "" }}
}

// Run asks until ctx is done, and then releases the lease.
func (k *Keeper) Run(ctx context.Context) error {
	k.ask(ctx)
	loops.Every(ctx, Every, func(now time.Time) { k.step(ctx, now) })
	k.release(context.WithoutCancel(ctx))
	return nil
}

// step asks, unless the lease is given up, or was a moment ago.
func (k *Keeper) step(ctx context.Context, now time.Time) {
	k.mu.Lock()
	why, rests := k.gives, now.Sub(k.gave) < rest
	if k.gives = ""; why != "" {
		k.gave = now
	}
	k.mu.Unlock()
	switch {
	case why != "":
		k.log.Warn("the lease is given up: another replica can act, and this one lacks what it needs", "reason", why)
		k.release(ctx)
	case !rests:
		k.ask(ctx)
	}
}

// release ends the term of this replica, and then frees the lease if it has it.
func (k *Keeper) release(ctx context.Context) {
	k.mu.Lock()
	has := k.claim.owner.ID == k.self.ID
	k.claim.End(time.Now())
	k.changed(k.state())
	k.mu.Unlock()
	if !has {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, farewell)
	defer cancel()
	if err := k.store.Release(ctx, k.self); err != nil {
		k.log.Debug("the lease was not released", "error", err)
	}
}

// ask asks the store once.
func (k *Keeper) ask(ctx context.Context) {
	asked := time.Now()
	k.mu.Lock()
	floor := k.claim.Asks(asked)
	k.mu.Unlock()
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	owner, err := k.store.Hold(limited, k.self, floor)
	if ctx.Err() != nil {
		return
	}
	k.mu.Lock()
	failed := k.err == nil && err != nil
	k.err = err
	changed := err == nil && k.claim.Answered(asked, time.Now(), owner)
	k.changed(k.state())
	k.mu.Unlock()
	switch {
	case failed:
		k.log.Warn("the lease cannot be renewed or read", "error", err)
	case changed:
		k.report(owner)
	}
}

// Told takes in a replica that has told this one that it is the owner; or, with the epoch of this one, that it could
// be. An owner that is blind takes that offer: it gives the lease up.
func (k *Keeper) Told(r Record) {
	if blind := k.Blind(); k.told(r, blind) {
		k.report(r)
	}
}

// told reports whether the owner is a new one.
func (k *Keeper) told(r Record, blind string) (changed bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	if k.claim.Offered(r) && (k.gave.IsZero() || now.Sub(k.gave) > pride) {
		k.gives = blind
	}
	if changed = k.claim.Told(now, r); changed {
		k.changed(k.state())
	}
	return changed
}

// Offer is this replica's record, and whether it could act, as far as it knows.
func (k *Keeper) Offer() (self Record, able bool) {
	return k.self, k.Err() == nil && k.Blind() == ""
}

// Floor is the highest epoch that was seen, and Rise takes in one that was seen by another keeper.
func (k *Keeper) Floor() uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.claim.Floor()
}

// Rise is explained at Floor.
func (k *Keeper) Rise(epoch uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.claim.Rise(epoch)
}

// Err is why the store does not answer; nil while it does.
func (k *Keeper) Err() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.err
}

func (k *Keeper) report(o Record) {
	k.log.Info("the lease has an owner", "owner", o.Name, "address", o.Address, "epoch", o.Epoch,
		"this_replica", o.ID == k.self.ID)
}

func (k *Keeper) state() State {
	c := k.claim
	return State{Owner: c.owner, Before: c.before, Mine: c.owner.ID == k.self.ID, Until: c.until, Since: c.since}
}
