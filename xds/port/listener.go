package port

import (
	"cmp"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/peer"

	"steelyard/internal/api"
	"steelyard/internal/tally"
)

// defaultFirstMessage is ample: an Envoy sends the first message of a stream as soon as it has opened the stream.
const defaultFirstMessage = 10 * time.Second

// sumsEvery is the time between two lines of the log about one kind of refusal.
const sumsEvery = 10 * time.Second

// Options of a Listener.
type Options struct {
	// Connections is the largest number of connections, and PerAddress of those from one remote address or IPv6 /64.
	Connections, PerAddress int
	// Streams is the largest number of open streams, on all connections together.
	Streams int
	// Unread is the largest number of bytes that peers may send without completing a message, on all streams together.
	// Zero: 256 MiB.
	Unread int
	// DisplaceBusy: a new connection replaces the oldest, busy or not.
	// That suits requests that take milliseconds: one that is still busy has a peer that does not read.
	DisplaceBusy bool
	// FirstMessage is how long a stream may take to send its first message completely. Zero: 10 s.
	FirstMessage time.Duration
	Log          *slog.Logger
}

// A Listener accepts TCP connections within its limits; see the package comment.
type Listener struct {
	net.Listener
	options Options
	streams *Quota
	unread  *unread
	closing chan struct{}
	close   func() error // once

	refused, displaced, refusedStreams, silentStreams, holders, failed *tally.Tally

	mu    sync.Mutex // guards the fields below
	room  int        // connections for which there are enough file descriptors
	table table
	stats api.Port // of which only the counters are kept up to date
}

// Listen binds a TCP address.
func Listen(address string, o Options) (*Listener, error) {
	inner, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	return newListener(inner, o), nil
}

func newListener(inner net.Listener, o Options) *Listener {
	o.FirstMessage = cmp.Or(o.FirstMessage, defaultFirstMessage)
	o.Unread = cmp.Or(o.Unread, defaultUnread)
	displaced := "idle connections closed to make room for new ones"
	if o.DisplaceBusy {
		displaced = "connections closed to make room for new ones"
	}
	sums := func(message string) *tally.Tally { return tally.New(o.Log, slog.LevelWarn, message, sumsEvery) }
	l := &Listener{
		Listener: inner, options: o, streams: NewQuota(o.Streams), unread: newUnread(o.Unread),
		closing:        make(chan struct{}),
		refused:        sums("connections refused: the limit is reached, and none is idle"),
		displaced:      sums(displaced),
		refusedStreams: sums("streams refused: the limit is reached"),
		silentStreams:  sums("streams ended: their first message did not arrive in time"),
		holders: sums("connections closed: all peers together have sent too much of requests that are not " +
			"complete, and these the most"),
		failed: sums("connections cannot be accepted, retrying"),
		room:   o.Connections, table: newTable(o.DisplaceBusy),
	}
	l.close = sync.OnceValue(l.end)
	return l
}

// SetRoom sets how many connections the limit of open files has room for. Open connections stay open.
func (l *Listener) SetRoom(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.room = n
}

// limits returns the limits that hold now, in total and for an address that has this many connections. An address may
// have three quarters of what the other addresses leave, or more if the options allow it a larger part of the total.
func (l *Listener) limits(own int) (total, each int) {
	o := l.options
	total = min(o.Connections, l.room)
	left := total - (len(l.table.open) - own)
	each = left * 3 / 4
	if total == o.Connections { // otherwise the operator could not know it
		each = max(each, left*o.PerAddress/o.Connections)
	}
	return total, min(o.PerAddress, max(1, each))
}

// Accept returns the next connection for which there is room. It fails only when the listener is closed.
func (l *Listener) Accept() (net.Conn, error) {
	const first, longest = 5 * time.Millisecond, time.Second
	pause := first
	for {
		raw, err := l.Listener.Accept()
		switch {
		case err == nil:
			pause = first
			if c := l.admit(raw); c != nil {
				return c, nil
			}
		case errors.Is(err, net.ErrClosed):
			return nil, err
		default:
			l.acceptFailed(err)
			select {
			case <-l.closing:
				return nil, net.ErrClosed
			case <-time.After(pause):
			}
			pause = min(2*pause, longest)
		}
	}
}

// acceptFailed counts the error, and closes a connection that may be displaced: accept mostly fails because no file
// descriptor is left.
func (l *Listener) acceptFailed(err error) {
	l.mu.Lock()
	l.stats.AcceptErrors++
	l.stats.LastAcceptError, l.stats.LastAcceptErrorAt = err.Error(), api.At(time.Now())
	victim := first(&l.table.idle)
	if victim != nil {
		l.table.remove(victim)
	}
	l.mu.Unlock()
	l.failed.Add("error", err)
	if victim != nil {
		victim.Conn.Close()
	}
}

// admit wraps a connection for which there is room, or for which it can close another. It closes any other, and
// returns nil.
func (l *Listener) admit(raw net.Conn) net.Conn {
	c := &conn{Conn: raw, listener: l, pair: addressesOf(raw.RemoteAddr(), raw.LocalAddr())}
	address := c.pair.remote.Addr()
	victim, full := l.enter(c)
	switch {
	case full == 0:
	case victim == nil:
		l.refused.Add("address", address, "limit", full)
		raw.Close()
		return nil
	default:
		l.displaced.Add("address", victim.pair.remote.Addr(), "for", address, "limit", full)
		victim.Conn.Close()
	}
	return c
}

// enter adds the connection to the table if there is room, or if it can replace another connection (victim). full is
// the limit that was reached, 0 if none was. Without a victim, a full table refuses the connection.
func (l *Listener) enter(c *conn) (victim *conn, full int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	open, ownVictim := l.table.connections(c.pair.remote.Addr())
	total, each := l.limits(open)
	switch {
	case open >= each:
		victim, full = ownVictim, each
		turnedAway(&l.stats.ConnectionsPerAddress, victim)
	case len(l.table.open) >= total:
		victim, full = first(&l.table.idle), total
		turnedAway(&l.stats.Connections, victim)
	}
	if full > 0 && victim == nil {
		return nil, full
	}
	if victim != nil {
		l.table.remove(victim)
	}
	l.table.add(c)
	return victim, full
}

func (l *Listener) connection(remote, local net.Addr) *conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.table.open[addressesOf(remote, local)]
}

// closeHolder closes the connection that holds the most unread bytes, if there is one to close.
func (l *Listener) closeHolder(victim *conn) {
	if victim != nil {
		l.holders.Add("peer", victim.pair.remote, "limit", l.options.Unread)
		victim.Close()
	}
}

// Busy marks the start and the end of a request on a connection whose requests do not pass through Intercept.
func (c *conn) Busy(busy bool) {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	switch {
	case busy && c.streams == 0:
		c.listener.table.streamBegins(c)
	case !busy && c.streams > 0:
		c.listener.table.streamEnds(c)
	}
}

// Close closes the connection and removes it from the table.
func (c *conn) Close() error {
	c.listener.mu.Lock()
	c.listener.table.remove(c)
	c.listener.mu.Unlock()
	c.listener.unread.remove(c)
	return c.Conn.Close()
}

// Close stops listening, and closes the connections that never had a stream: a server that stops would wait for their
// handshakes.
func (l *Listener) Close() error { return l.close() }

func (l *Listener) end() error {
	close(l.closing)
	for _, t := range []*tally.Tally{l.refused, l.displaced, l.refusedStreams, l.silentStreams, l.holders, l.failed} {
		t.End()
	}
	err := l.Listener.Close()
	l.closeMatching(func(c *conn) bool { return !c.used })
	return err
}

// Disconnect closes the connection of a peer of a gRPC stream, if it is still open.
func (l *Listener) Disconnect(p *peer.Peer) {
	if c := l.connection(p.Addr, p.LocalAddr); c != nil {
		c.Close()
	}
}

// CloseConnections closes all connections without waiting for their peers.
func (l *Listener) CloseConnections() { l.closeMatching(func(*conn) bool { return true }) }

func (l *Listener) closeMatching(matches func(*conn) bool) {
	l.mu.Lock()
	var matching []*conn
	for _, c := range l.table.open {
		if matches(c) {
			matching = append(matching, c)
		}
	}
	l.mu.Unlock()
	for _, c := range matching {
		c.Close()
	}
}

// Stats returns how much of each limit is used, and how often it was reached. It leaves out what the listener does not
// have: subscriptions, paced requests, open files.
func (l *Listener) Stats() api.Port {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stats
	s.Connections.Used, s.ConnectionsPerAddress.Used = len(l.table.open), l.table.mostOfOneHost()
	s.Connections.Limit, s.ConnectionsPerAddress.Limit = l.limits(s.ConnectionsPerAddress.Used)
	s.Streams, s.UnreadBytes = l.streams.Usage(), l.unread.Usage()
	return s
}
