package access

import (
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// closeSoon closes the connection of a stream that was denied, after a while: a client shows another certificate only
// on another connection. It stays open for a client that watches something else on it, whose service would end with it.
// The caller holds the lock.
func (g *Guard) closeSoon(s *stream) {
	c := g.connection(s)
	if c.closing || g.Disconnect == nil || s.peer == nil {
		g.forget(s.address, c)
		return
	}
	c.closing = true
	time.AfterFunc(patience, func() { g.close(s.peer, s.address, c) })
}

// close ends the streams of a connection and then closes it, unless one of them watches something.
func (g *Guard) close(p *peer.Peer, address string, c *connection) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c.closing = false
	defer g.forget(address, c)
	for s := range c.streams {
		if s.watches() {
			return
		}
	}
	for s := range c.streams {
		s.end(status.Error(codes.Unavailable, "what this connection asked for was denied: connect again"))
	}
	time.AfterFunc(farewell, func() { g.Disconnect(p) })
}

func (s *stream) watches() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.watched) > 0
}
