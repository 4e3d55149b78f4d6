package prefix

import (
	"slices"
	"sync"
	"time"
)

// Limits bound a Table.
type Limits struct {
	Routes int           // at most; 0: 100,000
	TTL    time.Duration // after which a route that nothing confirmed is forgotten; 0: an hour
}

// The default limits.
const (
	DefaultRoutes = 100_000
	DefaultTTL    = time.Hour
)

// Origin is who learned a route.
type Origin uint8

// The origins.
const (
	Own    Origin = iota // from a request of this proxy
	Others               // from one of another proxy
)

// A Table has the routes of one cluster. It is safe for concurrent use.
type Table struct {
	limits Limits

	mu        sync.RWMutex
	epoch     time.Time // routes count their seconds from then on
	index     map[uint64]int32
	routes    []route
	free      int32   // list of unused routes, by newer
	order     [2]list // by origin: from the oldest to the newest
	ids       map[string]int32
	endpoints []endpoint // by id
	evicted   uint64
}

// A route says that a prefix is in the cache of an endpoint. It is in three lists, whose links are indexes: of its
// origin by age, of those with the same hash, and of those of its endpoint.
type route struct {
	hash                uint64
	older, newer        int32
	before, after       int32  // with the same hash
	previous, following int32  // of the same endpoint
	confirmed           uint32 // seconds since the epoch
	endpoint            int32
	origin              Origin
}

// none is the end of a list.
const none int32 = -1

type list struct {
	oldest, newest int32
	routes         int
}

type endpoint struct {
	address string // empty: unused
	first   int32  // of its routes
}

// NewTable makes one without routes.
func NewTable(l Limits) *Table {
	if l.Routes <= 0 {
		l.Routes = DefaultRoutes
	}
	if l.TTL <= 0 {
		l.TTL = DefaultTTL
	}
	return &Table{limits: l, index: make(map[uint64]int32), free: none, ids: make(map[string]int32),
		order: [2]list{{none, none, 0}, {none, none, 0}}}
}

// Learn notes that an endpoint has answered a prompt. Routes that it had before are confirmed.
func (t *Table) Learn(p *Prompt, address string, o Origin, now time.Time) {
	if len(p.Steps) == 0 || address == "" {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	seconds := t.seconds(now)
	t.expire(seconds)
	id := t.id(address)
	for _, s := range slices.Backward(p.Steps) { // so that the deepest step is evicted first, as in an engine
		t.confirm(s.Hash, id, o, seconds)
	}
}

// seconds are those since the table was first used.
func (t *Table) seconds(now time.Time) uint32 {
	if t.epoch.IsZero() {
		t.epoch = now
	}
	return uint32(max(0, now.Sub(t.epoch)/time.Second))
}

// id is the number of an endpoint.
func (t *Table) id(address string) int32 {
	if id, ok := t.ids[address]; ok {
		return id
	}
	id := int32(len(t.endpoints))
	for i := range t.endpoints {
		if t.endpoints[i].address == "" {
			id = int32(i)
			break
		}
	}
	if int(id) == len(t.endpoints) {
		t.endpoints = append(t.endpoints, endpoint{})
	}
	t.endpoints[id] = endpoint{address: address, first: none}
	t.ids[address] = id
	return id
}

// confirm makes a route the newest, or adds it. A route that this proxy has learned stays its own.
func (t *Table) confirm(hash uint64, id int32, o Origin, seconds uint32) {
	head, known := t.index[hash]
	if known {
		for i := head; i != none; i = t.routes[i].after {
			if t.routes[i].endpoint == id {
				t.leaveOrder(i)
				t.routes[i].origin = min(t.routes[i].origin, o)
				t.routes[i].confirmed = seconds
				t.enterOrder(i)
				return
			}
		}
	}
	if t.size() >= t.limits.Routes {
		t.evict()
		head, known = t.index[hash] // it may have been the one
	}
	if !known {
		head = none
	}
	i := t.slot()
	t.routes[i] = route{hash: hash, endpoint: id, origin: o, confirmed: seconds, before: none, after: head,
		previous: none, following: t.endpoints[id].first}
	if head != none {
		t.routes[head].before = i
	}
	if next := t.routes[i].following; next != none {
		t.routes[next].previous = i
	}
	t.index[hash], t.endpoints[id].first = i, i
	t.enterOrder(i)
}

// slot is an unused route.
func (t *Table) slot() int32 {
	if i := t.free; i != none {
		t.free = t.routes[i].newer
		return i
	}
	t.routes = append(t.routes, route{})
	return int32(len(t.routes) - 1)
}

func (t *Table) size() int { return t.order[Own].routes + t.order[Others].routes }

// evict forgets the oldest route, of those that others learned while there are any.
func (t *Table) evict() {
	i := t.order[Others].oldest
	if i == none {
		i = t.order[Own].oldest
	}
	t.remove(i)
	t.evicted++
}

// expire forgets the routes that are too old.
func (t *Table) expire(seconds uint32) {
	for o := range t.order {
		for i := t.order[o].oldest; i != none && t.tooOld(i, seconds); i = t.order[o].oldest {
			t.remove(i)
		}
	}
}

func (t *Table) tooOld(i int32, seconds uint32) bool {
	confirmed := t.routes[i].confirmed
	return seconds > confirmed && time.Duration(seconds-confirmed)*time.Second > t.limits.TTL
}

// remove takes a route out of its lists.
func (t *Table) remove(i int32) {
	t.leaveOrder(i)
	r := &t.routes[i]
	switch {
	case r.before != none:
		t.routes[r.before].after = r.after
	case r.after != none:
		t.index[r.hash] = r.after
	default:
		delete(t.index, r.hash)
	}
	if r.after != none {
		t.routes[r.after].before = r.before
	}
	if r.previous != none {
		t.routes[r.previous].following = r.following
	} else {
		t.endpoints[r.endpoint].first = r.following
	}
	if r.following != none {
		t.routes[r.following].previous = r.previous
	}
	r.newer, t.free = t.free, i
}

func (t *Table) enterOrder(i int32) {
	r := &t.routes[i]
	l := &t.order[r.origin]
	r.older, r.newer = l.newest, none
	if l.newest != none {
		t.routes[l.newest].newer = i
	} else {
		l.oldest = i
	}
	l.newest = i
	l.routes++
}

func (t *Table) leaveOrder(i int32) {
	r := &t.routes[i]
	l := &t.order[r.origin]
	if r.older != none {
		t.routes[r.older].newer = r.newer
	} else {
		l.oldest = r.newer
	}
	if r.newer != none {
		t.routes[r.newer].older = r.older
	} else {
		l.newest = r.older
	}
	l.routes--
}

// Remove forgets the routes of an endpoint that left, or whose engine restarted with an empty cache.
func (t *Table) Remove(address string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	id, ok := t.ids[address]
	if !ok {
		return
	}
	for i := t.endpoints[id].first; i != none; i = t.endpoints[id].first {
		t.remove(i)
	}
	delete(t.ids, address)
	t.endpoints[id] = endpoint{first: none}
}

// Keep forgets the routes of all endpoints but these.
func (t *Table) Keep(known func(address string) bool) {
	t.mu.RLock()
	var gone []string
	for a := range t.ids {
		if !known(a) {
			gone = append(gone, a)
		}
	}
	t.mu.RUnlock()
	for _, a := range gone {
		t.Remove(a)
	}
}

// A Match is an endpoint that has the first blocks of a prompt in its cache.
type Match struct {
	Address string
	Blocks  int
}

// Matches are those of a prompt, deepest first; the memory is used again.
type Matches struct {
	All  []Match
	seen []uint64 // a bit for each endpoint
}

// Match finds the endpoints that have a part of a prompt, each with the most blocks.
func (t *Table) Match(p *Prompt, now time.Time, m *Matches) {
	m.All = m.All[:0]
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.epoch.IsZero() {
		return
	}
	seconds := t.seconds(now)
	m.seen = append(m.seen[:0], make([]uint64, (len(t.endpoints)+63)/64)...)
	for k := len(p.Steps) - 1; k >= 0 && len(m.All) < len(t.ids); k-- {
		i, ok := t.index[p.Steps[k].Hash]
		for ; ok && i != none; i = t.routes[i].after {
			r := &t.routes[i]
			word, bit := &m.seen[r.endpoint/64], uint64(1)<<(r.endpoint%64)
			if *word&bit == 0 && !t.tooOld(i, seconds) {
				*word |= bit
				m.All = append(m.All, Match{Address: t.endpoints[r.endpoint].address, Blocks: p.Steps[k].Blocks})
			}
		}
	}
}

// Stats are the sizes of a Table.
type Stats struct {
	Own, Others int    // routes, by who learned them
	Evicted     uint64 // to make room, since the start
}

// Stats returns the sizes at this time.
func (t *Table) Stats() Stats {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return Stats{Own: t.order[Own].routes, Others: t.order[Others].routes, Evicted: t.evicted}
}
