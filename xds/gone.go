package xds

import (
	"cmp"
	"errors"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// goneFor is how long an Envoy that vanished is remembered, unless it returns.
	goneFor = 10 * time.Minute
	// maxGone is how many are. Beyond that the one that vanished first is forgotten.
	maxGone = 1024
)

// A Gone is an Envoy that vanished: its connection ended while its streams were open. One
// that stops resets them first.
type Gone struct {
	NodeID string
	Peer   string // remote address of the connection
	Since  time.Time
	Cause  string // how the connection ended
}

// How a connection can end.
const (
	causeClosed  = "the connection was closed" // by its process, or by the kernel for it
	causeReset   = "the connection was reset"
	causeSilent  = "keepalive pings were not answered"
	causeRefused = "Steelyard closed the connection"
)

// endStreams says that it is the server that ends the streams from now on.
func (t *tracker) endStreams() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closing = true
}

// Gone returns the Envoys that vanished in the last ten minutes and have not come back, the
// latest first.
func (s *Server) Gone() []Gone { return s.tracker.vanished() }

func (t *tracker) vanished() []Gone {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forgetGone()
	return slices.SortedFunc(maps.Values(t.gone), func(a, b Gone) int {
		return cmp.Or(b.Since.Compare(a.Since), cmp.Compare(a.NodeID, b.NodeID))
	})
}

func (t *tracker) forgetGone() {
	now := t.now()
	maps.DeleteFunc(t.gone, func(_ string, g Gone) bool { return now.Sub(g.Since) > goneFor })
}

// disconnected takes down that the connection of a peer has ended. It is called before the
// streams learn of it: a stream whose context is done was ended by the Envoy.
func (t *tracker) disconnected(peer, cause string) {
	if node := t.lost(peer, cause); node != "" {
		t.mu.log.Warn("envoy vanished without closing its stream", "node", node, "peer", peer, "cause", cause)
	}
}

// lost returns the node that vanished with a connection, empty when none did.
func (t *tracker) lost(peer, cause string) (node string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, st := range t.streams {
		if st.peer == peer && st.who.id != "" && st.ctx.Err() == nil && !t.closing && !t.back(st) {
			t.lose(Gone{NodeID: st.who.id, Peer: peer, Since: t.now(), Cause: cause})
			return st.who.id
		}
	}
	return ""
}

// back reports whether the Envoy of a stream has connected again since.
func (t *tracker) back(st *stream) bool {
	for _, other := range t.streams {
		if other.who.id == st.who.id && other.peer != st.peer && other.connected.After(st.connected) {
			return true
		}
	}
	return false
}

func (t *tracker) lose(g Gone) {
	if len(t.gone) >= maxGone {
		t.forgetGone()
	}
	if len(t.gone) >= maxGone {
		first := slices.MinFunc(slices.Collect(maps.Values(t.gone)), func(a, b Gone) int { return a.Since.Compare(b.Since) })
		delete(t.gone, first.NodeID)
	}
	t.gone[g.NodeID] = g
}

// Listener watches how the connections end that l accepts: without it, Gone names nobody.
func (s *Server) Listener(l net.Listener) net.Listener { return watchedListener{l, s.tracker} }

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
	w.heard.Store(time.Now().UnixNano())
	return w, nil
}

// A watchedConn tells the tracker once that it has ended. gRPC reads it in one goroutine,
// which has cancelled the streams that the peer reset before it reads the end; and it closes
// it, on a silent peer, before it cancels the streams.
type watchedConn struct {
	net.Conn
	tracker *tracker
	heard   atomic.Int64 // Unix time in ns of the last bytes
	ended   sync.Once
}

func (c *watchedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	switch {
	case err == nil:
		c.heard.Store(time.Now().UnixNano())
	case errors.Is(err, syscall.ECONNRESET):
		c.end(causeReset)
	case errors.Is(err, syscall.ETIMEDOUT): // what was sent was not acknowledged
		c.end(causeSilent)
	case !errors.Is(err, net.ErrClosed):
		c.end(causeClosed)
	}
	return n, err
}

func (c *watchedConn) Close() error {
	cause := causeRefused
	if time.Since(time.Unix(0, c.heard.Load())) >= pingTimeout {
		cause = causeSilent
	}
	c.end(cause)
	return c.Conn.Close()
}

func (c *watchedConn) end(cause string) {
	c.ended.Do(func() { c.tracker.disconnected(c.RemoteAddr().String(), cause) })
}
