package prefix

import "time"

// A Learned is what pickers tell each other: routes of an endpoint.
type Learned struct {
	Address string
	Hashes  []uint64      // at most MaxSteps, the shortest beginning first; none: the endpoint has lost all
	Kept    bool          // they were learned before, and come the newest first
	Age     time.Duration // of those
}

// Take adds what another picker has learned, or forgets what an endpoint has lost.
func (t *Table) Take(l *Learned, o Origin, now time.Time) {
	switch {
	case len(l.Hashes) == 0:
		t.Remove(l.Address)
	case len(l.Hashes) > MaxSteps:
	case l.Kept:
		t.restore(l, o, now)
	default:
		p := Prompt{Steps: make([]Step, len(l.Hashes))}
		for i, hash := range l.Hashes {
			p.Steps[i].Hash = hash
		}
		t.Learn(&p, l.Address, o, now)
	}
}

// Snapshot returns at most so many routes, the newest first. It holds the lock for all of them.
func (t *Table) Snapshot(routes int, now time.Time) (out []Learned) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	own, others := t.order[Own].newest, t.order[Others].newest
	last := none
	for range routes {
		next := &own
		if own == none || others != none && t.routes[others].confirmed > t.routes[own].confirmed {
			next = &others
		}
		if *next == none {
			break
		}
		r := &t.routes[*next]
		*next = r.older
		if t.leaving[r.endpoint/64]&(1<<(r.endpoint%64)) != 0 {
			continue
		}
		if last == none || t.routes[last].endpoint != r.endpoint || t.routes[last].confirmed != r.confirmed ||
			len(out[len(out)-1].Hashes) == MaxSteps {
			out = append(out, Learned{Address: t.endpoints[r.endpoint].address, Kept: true, Age: t.age(r, now)})
		}
		k := &out[len(out)-1]
		k.Hashes = append(k.Hashes, t.steps[r.step].hash)
		last = t.index[key(r.step, r.endpoint)]
	}
	return out
}

func (t *Table) age(r *route, now time.Time) time.Duration {
	return max(0, now.Sub(t.epoch.Add(time.Duration(r.confirmed)*time.Second)).Truncate(time.Second))
}

// restore adds what another table had, in the order of its Snapshot: each behind all that is there, so that it is
// forgotten first. What is known already stays as it is, and what there is no room for is left out.
func (t *Table) restore(l *Learned, o Origin, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.takes(l.Address) {
		return
	}
	seconds, age := t.seconds(now), uint32(min(max(0, l.Age), t.limits.TTL)/time.Second)
	confirmed := seconds - min(seconds, age)
	if i := t.order[o].oldest; i != none {
		confirmed = min(confirmed, t.routes[i].confirmed) // the order is by age
	}
	id := t.id(l.Address)
	for _, hash := range l.Hashes {
		if _, known := t.route(hash, id); known {
			continue
		}
		if t.size() >= t.limits.Routes {
			return
		}
		i := t.add(hash, id, o, confirmed)
		if s := &t.steps[t.routes[i].step]; s.newest == none {
			s.newest = id
		}
		t.becomeOldest(i)
	}
}

// becomeOldest puts a route behind all others of its origin.
func (t *Table) becomeOldest(i int32) {
	r := &t.routes[i]
	l := &t.order[r.origin]
	r.older, r.newer = none, l.oldest
	if l.oldest != none {
		t.routes[l.oldest].older = i
	} else {
		l.newest = i
	}
	l.oldest = i
	l.routes++
}

// Ages counts the routes by age: element i has those of at most within[i], which rises, that are not in the one before;
// the last has all others.
func (t *Table) Ages(now time.Time, within ...time.Duration) []int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	counts := make([]int, len(within)+1)
	for o := range t.order {
		at := 0
		for i := t.order[o].newest; i != none; i = t.routes[i].older {
			for at < len(within) && t.age(&t.routes[i], now) > within[at] {
				at++
			}
			counts[at]++
		}
	}
	return counts
}
