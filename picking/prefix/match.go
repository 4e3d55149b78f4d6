package prefix

import "math/bits"

// A Match is an endpoint that has the first blocks of a prompt in its cache.
type Match struct {
	Address string
	Blocks  int
}

// Matches has the matches of a prompt, deepest first; the memory is reused.
type Matches struct {
	All  []Match
	seen []uint64 // a bit for each endpoint
}

// Match finds the endpoints that have a part of a prompt, each with the most blocks. Of several with as many, the one
// that was learned last may be the first.
func (t *Table) Match(p *Prompt, m *Matches) {
	m.All = m.All[:0]
	t.mu.RLock()
	defer t.mu.RUnlock()
	m.seen = append(m.seen[:0], t.leaving...)
	for k := len(p.Steps) - 1; k >= 0 && len(m.All) < len(t.ids); k-- {
		n, known := t.numbers[p.Steps[k].Hash]
		if !known {
			continue
		}
		if id := t.steps[n].newest; id != none {
			t.match(int(id)/64, 1<<(id%64), p.Steps[k].Blocks, m)
		}
		for w, set := range t.set(n) {
			if set&^m.seen[w] != 0 {
				t.match(w, set, p.Steps[k].Blocks, m)
			}
		}
	}
}

// match adds those endpoints of a word of a set that are not seen yet.
func (t *Table) match(w int, set uint64, blocks int, m *Matches) {
	for fresh := set &^ m.seen[w]; fresh != 0; fresh &= fresh - 1 {
		id := 64*w + bits.TrailingZeros64(fresh)
		m.All = append(m.All, Match{Address: t.endpoints[id].address, Blocks: blocks})
	}
	m.seen[w] |= set
}

// Stats are the sizes of a Table.
type Stats struct {
	Own, Others int    // routes, by the picker that learned them
	Evicted     uint64 // to make room, since the start
}

// Stats returns the sizes at this time.
func (t *Table) Stats() Stats {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return Stats{Own: t.order[Own].routes, Others: t.order[Others].routes, Evicted: t.evicted}
}
