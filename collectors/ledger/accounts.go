package ledger

import "math/bits"

// accounts are those of one Envoy, found by slot: an open-addressed hash table with linear
// probing. Its size goes by the accounts that are in it and not by the slots that exist, for an Envoy
// uses a few of the clusters, and whoever makes up a node may name one endpoint of thousands.
type accounts struct {
	places []*account // a power of two of them; at most three quarters are taken
	taken  int        // with those of removed accounts
	held   int        // accounts
}

// removed stands where an account was, because a search ends at the first empty place.
var removed = &account{}

// Slots with numbers that follow one another stand in one block, which is a cache line of
// places: a report goes through them in that order.
const (
	block     = 8
	blockBits = 3
)

// home is the place where a slot's account stands if no other does.
func (t *accounts) home(s *slot) int {
	const golden = 0x9E3779B9 // 2^32 over the golden ratio: spreads numbers that follow one another
	blocks := len(t.places) / block
	hash := uint32(s.number>>blockBits) * golden
	return int(uint64(hash)*uint64(blocks)>>32)<<blockBits | s.number&(block-1)
}

// of returns the account with an endpoint, or nil.
func (t *accounts) of(s *slot) *account {
	if len(t.places) == 0 {
		return nil
	}
	for i := t.home(s); ; i = (i + 1) & (len(t.places) - 1) {
		if a := t.places[i]; a == nil || a.slot == s {
			return a
		}
	}
}

// add puts in an account that is not there yet.
func (t *accounts) add(a *account) {
	t.held++
	if 4*(t.taken+1) > 3*len(t.places) {
		t.resize()
	}
	t.put(a)
}

func (t *accounts) put(a *account) {
	i := t.home(a.slot)
	for t.places[i] != nil && t.places[i] != removed {
		i = (i + 1) & (len(t.places) - 1)
	}
	if t.places[i] == nil {
		t.taken++
	}
	t.places[i] = a
}

// remove takes an account out.
func (t *accounts) remove(a *account) {
	i := t.home(a.slot)
	for t.places[i] != a {
		i = (i + 1) & (len(t.places) - 1)
	}
	t.places[i] = removed
	if t.held--; 8*t.held < len(t.places) {
		t.resize()
	}
}

// resize makes the table fit the accounts, so that it is from three eighths to three quarters full.
func (t *accounts) resize() {
	before, size := t.places, 0
	if t.held > 0 {
		size = max(block, 1<<bits.Len(uint(4*t.held/3)))
	}
	t.places, t.taken = make([]*account, size), 0
	for _, a := range before {
		if a != nil && a != removed {
			t.put(a)
		}
	}
}

// each calls do for every account; do must not add or remove any.
func (t *accounts) each(do func(*account)) {
	for _, a := range t.places {
		if a != nil && a != removed {
			do(a)
		}
	}
}
