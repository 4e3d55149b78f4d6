package ledger

import "math/bits"

// accounts holds the accounts of one Envoy, by slot, in an open-addressed hash table with linear probing. Its size
// depends on the accounts in it and not on the slots that exist, because an Envoy uses a few of the clusters, and a
// client that invents a node may name one endpoint of thousands.
type accounts struct {
	places []*account // a power of two of them; at most three quarters are taken
	taken  int        // with those of removed accounts
	all    []*account // in the order in which they were added, for reports; with removed ones
	held   int        // accounts, without removed ones
}

// removed replaces an account that was removed, because a search ends at the first empty place.
var removed = &account{}

// hash returns where the search begins for an account that is not at the place of its slot's number, where most are:
// the endpoints of a cluster have consecutive numbers, so they are next to each other here, too, in the order of a
// report.
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

// add adds an account that is not in the table yet.
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

// remove removes an account.
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

// fit resizes the table, so that it is from three eighths to three quarters full.
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
