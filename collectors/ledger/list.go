package ledger

// A request has begun and has not ended. It is in three lists, so that it can be found by whatever ends it: its id, its
// stream, or its age.
type request struct {
	key      key
	stream   *Stream
	received uint64 // bytes, over the attempts before this one
	free     bool   // it found a free slot, as far as it is recorded
	closed   bool   // it is in its Envoy's list of closed requests, not in its account's
	links    [3]link
}

type link struct{ prev, next *request }

// The lists of a request.
const (
	inAccount = iota
	inStream
	ofOneID
)

// A key is what a beginning and its end have in common.
type key struct {
	id      uint64 // the hash of the request id
	account *account
}

// A list holds requests, oldest first.
type list struct {
	head, tail *request
	which      uint8
}

func (l *list) push(r *request) {
	r.links[l.which] = link{prev: l.tail}
	if l.tail != nil {
		l.tail.links[l.which].next = r
	} else {
		l.head = r
	}
	l.tail = r
}

func (l *list) remove(r *request) {
	at := r.links[l.which]
	if at.prev != nil {
		at.prev.links[l.which].next = at.next
	} else {
		l.head = at.next
	}
	if at.next != nil {
		at.next.links[l.which].prev = at.prev
	} else {
		l.tail = at.prev
	}
	r.links[l.which] = link{}
}
