package xds

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"steelyard/internal/api"
)

// How a connection can end.
const (
	causeClosed  = "the connection was closed" // by its process, or by the kernel for it
	causeReset   = "the connection was reset"
	causeSilent  = "keepalive pings were not answered"
	causeRefused = "Steelyard closed the connection"
)

func (t *tracker) vanished() []api.GoneEnvoy {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.gone.expire(t.now())
	return t.gone.latestFirst()
}

// connectionEnded records that the connection of a peer has ended. It has to be called before gRPC cancels the streams:
// a stream whose context is done by then was ended by the Envoy.
func (t *tracker) connectionEnded(peer, cause string) {
	if node := t.vanishedWith(peer, cause); node != "" {
		t.mu.log.Warn("envoy vanished without closing its stream", "node", node, "peer", peer, "cause", cause)
	}
}

// vanishedWith returns the node that vanished with a connection, or "" if none did. The cost depends on the number of
// streams of that Envoy, not of all: thousands of connections can end at the same moment.
func (t *tracker) vanishedWith(peer, cause string) (node string) {
	if t.closing.Load() {
		return ""
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var newest *stream // among those that the Envoy has not ended
	for st := range t.byPeer[peer] {
		if st.node.NodeID != "" && st.ctx.Err() == nil && (newest == nil || st.connected.After(newest.connected)) {
			newest = st
		}
	}
	if newest == nil || t.reconnected(newest) {
		return ""
	}
	t.gone.add(api.GoneEnvoy{NodeID: newest.node.NodeID, Certificate: newest.certificate, Address: peer,
		Since: api.At(t.now()), Cause: cause, Silent: cause == causeSilent})
	return newest.node.NodeID
}

// reconnected reports whether the Envoy of a stream has opened another connection since.
func (t *tracker) reconnected(st *stream) bool {
	for other := range t.byNode[st.envoy()] {
		if other.peer != st.peer && other.connected.After(st.connected) {
			return true
		}
	}
	return false
}

type watchedListener struct {
	net.Listener
	tracker *tracker
}

func (l watchedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	w := &watchedConn{Conn: c, tracker: l.tracker}
	w.lastSeen.Store(time.Now().UnixNano())
	return w, nil
}

// A watchedConn reports its end to the tracker once. gRPC reads it in one goroutine, which cancels the streams that the
// peer has reset before it reads the end of the connection. If the peer is silent, gRPC closes the connection before it
// cancels the streams.
type watchedConn struct {
	net.Conn
	tracker  *tracker
	lastSeen atomic.Int64 // Unix time in ns of the last bytes
	ended    sync.Once
}

func (c *watchedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	switch {
	case err == nil:
		c.lastSeen.Store(time.Now().UnixNano())
	case errors.Is(err, syscall.ECONNRESET):
		c.end(causeReset)
	case errors.Is(err, syscall.ETIMEDOUT): // the peer did not acknowledge what was sent
		c.end(causeSilent)
	case !errors.Is(err, net.ErrClosed):
		c.end(causeClosed)
	}
	return n, err
}

func (c *watchedConn) Close() error {
	cause := causeRefused
	if time.Since(time.Unix(0, c.lastSeen.Load())) >= pingTimeout {
		cause = causeSilent
	}
	c.end(cause)
	return c.Conn.Close()
}

func (c *watchedConn) end(cause string) {
	c.ended.Do(func() { c.tracker.connectionEnded(c.RemoteAddr().String(), cause) })
}
