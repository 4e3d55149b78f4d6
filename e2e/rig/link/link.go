package chaos

import (
	"net"
	"sync"
	"time"
)

// A link is a network connection that can be disturbed: a TCP proxy between a client, which is configured with the
// link's address, and a server.
type link struct {
	target   string
	listener net.Listener
	gate     gate // shut: no byte passes

	mu       sync.Mutex
	refusing bool
	open     map[*pair]struct{}

	running sync.WaitGroup
}

// A pair is a client's connection and the one to the server that belongs to it.
type pair struct {
	client, server net.Conn      // server is nil until it is dialled
	ended          chan struct{} // closed with the connections
	ending         sync.Once
}

// openLink listens on address and forwards connections to target.
func openLink(address, target string) (*link, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	l := &link{target: target, listener: listener, open: make(map[*pair]struct{})}
	l.running.Go(l.accept)
	return l, nil
}

func (l *link) accept() {
	for {
		client, err := l.listener.Accept()
		if err != nil {
			return // closed
		}
		p := &pair{client: client, ended: make(chan struct{})}
		if !l.admit(p) {
			p.end(true)
			continue
		}
		l.running.Go(func() { l.carry(p) })
	}
}

func (l *link) admit(p *pair) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.refusing {
		l.open[p] = struct{}{}
	}
	return !l.refusing
}

// carry connects the pair and copies both ways until either side ends, which ends the other: no protocol that goes
// through a link closes only one direction.
func (l *link) carry(p *pair) {
	defer l.drop(p)
	if !l.gate.pass(p.ended) {
		return
	}
	server, err := net.DialTimeout("tcp", l.target, time.Second)
	if err != nil {
		l.end(p, true)
		return
	}
	l.mu.Lock()
	p.server = server
	l.mu.Unlock()
	select {
	case <-p.ended: // while it was dialled
		_ = server.Close()
		return
	default:
	}
	var both sync.WaitGroup
	both.Go(func() { l.copy(p, p.client, p.server) })
	both.Go(func() { l.copy(p, p.server, p.client) })
	both.Wait()
}

func (l *link) copy(p *pair, from, to net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if !l.gate.pass(p.ended) {
			return
		}
		if n > 0 {
			if _, werr := to.Write(buffer[:n]); werr != nil {
				err = werr
			}
		}
		if err != nil {
			l.end(p, false)
			return
		}
	}
}

func (l *link) drop(p *pair) {
	l.end(p, false)
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, p)
}

func (l *link) end(p *pair, reset bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p.end(reset)
}

// end closes both connections. With reset it sends a RST, so that data in transit is lost.
func (p *pair) end(reset bool) {
	p.ending.Do(func() {
		close(p.ended)
		for _, c := range []net.Conn{p.client, p.server} {
			if c == nil {
				continue
			}
			if tcp, ok := c.(*net.TCPConn); ok && reset {
				_ = tcp.SetLinger(0)
			}
			_ = c.Close()
		}
	})
}

// reset ends all open connections with a RST.
func (l *link) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for p := range l.open {
		p.end(true)
	}
}

// refuse resets all open connections and each new one, until admitting.
func (l *link) refuse() {
	l.mu.Lock()
	l.refusing = true
	l.mu.Unlock()
	l.reset()
}

func (l *link) admitting() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refusing = false
}

func (l *link) close() {
	_ = l.listener.Close()
	l.refuse()
	l.running.Wait()
}
