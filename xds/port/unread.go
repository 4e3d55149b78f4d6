package port

import (
	"context"
	"net"
	"sync"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/stats"

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

// closeHolder closes the connection that holds the most unread bytes, if there is one to close.
func (l *Listener) closeHolder(victim *conn) {
	if victim != nil {
		l.holders.Add("peer", victim.pair.remote, "limit", l.options.Unread)
		victim.Close()
	}
}

// Credentials returns credentials for the gRPC server on this listener that count what its peers send. c is nil for
// plain text.
func (l *Listener) Credentials(c credentials.TransportCredentials) credentials.TransportCredentials {
	if c == nil {
		c = insecure.NewCredentials()
	}
	return countingCredentials{c, l}
}

type countingCredentials struct {
	credentials.TransportCredentials
	listener *Listener
}

func (c countingCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	plain, info, err := c.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return plain, info, err
	}
	if known := c.listener.connection(raw.RemoteAddr(), raw.LocalAddr()); known != nil {
		c.listener.unread.add(known)
		plain = newFrameConn(plain, known)
	}
	return plain, info, nil
}

func (c countingCredentials) Clone() credentials.TransportCredentials {
	return countingCredentials{c.TransportCredentials.Clone(), c.listener}
}

func (l *Listener) connection(remote, local net.Addr) *conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.table.open[addressesOf(remote, local)]
}

// Deliveries returns the stats handler for the gRPC server on this listener, which counts what handlers receive.
func (l *Listener) Deliveries() stats.Handler { return deliveries{l} }

type deliveries struct{ listener *Listener }

type (
	connKey     struct{}
	deliveryKey struct{}
)

func (h deliveries) TagConn(ctx context.Context, info *stats.ConnTagInfo) context.Context {
	return context.WithValue(ctx, connKey{}, h.listener.connection(info.RemoteAddr, info.LocalAddr))
}

func (deliveries) HandleConn(context.Context, stats.ConnStats) {}

func (deliveries) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context {
	c, _ := ctx.Value(connKey{}).(*conn)
	return context.WithValue(ctx, deliveryKey{}, &delivery{conn: c})
}

func (h deliveries) HandleRPC(ctx context.Context, event stats.RPCStats) {
	d, ok := ctx.Value(deliveryKey{}).(*delivery)
	if !ok {
		return
	}
	switch e := event.(type) {
	case *stats.InPayload:
		h.listener.unread.deliver(d, e.WireLength)
	case *stats.End:
		h.listener.unread.endDelivery(d)
	}
}
