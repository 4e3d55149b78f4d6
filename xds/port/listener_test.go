package port

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"steelyard/e2e/rig/output"
)

// arrivals is a listener whose connections and errors come from the test: a machine has too few addresses, and no test
// can make the kernel's accept fail.
type arrivals struct {
	next   chan any // a net.Conn or an error
	closed chan struct{}
}

func (a *arrivals) Accept() (net.Conn, error) {
	select {
	case v := <-a.next:
		if err, failed := v.(error); failed {
			return nil, err
		}
		return v.(net.Conn), nil
	case <-a.closed:
		return nil, net.ErrClosed
	}
}

func (a *arrivals) Close() error   { close(a.closed); return nil }
func (a *arrivals) Addr() net.Addr { return &net.TCPAddr{} }

// from is a connection from a remote address. The peer has its other end.
type from struct {
	net.Conn
	remote *net.TCPAddr
}

func (f from) RemoteAddr() net.Addr { return f.remote }
func (f from) LocalAddr() net.Addr  { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 18000} }

// A harness is a listener that accepts all connections.
type harness struct {
	t        *testing.T
	listener *Listener
	arrivals *arrivals
	accepted chan net.Conn
	log      *output.Buffer
	ports    int
}

func newHarness(t *testing.T, o Options) *harness {
	h := &harness{t: t, arrivals: &arrivals{make(chan any), make(chan struct{})}, accepted: make(chan net.Conn, 1),
		log: new(output.Buffer)}
	o.Log = slog.New(slog.NewTextHandler(h.log, nil))
	h.listener = newListener(h.arrivals, o)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := h.listener.Accept()
			if err != nil {
				if !errors.Is(err, net.ErrClosed) {
					t.Errorf("Accept: %v", err)
				}
				return
			}
			h.accepted <- c
		}
	}()
	t.Cleanup(func() {
		h.listener.Close()
		h.listener.CloseConnections()
		<-done
	})
	return h
}

// A visit has both ends of a connection. The server's end is nil if the listener refused it.
type visit struct{ peer, server net.Conn }

// come connects from an IP address. It needs a synctest bubble.
func (h *harness) come(ip string) visit {
	h.t.Helper()
	ours, theirs := net.Pipe()
	h.ports++
	h.arrivals.next <- from{theirs, &net.TCPAddr{IP: net.ParseIP(ip), Port: h.ports}}
	synctest.Wait()
	select {
	case c := <-h.accepted:
		return visit{ours, c}
	default:
		return visit{ours, nil}
	}
}

// open reports whether the server has left the connection open.
func (v visit) open() bool {
	_ = v.peer.SetReadDeadline(time.Now())
	_, err := v.peer.Read(make([]byte, 1))
	return errors.Is(err, os.ErrDeadlineExceeded)
}

// stream opens a stream on the connection.
func (v visit) stream() { v.server.(*conn).Busy(true) }

func (v visit) endStream() { v.server.(*conn).Busy(false) }

func TestANewConnectionReplacesTheOneIdleForLongest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, Options{Connections: 3, PerAddress: 3})
		a, b, c := h.come("10.0.1.1"), h.come("10.0.1.2"), h.come("10.0.1.3")
		a.stream()
		b.stream()
		b.endStream() // idle again, and for a shorter time than c
		d := h.come("10.0.1.4")
		if d.server == nil || !a.open() || !b.open() || c.open() || !d.open() {
			t.Errorf("open: %v %v %v %v, want all but the third", a.open(), b.open(), c.open(), d.open())
		}
		s := h.listener.Stats().Connections
		if s.Used != 3 || s.Limit != 3 || s.Refused != 0 || s.Displaced != 1 || s.LastDisplaced.IsZero() {
			t.Errorf("%+v, want 3 of 3, and one displaced", s)
		}
	})
}

func TestANewConnectionIsRefusedIfNoneIsIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, Options{Connections: 2, PerAddress: 2})
		a, b := h.come("10.0.1.1"), h.come("10.0.1.2")
		a.stream()
		b.stream()
		refused := h.come("10.0.1.3")
		if refused.server != nil || refused.open() || !a.open() || !b.open() {
			t.Errorf("the third was accepted, or one of those with streams closed")
		}
		if s := h.listener.Stats().Connections; s.Used != 2 || s.Refused != 1 || s.LastRefused.IsZero() ||
			s.Displaced != 0 {
			t.Errorf("%+v, want one refused", s)
		}
		b.server.Close()
		b.server.Close() // frees one place, not two
		if again := h.come("10.0.1.3"); again.server == nil {
			t.Error("no connection was accepted in place of one that was closed")
		}
		if s := h.listener.Stats().Connections; s.Used != 2 {
			t.Errorf("%d connections, want 2", s.Used)
		}
	})
}

func TestTheConnectionsOfAnAddressAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, Options{Connections: 10, PerAddress: 2})
		other := h.come("10.0.1.9") // idle for longest, but from another address
		a, b := h.come("10.0.1.1"), h.come("10.0.1.1")
		a.stream()
		c := h.come("::ffff:10.0.1.1") // the same address, as a dual-stack listener reports it
		if c.server == nil || !a.open() || b.open() || !other.open() {
			t.Errorf("open: %v %v %v, want the idle one of the same address closed", other.open(), a.open(), b.open())
		}
		c.stream()
		if refused := h.come("10.0.1.1"); refused.server != nil || refused.open() {
			t.Error("a third connection of an address was accepted")
		}
		if h.come("10.0.1.2").server == nil {
			t.Error("another address was refused")
		}
		s := h.listener.Stats()
		if s.ConnectionsPerAddress.Used != 2 || s.ConnectionsPerAddress.Limit != 2 ||
			s.ConnectionsPerAddress.Refused != 1 ||
			s.ConnectionsPerAddress.Displaced != 1 || s.Connections.Used != 4 || s.Connections.Refused != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// TestANetworkOfIPv6CountsAsOneAddress: a machine has all addresses of its /64 to connect from.
func TestANetworkOfIPv6CountsAsOneAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, Options{Connections: 100, PerAddress: 2})
		for _, ip := range []string{"2001:db8:0:1::1", "2001:db8:0:1:ffff:ffff:ffff:ffff"} {
			h.come(ip).stream()
		}
		if v := h.come("2001:db8:0:1::2"); v.server != nil || v.open() {
			t.Error("a third connection of a /64 was accepted")
		}
		for _, ip := range []string{"2001:db8:0:2::1", "::ffff:10.0.1.1", "::ffff:10.0.1.2", "::ffff:10.0.1.3"} {
			if h.come(ip).server == nil {
				t.Errorf("%s was refused, though nothing else of its /64, or of its IPv4 address, is connected", ip)
			}
		}
		if s := h.listener.Stats().ConnectionsPerAddress; s.Used != 2 || s.Refused != 1 {
			t.Errorf("%+v, want the two of the /64, and one refused", s)
		}
	})
}

// TestFewFileDescriptorsLeaveSomeForOtherAddresses: without this, a limit per address that was chosen for a fleet would
// limit nothing if open files are few.
func TestFewFileDescriptorsLeaveSomeForOtherAddresses(t *testing.T) {
	for _, tt := range []struct{ connections, each, room, wantTotal, wantEach int }{
		{100, 75, 1000, 100, 75},
		{100, 75, 80, 80, 60},
		{100, 75, 40, 40, 30},
		{100, 100, 1000, 100, 100}, // as configured
		{100, 20, 40, 40, 20},
		{100, 90, 1000, 100, 90},
		{100, 75, 1, 1, 1},
	} {
		l := newListener(&arrivals{closed: make(chan struct{})},
			Options{Connections: tt.connections, PerAddress: tt.each})
		l.SetRoom(tt.room)
		if s := l.Stats(); s.Connections.Limit != tt.wantTotal || s.ConnectionsPerAddress.Limit != tt.wantEach {
			t.Errorf("%+v: limits %d and %d", tt, s.Connections.Limit, s.ConnectionsPerAddress.Limit)
		}
	}
}

// TestABusyConnectionIsDisplacedOnAPortOfShortRequests: a peer that does not read its answer is busy for ever.
func TestABusyConnectionIsDisplacedOnAPortOfShortRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, Options{Connections: 3, PerAddress: 2, DisplaceBusy: true})
		first, second, other := h.come("10.0.1.1"), h.come("10.0.1.1"), h.come("10.0.1.2")
		second.stream() // and does not read the answer
		first.stream()
		first.endStream()
		probe := h.come("10.0.1.1")
		if probe.server == nil || first.open() || !second.open() || !other.open() {
			t.Errorf("open: %v %v %v, want the oldest connection of the address closed, whatever it did since",
				first.open(), second.open(), other.open())
		}
		second.endStream()
		other.stream()
		probe.stream()
		third := h.come("10.0.1.3")
		if third.server == nil || second.open() || !other.open() || !probe.open() {
			t.Errorf("open: %v %v %v, want the oldest of all closed", second.open(), other.open(), probe.open())
		}
		if s := h.listener.Stats(); s.Connections.Refused != 0 || s.ConnectionsPerAddress.Refused != 0 ||
			s.Connections.Displaced != 1 || s.ConnectionsPerAddress.Displaced != 1 || s.Connections.Used != 3 {
			t.Errorf("%+v, want two displaced, none refused", s)
		}
	})
}

// TestTheFewerConnectionsAreLeftTheFewerOneAddressMayTake: 766 is what 1024 open files leave room for.
func TestTheFewerConnectionsAreLeftTheFewerOneAddressMayTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, Options{Connections: 32_768, PerAddress: 24_576})
		h.listener.SetRoom(766)
		for i := range 1600 { // two strangers, in turns
			if v := h.come(fmt.Sprintf("10.0.1.%d", i%2)); v.server != nil {
				v.stream()
			}
		}
		s := h.listener.Stats()
		if s.Connections.Used > 660 || s.Connections.Used < 650 || s.ConnectionsPerAddress.Used > 330 ||
			s.ConnectionsPerAddress.Limit != s.ConnectionsPerAddress.Used ||
			s.ConnectionsPerAddress.Refused == 0 || s.Connections.Refused != 0 {
			t.Errorf("%+v, want 328 connections for each of two addresses", s)
		}
		for i := range 30 { // Envoys with a worker thread each
			for range 2 {
				v := h.come(fmt.Sprintf("10.0.2.%d", i))
				if v.server == nil {
					t.Fatalf("Envoy %d of 30 was refused", i+1)
				}
				v.stream()
			}
		}
	})
}

func TestTheListenerSurvivesAcceptErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, Options{Connections: 10, PerAddress: 10})
		idle, busy := h.come("10.0.1.1"), h.come("10.0.1.1")
		busy.stream()
		start := time.Now()
		for range 100 {
			h.arrivals.next <- &net.OpError{Op: "accept", Net: "tcp",
				Err: os.NewSyscallError("accept4", syscall.EMFILE)}
		}
		h.arrivals.next <- errors.New("an unknown error")
		if h.come("10.0.1.2").server == nil {
			t.Error("nothing was accepted after the errors")
		}
		if took := time.Since(start); took < 50*time.Second || took > 101*time.Second {
			t.Errorf("101 errors took %v, want retries that are at most a second apart", took)
		}
		if idle.open() || !busy.open() {
			t.Error("want the idle connection closed for its file descriptor, and the other one open")
		}
		if s := h.listener.Stats(); s.AcceptErrors != 101 || s.LastAcceptError != "an unknown error" ||
			s.LastAcceptErrorAt.IsZero() {
			t.Errorf("%+v, want 101 errors", s)
		}
		if lines := strings.Count(h.log.String(), "cannot be accepted"); lines < 9 || lines > 11 {
			t.Errorf("%d lines for 101 errors in 97 s, want one every ten seconds", lines)
		}
	})
}

func TestCloseInterruptsTheRetriesOfAccept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, Options{Connections: 10, PerAddress: 10})
		for range 20 {
			h.arrivals.next <- syscall.EMFILE
		}
		start := time.Now()
		h.listener.Close()
		synctest.Wait()
		if took := time.Since(start); took != 0 {
			t.Errorf("it took %v", took)
		}
	})
}

// TestTheLogSumsUpRefusals: a peer can cause thousands a second.
func TestTheLogSumsUpRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, Options{Connections: 1, PerAddress: 1})
		h.come("10.0.1.1").stream()
		count := func() (lines []string) {
			return regexp.MustCompile(`refused.*address=(\S+) limit=1 count=\d+`).FindAllString(h.log.String(), -1)
		}
		for range 1000 {
			h.come("10.0.1.2")
		}
		if lines := count(); len(lines) != 1 || !strings.HasSuffix(lines[0], "address=10.0.1.2 limit=1 count=1") {
			t.Errorf("at once: %q, want one line", lines)
		}
		time.Sleep(sumsEvery + time.Second)
		if lines := count(); len(lines) != 2 || !strings.HasSuffix(lines[1], "count=999") {
			t.Errorf("after %v: %q, want one more with the sum", sumsEvery, lines)
		}
		time.Sleep(2 * sumsEvery)
		h.come("10.0.1.2")
		if lines := count(); len(lines) != 3 || !strings.HasSuffix(lines[2], "count=1") {
			t.Errorf("later: %q, want a line at once", lines)
		}
	})
}

// TestCloseClosesConnectionsThatNeverHadAStream: a server that stops waits for handshakes, and lets the streams that it
// serves end.
func TestCloseClosesConnectionsThatNeverHadAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, Options{Connections: 10, PerAddress: 10})
		silent, served, was := h.come("10.0.1.1"), h.come("10.0.1.1"), h.come("10.0.1.1")
		served.stream()
		was.stream()
		was.endStream()
		h.listener.Close()
		if silent.open() || !served.open() || !was.open() {
			t.Errorf("open: %v %v %v, want all but the first", silent.open(), served.open(), was.open())
		}
		h.listener.CloseConnections()
		if served.open() || was.open() {
			t.Error("connections are still open")
		}
		served.endStream() // a stream may end after its connection
		if s := h.listener.Stats(); s.Connections.Used != 0 || s.ConnectionsPerAddress.Used != 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestListenUsesTCP(t *testing.T) {
	l, err := Listen("127.0.0.1:0", Options{Connections: 1, PerAddress: 1, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprint(server, "hello"); err != nil {
		t.Fatal(err)
	}
	server.Close()
	if got, err := io.ReadAll(client); err != nil || string(got) != "hello" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := Listen(l.Addr().String(), Options{}); err == nil {
		t.Error("Listen bound a port that is in use")
	}
	if err := errors.Join(l.Close(), l.Close()); err != nil {
		t.Error(err)
	}
}
