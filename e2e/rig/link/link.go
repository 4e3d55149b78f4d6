// Package link is a network connection that tests disturb: a TCP proxy between a client, which is configured with the
// link's address, and a server.
package link

import (
	"net"
	"sync"
	"time"
)

// A Link forwards connections. Its methods may be called from any goroutine.
type Link struct {
	listener net.Listener
	running  sync.WaitGroup

	mu       sync.Mutex
	changed  *sync.Cond // of what follows
	target   string
	hanging  bool
	refusing bool
	open     map[net.Conn]struct{} // of clients and of the server
}

// Open listens on an address and forwards connections to the target.
func Open(address, target string) (*Link, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	l := &Link{listener: listener, target: target, open: make(map[net.Conn]struct{})}
	l.changed = sync.NewCond(&l.mu)
	l.running.Go(l.accept)
	return l, nil
}

// Address returns where clients connect, host:port.
func (l *Link) Address() string { return l.listener.Addr().String() }

// Hang lets no byte pass until the call with false: connections stay open, and nothing is lost.
func (l *Link) Hang(hang bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hanging = hang
	l.changed.Broadcast()
}

// Refuse resets all open connections and each new one, until the call with false.
func (l *Link) Refuse(refuse bool) {
	l.mu.Lock()
	l.refusing = refuse
	l.mu.Unlock()
	if refuse {
		l.Reset()
	}
}

// Reset ends all open connections with a RST, so that data in transit is lost.
func (l *Link) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		reset(c)
	}
	clear(l.open)
	l.changed.Broadcast()
}

// Point resets all open connections, and leads new ones to another target.
func (l *Link) Point(target string) {
	l.mu.Lock()
	l.target = target
	l.mu.Unlock()
	l.Reset()
}

// Lead leads new connections to another target, and leaves the open ones as they are.
func (l *Link) Lead(target string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.target = target
}

// Close ends all connections and returns when no goroutine of the link is left.
func (l *Link) Close() {
	_ = l.listener.Close()
	l.Refuse(true)
	l.running.Wait()
}

func (l *Link) accept() {
	for {
		client, err := l.listener.Accept()
		if err != nil {
			return // closed
		}
		l.running.Go(func() { l.carry(client) })
	}
}

// carry connects a client and copies both ways until either side ends, which ends the other: no protocol that goes
// through a link closes only one direction.
func (l *Link) carry(client net.Conn) {
	if !l.admit(client) || !l.passes(client) {
		reset(client)
		return
	}
	defer l.end(client)
	l.mu.Lock()
	target := l.target
	l.mu.Unlock()
	server, err := net.DialTimeout("tcp", target, time.Second)
	if err != nil {
		reset(client)
		return
	}
	defer l.end(server)
	if !l.admit(server) {
		return
	}
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
		both.Go(func() {
			defer l.end(way[0])
			defer l.end(way[1])
			l.copy(way[0], way[1])
		})
	}
	both.Wait()
}

func (l *Link) copy(from, to net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if !l.passes(from) {
			return
		}
		if _, werr := to.Write(buffer[:n]); err != nil || werr != nil {
			return
		}
	}
}

// admit notes a connection, unless the link refuses it.
func (l *Link) admit(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.refusing {
		l.open[c] = struct{}{}
	}
	return !l.refusing
}

// passes waits while the link hangs, and reports whether the connection is still open.
func (l *Link) passes(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		if _, open := l.open[c]; !open || !l.hanging {
			return open
		}
		l.changed.Wait()
	}
}

func (l *Link) end(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = c.Close()
	delete(l.open, c)
	l.changed.Broadcast() // the other direction may wait
}

func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}
