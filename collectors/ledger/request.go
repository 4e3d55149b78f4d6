package ledger

import "time"

// maxClosed bounds how many requests of an Envoy are remembered that were closed without an end. Most missing ends were
// lost, so a new one replaces the oldest.
const maxClosed = 1024

// unbatchTime is how long the last batch may take of an Envoy that is to stop batching: it is asked to within a second,
// and then sends what is in its buffer within another.
const unbatchTime = 3 * time.Second

// openRequest opens a request; nil if there is no room for it.
func (l *Ledger) openRequest(s *Stream, k key, received uint64) *request {
	e := s.envoy
	if e.open >= maxOpen || l.open >= l.room(e.node, maxOpenTotal) {
		return nil
	}
	r := &request{key: k, stream: s, received: received}
	k.account.open.push(r)
	s.open.push(r)
	if first := e.requests[k]; first != nil { // a retry at the same endpoint
		r.links[ofOneID].next = first
		first.links[ofOneID].prev = r
	}
	e.requests[k] = r
	e.open++
	l.open++
	return r
}

// unbatching reports whether the last batch may still be on its way.
func (e *envoy) unbatching(now time.Time) bool {
	return !e.unbatched.IsZero() && now.Sub(e.unbatched) < unbatchTime
}

// endedEarly remembers an end without a beginning if the beginning may be in the last batch: entries that are sent at
// once come over another stream, and overtake it. Those of an Envoy that watches nothing are not counted.
func (l *Ledger) endedEarly(e *envoy, now time.Time, k key) {
	if !e.unbatching(now) || len(e.early) >= maxClosed || l.watching[e.node] == nil {
		return
	}
	if e.early == nil {
		e.early = make(map[key]int)
	}
	e.early[k]++
}

// beganLate reports whether a request that begins has ended before.
func (e *envoy) beganLate(k key) bool {
	if e.early[k] == 0 {
		return false
	}
	if e.early[k]--; e.early[k] == 0 {
		delete(e.early, k)
	}
	return true
}

// drop forgets a request. The caller changes what its account counts.
func (l *Ledger) drop(r *request) {
	a, e := r.key.account, r.stream.envoy
	if r.closed {
		e.closed.remove(r)
		e.closings--
		a.closed--
	} else {
		a.open.remove(r)
	}
	r.stream.open.remove(r)
	same := r.links[ofOneID]
	if same.next != nil {
		same.next.links[ofOneID].prev = same.prev
	}
	switch {
	case same.prev != nil:
		same.prev.links[ofOneID].next = same.next
	case same.next != nil:
		e.requests[r.key] = same.next
	default:
		delete(e.requests, r.key)
	}
	e.open--
	l.open--
}

// close moves a request to the closed ones: it counts as ended, though its end was not logged. It is
// remembered, so that an end that comes after all does not count again.
func (l *Ledger) close(r *request) {
	a, e := r.key.account, r.stream.envoy
	a.open.remove(r)
	r.closed = true
	a.closed++
	e.closed.push(r)
	if e.closings++; e.closings > maxClosed {
		l.drop(e.closed.head)
	}
}
