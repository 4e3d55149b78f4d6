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

// Origin is the picker that learned a route.
type Origin uint8

// The origins.
const (
	Own    Origin = iota // from a request of this proxy
	Others               // from one of another proxy
)

// A Table has the routes of one cluster. It is safe for concurrent use. No lock is held for more than some hundred
// routes, and a prompt costs the same wherever its steps are known: at one endpoint, or at all.
type Table struct {
	limits  Limits
	setting sync.Mutex // held while the endpoints are replaced

	mu        sync.RWMutex
	epoch     time.Time        // routes count their seconds from then on
	numbers   map[uint64]int32 // of the steps, by hash
	steps     []step           // by number
	unused    []int32          // numbers of steps
	words     int              // of each set
	sets      []uint64         // by number of a step: a bit for each endpoint with a route
	index     map[uint64]int32 // of the routes, by step and endpoint
	routes    []route
	free      int32   // list of unused routes, by newer
	order     [2]list // by origin: from the oldest to the newest
	ids       map[string]int32
	endpoints []endpoint // by id
	leaving   []uint64   // a bit for each endpoint that is being removed
	evicted   uint64

	// known has the restarts of the endpoints whose routes are kept; nil before they are known. It does not change.
	known map[string]int
}

// A step is one with routes.
type step struct {
	hash   uint64
	routes int32
	newest int32 // endpoint whose route was added last, if it has that still; else none
}

// A route says that a step is in the cache of an endpoint. It is in two lists, whose links are indexes: of its origin
// by age, and of its endpoint.
type route struct {
	older, newer        int32
	previous, following int32 // of the same endpoint
	step, endpoint      int32
	confirmed           uint32 // seconds since the epoch
	origin              Origin
}

// none is the end of a list.
const none int32 = -1

// most is the number of routes that are removed under one lock.
const most = 256

type list struct {
	oldest, newest int32
	routes         int
}

type endpoint struct {
	used    bool
	address string
	first   int32 // of its routes
}

// NewTable makes a table without routes.
func NewTable(l Limits) *Table {
	return &Table{limits: l.withDefaults(), numbers: make(map[uint64]int32), index: make(map[uint64]int32), free: none,
		ids: make(map[string]int32), order: [2]list{{none, none, 0}, {none, none, 0}}}
}

func (l Limits) withDefaults() Limits {
	if l.Routes <= 0 {
		l.Routes = DefaultRoutes
	}
	if l.TTL <= 0 {
		l.TTL = DefaultTTL
	}
	return l
}

// Limit changes the limits. Expire forgets the routes that are beyond them.
func (t *Table) Limit(l Limits) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.limits = l.withDefaults()
}

// Learn notes that an endpoint has answered a prompt. Routes that it had before are confirmed.
func (t *Table) Learn(p *Prompt, address string, o Origin, now time.Time) {
	if len(p.Steps) == 0 || address == "" {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.takes(address) {
		return
	}
	seconds := t.seconds(now)
	t.expire(seconds)
	id := t.id(address)
	for _, s := range slices.Backward(p.Steps) { // so that the deepest step is evicted first, as in an engine
		t.confirm(s.Hash, id, o, seconds)
	}
}

// takes reports whether routes of an endpoint are kept.
func (t *Table) takes(address string) bool {
	_, is := t.known[address]
	return t.known == nil || is
}

// seconds returns the seconds since the epoch, which is as long before the first use as a route may be old.
func (t *Table) seconds(now time.Time) uint32 {
	if t.epoch.IsZero() {
		t.epoch = now.Add(-t.limits.TTL)
	}
	return uint32(max(0, now.Sub(t.epoch)/time.Second))
}

// id returns the number of an endpoint.
func (t *Table) id(address string) int32 {
	if id, ok := t.ids[address]; ok {
		return id
	}
	id := slices.IndexFunc(t.endpoints, func(e endpoint) bool { return !e.used })
	if id < 0 {
		id = len(t.endpoints)
		t.endpoints = append(t.endpoints, endpoint{})
		if id >= 64*t.words {
			t.widen()
		}
	}
	t.endpoints[id] = endpoint{used: true, address: address, first: none}
	t.ids[address] = int32(id)
	return int32(id)
}

// widen makes room for more endpoints in all sets, for twice as many each time.
func (t *Table) widen() {
	wide := max(1, 2*t.words)
	sets := make([]uint64, wide*len(t.steps), wide*cap(t.steps))
	for n := range t.steps {
		copy(sets[n*wide:], t.set(int32(n)))
	}
	t.words, t.sets = wide, sets
	t.leaving = append(t.leaving, make([]uint64, wide-len(t.leaving))...)
}

// set returns a bit for each endpoint with a route of a step.
func (t *Table) set(n int32) []uint64 { return t.sets[int(n)*t.words:][:t.words] }

// key returns the key of a route in the index.
func key(n, id int32) uint64 { return uint64(n)<<32 | uint64(id) }

// confirm makes a route the newest, or adds it. A route that this proxy has learned stays its own.
func (t *Table) confirm(hash uint64, id int32, o Origin, seconds uint32) {
	if i, known := t.route(hash, id); known {
		t.leaveOrder(i)
		t.routes[i].origin = min(t.routes[i].origin, o)
		t.routes[i].confirmed = seconds
		t.enterOrder(i)
		return
	}
	if t.size() >= t.limits.Routes {
		t.evict()
	}
	i := t.add(hash, id, o, seconds)
	t.steps[t.routes[i].step].newest = id
	t.enterOrder(i)
}

// route returns the route of a step at an endpoint, if there is one.
func (t *Table) route(hash uint64, id int32) (i int32, known bool) {
	n, known := t.numbers[hash]
	if known {
		i, known = t.index[key(n, id)]
	}
	return i, known
}

// add adds a route, which is in no order yet.
func (t *Table) add(hash uint64, id int32, o Origin, seconds uint32) int32 {
	n, i := t.number(hash), t.slot()
	t.routes[i] = route{step: n, endpoint: id, origin: o, confirmed: seconds, previous: none,
		following: t.endpoints[id].first}
	if next := t.routes[i].following; next != none {
		t.routes[next].previous = i
	}
	t.endpoints[id].first, t.index[key(n, id)] = i, i
	t.set(n)[id/64] |= 1 << (id % 64)
	t.steps[n].routes++
	return i
}

// number returns the number of a step, which it adds if it is new.
func (t *Table) number(hash uint64) int32 {
	n, known := t.numbers[hash]
	if known {
		return n
	}
	if last := len(t.unused) - 1; last >= 0 {
		n, t.unused = t.unused[last], t.unused[:last]
	} else {
		n = int32(len(t.steps))
		t.steps = append(t.steps, step{})
		t.sets = append(t.sets, make([]uint64, t.words)...)
	}
	t.steps[n] = step{hash: hash, newest: none}
	t.numbers[hash] = n
	return n
}

// slot returns an unused route.
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

// Expire forgets the routes that nothing has confirmed for too long, and those beyond the limit. It is to be called
// about once a second: a match does not look at ages.
func (t *Table) Expire(now time.Time) {
	for t.expireSome(now) {
	}
}

func (t *Table) expireSome(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.expire(t.seconds(now)) == most
}

// expire forgets routes that are too old, at most so many as are removed under one lock.
func (t *Table) expire(seconds uint32) (removed int) {
	for o := range t.order {
		for i := t.order[o].oldest; i != none && t.tooOld(i, seconds) && removed < most; i = t.order[o].oldest {
			t.remove(i)
			removed++
		}
	}
	for ; t.size() > t.limits.Routes && removed < most; removed++ {
		t.evict()
	}
	return removed
}

func (t *Table) tooOld(i int32, seconds uint32) bool {
	confirmed := t.routes[i].confirmed
	return seconds > confirmed && time.Duration(seconds-confirmed)*time.Second > t.limits.TTL
}

// remove takes a route out of its lists, and its step out of the table with the last one.
func (t *Table) remove(i int32) {
	t.leaveOrder(i)
	r := &t.routes[i]
	if r.previous != none {
		t.routes[r.previous].following = r.following
	} else {
		t.endpoints[r.endpoint].first = r.following
	}
	if r.following != none {
		t.routes[r.following].previous = r.previous
	}
	delete(t.index, key(r.step, r.endpoint))
	t.set(r.step)[r.endpoint/64] &^= 1 << (r.endpoint % 64)
	s := &t.steps[r.step]
	if s.newest == r.endpoint {
		s.newest = none
	}
	if s.routes--; s.routes == 0 {
		delete(t.numbers, s.hash)
		t.unused = append(t.unused, r.step)
	}
	r.newer, t.free = t.free, i
}

// enterOrder makes a route the newest of its origin.
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

// Remove forgets the routes of an endpoint that left, or whose engine restarted with an empty cache: none matches from
// the beginning on, and others may use the table in between.
func (t *Table) Remove(address string) {
	id, ok := t.leave(address)
	for ok && t.removeSome(id) {
	}
}

// leave takes an endpoint out of all matches; what is learned of its address from then on is that of another one.
func (t *Table) leave(address string) (id int32, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if id, ok = t.ids[address]; ok {
		delete(t.ids, address)
		t.leaving[id/64] |= 1 << (id % 64)
	}
	return id, ok
}

// removeSome removes some routes of an endpoint that leaves; false when there are no more.
func (t *Table) removeSome(id int32) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := &t.endpoints[id]
	for range most {
		if e.first == none {
			*e = endpoint{}
			t.leaving[id/64] &^= 1 << (id % 64)
			return false
		}
		t.remove(e.first)
	}
	return true
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
