package ledger

import "math/bits"

// accounts are those of one Envoy, found by slot: an open-addressed hash table with linear
// probing. Its size goes by the accounts that are in it and not by the slots that exist, for an Envoy
// uses a few of the clusters, and anybody who makes up a node may name one endpoint of thousands.
type accounts struct {
	places []*account // a power of two of them; at most three quarters are taken
	taken  int        // with those of removed accounts
	all    []*account // in the order in which they came, as a report goes through them; with removed ones
	held   int        // accounts
}

// removed stands where an account was, because a search ends at the first empty place.
var removed = &account{}

// An account stands at the place of its slot's number, or else at the first free one from a hash of it
// on: endpoints of a cluster, whose numbers follow one another, do so here, too, and a report
// goes through them in that order.
func (t *accounts) hash(s *slot) int {
	const golden = 0x9E3779B9 // 2^32 over the golden ratio: spreads numbers that follow one another
	return int(uint64(uint32(s.number)*golden) * uint64(len(t.places)) >> 32)
}

// of returns the account with an endpoint, or nil.
func (t *accounts) of(s *slot) *account {
	mask := len(t.places) - 1
	if mask < 0 {
		return nil
	}
	if a := t.places[s.number&mask]; a == nil || a.slot == s {
		return a
	}
	return t.places[t.search(s)]
}

// search finds the place of a slot's account other than that of its number, or the empty one where the
// search ends.
func (t *accounts) search(s *slot) int {
	mask := len(t.places) - 1
	i := t.hash(s)
	for a := t.places[i]; a != nil && a.slot != s; a = t.places[i] {
		i = (i + 1) & mask
	}
	return i
}

// add puts in an account that is not there yet.
func (t *accounts) add(a *account) {
	t.held++
	t.all = append(t.all, a)
	if 4*(t.taken+1) > 3*len(t.places) {
		t.fit()
	} else {
		t.put(a)
	}
}

func (t *accounts) put(a *account) {
	i := a.slot.number & (len(t.places) - 1)
	if t.places[i] != nil {
		i = t.search(a.slot)
	}
	t.places[i] = a
	t.taken++
}

// remove takes an account out.
func (t *accounts) remove(a *account) {
	i := a.slot.number & (len(t.places) - 1)
	if t.places[i] != a {
		i = t.search(a.slot)
	}
	t.places[i], a.removed = removed, true
	if t.held--; 2*t.held < len(t.all) {
		t.fit()
	}
}

// fit makes the table as large as the accounts need, from three eighths to three quarters full.
func (t *accounts) fit() {
	const least = 4
	all, size := make([]*account, 0, t.held), 0
	if t.held > 0 {
		size = max(least, 1<<bits.Len(uint(4*t.held/3)))
	}
	t.places, t.taken = make([]*account, size), 0
	for _, a := range t.all {
		if !a.removed {
			all = append(all, a)
			t.put(a)
		}
	}
	t.all = all
}

// each calls do for every account; do must not add or remove any.
func (t *accounts) each(do func(*account)) {
	for _, a := range t.all {
		if !a.removed {
			do(a)
		}
	}
}
