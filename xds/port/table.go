package port

import (
	"container/list"
	"net"
	"net/netip"
	"steelyard/internal/api"
	"time"
)

// A table holds the open connections of a listener. The listener's lock guards it and everything in it.
type table struct {
	open  map[pair]*conn
	hosts map[netip.Prefix]*host
	idle  list.List // of the *conn that may be displaced, the one to displace next first

	// displaceBusy: all connections are in the lists, in the order in which they were accepted. If requests renewed
	// their place, clients with many requests would displace one that waits for its first answer.
	displaceBusy bool
}

// A host is a remote address, or a network of IPv6, that has connections.
type host struct {
	network netip.Prefix
	open    int
	idle    list.List // as in the table
}

// networkOf returns what the limit per address counts as one address: an address of IPv4, a /64 of IPv6. A machine is
// usually assigned a whole /64, and can connect from each of its addresses. The address is not IPv4-mapped.
func networkOf(a netip.Addr) netip.Prefix {
	bits := 64
	if a.Is4() {
		bits = 32
	}
	network, _ := a.Prefix(bits) // the zero address has the zero prefix
	return network
}

// A pair of addresses identifies a connection of a listener.
type pair struct{ remote, local netip.AddrPort }

// A conn is an accepted connection.
type conn struct {
	net.Conn
	listener *Listener

	pair         pair
	host         *host
	streams      int           // open, and have sent a message
	used         bool          // a stream was ever opened
	closed       bool          // guarded by the lock of the budget for unread bytes
	idle, idleOf *list.Element // its elements in the lists of the table and of the host; nil unless in them
}

func newTable(displaceBusy bool) table {
	return table{open: make(map[pair]*conn), hosts: make(map[netip.Prefix]*host), displaceBusy: displaceBusy}
}

// connections returns how many connections the address has, and the one of them to displace next, nil if there is none.
func (t *table) connections(address netip.Addr) (open int, victim *conn) {
	h := t.hosts[networkOf(address)]
	if h == nil {
		return 0, nil
	}
	return h.open, first(&h.idle)
}

func first(idle *list.List) *conn {
	if e := idle.Front(); e != nil {
		return e.Value.(*conn)
	}
	return nil
}

// mostOfOneHost returns the number of connections of the address that has the most.
func (t *table) mostOfOneHost() (n int) {
	for _, h := range t.hosts {
		n = max(n, h.open)
	}
	return n
}

func (t *table) add(c *conn) {
	network := networkOf(c.pair.remote.Addr())
	h := t.hosts[network]
	if h == nil {
		h = &host{network: network}
		t.hosts[network] = h
	}
	h.open++
	c.host = h
	t.open[c.pair] = c
	t.enqueue(c)
}

// remove removes a connection, unless it was removed before.
func (t *table) remove(c *conn) {
	if t.open[c.pair] != c {
		return
	}
	delete(t.open, c.pair)
	t.dequeue(c)
	if c.host.open--; c.host.open == 0 {
		delete(t.hosts, c.host.network)
	}
}

// streamBegins and streamEnds count the streams of a connection. A stream may end after its connection was removed.
func (t *table) streamBegins(c *conn) {
	c.streams++
	c.used = true
	if !t.displaceBusy {
		t.dequeue(c)
	}
}

func (t *table) streamEnds(c *conn) {
	if c.streams--; c.streams == 0 && t.open[c.pair] == c && !t.displaceBusy {
		t.dequeue(c)
		t.enqueue(c)
	}
}

func (t *table) enqueue(c *conn) {
	c.idle, c.idleOf = t.idle.PushBack(c), c.host.idle.PushBack(c)
}

func (t *table) dequeue(c *conn) {
	if c.idle == nil {
		return
	}
	t.idle.Remove(c.idle)
	c.host.idle.Remove(c.idleOf)
	c.idle, c.idleOf = nil, nil
}

// addressesOf returns the addresses of a connection, which are zero if it is not TCP. IPv4-mapped ones become IPv4.
func addressesOf(remote, local net.Addr) pair { return pair{addrPort(remote), addrPort(local)} }

func addrPort(a net.Addr) netip.AddrPort {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	p := tcp.AddrPort()
	return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
}

func turnedAway(u *api.Bound, victim *conn) {
	if victim == nil {
		u.Refused++
		u.LastRefused = api.At(time.Now())
		return
	}
	u.Displaced++
	u.LastDisplaced = api.At(time.Now())
}
