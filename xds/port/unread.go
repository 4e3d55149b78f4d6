package port

import (
	"sync"

	"steelyard/internal/api"
)

// defaultUnread is 1 MiB for each of 256 streams, or 8 KiB for each of 32,768 connections. Envoys that work hold next
// to nothing, because Steelyard receives each message within milliseconds.
const defaultUnread = 256 << 20

// An unread budget limits the bytes that peers have sent on open streams and that no handler has received as a complete
// message. Both sides of the difference are exact, so that it does not drift: what a stream has received leaves the
// budget when the stream ends, and so does what was delivered of it.
type unread struct {
	mu    sync.Mutex
	usage api.Bound // in bytes; Displaced are the connections that were closed
	conns map[*conn]*account
}

// An account is the part of one connection. It may be below zero for a moment, when a stream has ended and its handler
// has not.
type account struct {
	bytes    int
	streams  map[uint32]int // bytes that each open stream has received
	lastOpen uint32         // the highest stream id
}

func newUnread(limit int) *unread {
	return &unread{usage: api.Bound{Limit: limit}, conns: make(map[*conn]*account)}
}

func (u *unread) add(c *conn) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !c.closed {
		u.conns[c] = &account{streams: make(map[uint32]int)}
	}
}

// remove removes a connection permanently.
func (u *unread) remove(c *conn) {
	u.mu.Lock()
	defer u.mu.Unlock()
	c.closed = true
	u.drop(c)
}

func (u *unread) drop(c *conn) {
	if a := u.conns[c]; a != nil {
		u.usage.Used -= a.bytes
		delete(u.conns, c)
	}
}

func (u *unread) change(a *account, bytes int) {
	a.bytes += bytes
	u.usage.Used += bytes
}

// begin opens a stream, unless the headers are trailers.
func (u *unread) begin(c *conn, stream uint32) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if a := u.conns[c]; a != nil && stream > a.lastOpen {
		a.lastOpen = stream
		a.streams[stream] = 0
	}
}

// receive counts bytes of a stream. If they exceed the budget, it returns the connection that has to be closed: the one
// that holds the most.
func (u *unread) receive(c *conn, stream uint32, bytes int) (victim *conn) {
	u.mu.Lock()
	defer u.mu.Unlock()
	a := u.conns[c]
	if a == nil {
		return nil
	}
	if _, open := a.streams[stream]; !open {
		return nil // gRPC drops them
	}
	a.streams[stream] += bytes
	u.change(a, bytes)
	if u.usage.Used <= u.usage.Limit {
		return nil
	}
	victim, most := c, a.bytes
	for other, a := range u.conns {
		if a.bytes > most {
			victim, most = other, a.bytes
		}
	}
	u.drop(victim)
	turnedAway(&u.usage, victim)
	return victim
}

func (u *unread) end(c *conn, stream uint32) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if a := u.conns[c]; a != nil {
		u.change(a, -a.streams[stream])
		delete(a.streams, stream)
	}
}

// A delivery is what a handler has received.
type delivery struct {
	conn  *conn
	bytes int
	ended bool
}

func (u *unread) deliver(d *delivery, bytes int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if a := u.conns[d.conn]; a != nil && !d.ended {
		d.bytes += bytes
		u.change(a, -bytes)
	}
}

func (u *unread) endDelivery(d *delivery) {
	u.mu.Lock()
	defer u.mu.Unlock()
	d.ended = true
	if a := u.conns[d.conn]; a != nil {
		u.change(a, d.bytes)
	}
}

func (u *unread) Usage() api.Bound {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.usage
}
