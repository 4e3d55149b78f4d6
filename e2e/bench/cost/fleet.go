package main

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"time"

	"steelyard/e2e/rig/proc"
)

// A fleet is a number of model servers on loopback addresses of their own, all
// with one port.
type fleet struct {
	servers []*server
	page    *page
	serving sync.WaitGroup
}

// A server is one model server.
type server struct {
	address  string
	listener net.Listener
	traffic  traffic

	mu      sync.Mutex
	reading reading
	at      time.Time // of reading
	extra   float64   // further requests that wait, see burden
	changed time.Time // when extra changed; zero once a page has shown it
	conns   map[net.Conn]struct{}
	onShown func(time.Time) // called when a page first shows the change
}

// startFleet listens and serves pages of the recording. moving servers have traffic, the
// others rest.
func startFleet(n int, moving bool, recording string) (*fleet, error) {
	p, err := newPage(recording)
	if err != nil {
		return nil, err
	}
	for range 10 { // another program may listen on the port on all addresses
		f := &fleet{page: p}
		if err = f.listen(n, moving); err == nil {
			for _, s := range f.servers {
				f.serving.Go(func() { f.accept(s) })
			}
			return f, nil
		}
		f.close()
	}
	return nil, fmt.Errorf("starting %d model servers: %w", n, err)
}

func (f *fleet) listen(n int, moving bool) error {
	free, err := proc.FreeAddress()
	if err != nil {
		return err
	}
	_, port, _ := net.SplitHostPort(free)
	for i := range n {
		address := net.JoinHostPort(fmt.Sprintf("127.1.%d.%d", i/250, 1+i%250), port)
		l, err := net.Listen("tcp", address)
		if err != nil {
			return err
		}
		s := &server{address: address, listener: l, traffic: steady{}, at: time.Now(),
			conns: make(map[net.Conn]struct{})}
		if moving {
			s.traffic = busy{rand.New(rand.NewPCG(uint64(i), 1))}
		}
		s.reading = atStart(uint64(i), s.traffic)
		f.servers = append(f.servers, s)
	}
	return nil
}

func (f *fleet) accept(s *server) {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return
		}
		if !s.keep(conn) {
			return
		}
		f.serving.Go(func() { f.answer(s, conn) })
	}
}

// keep remembers a connection for close; it reports false after close.
func (s *server) keep(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns == nil {
		conn.Close()
		return false
	}
	s.conns[conn] = struct{}{}
	return true
}

// answer writes a page for each request, until the client hangs up. What is asked
// for does not matter: there is one page.
func (f *fleet) answer(s *server, conn net.Conn) {
	defer conn.Close()
	w := writer{page: f.page}
	for r := bufio.NewReaderSize(conn, 1<<10); ; {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return
		}
		if len(line) > len("\r\n") { // an empty line ends a request
			continue
		}
		pieces := w.response(s.show(time.Now()))
		if _, err := pieces.WriteTo(conn); err != nil {
			return
		}
	}
}

// show advances the load to now and returns the values of the page.
func (s *server) show(now time.Time) reading {
	s.mu.Lock()
	defer s.mu.Unlock()
	if gone := min(now.Sub(s.at), longest); gone > 0 {
		s.traffic.advance(&s.reading, gone.Seconds())
		s.at = now
	}
	if !s.changed.IsZero() {
		s.changed = time.Time{}
		if s.onShown != nil {
			s.onShown(now)
		}
	}
	r := s.reading
	r.waiting += s.extra
	return r
}

// burden sets how many requests wait in addition to the traffic, from now on. It calls
// shown once, when a page shows them for the first time; shown must not block.
func (s *server) burden(extra float64, now time.Time, shown func(time.Time)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.extra, s.changed, s.onShown = extra, now, shown
}

// addresses lists the servers, as YAML of a static list.
func (f *fleet) yaml() string {
	var b []byte
	for _, s := range f.servers {
		b = append(b, "        - address: "...)
		b = strconv.AppendQuote(b, s.address)
		b = append(b, '\n')
	}
	return string(b)
}

// close ends all servers and waits for them.
func (f *fleet) close() error {
	var errs []error
	for _, s := range f.servers {
		errs = append(errs, s.listener.Close())
		s.mu.Lock()
		for conn := range s.conns {
			conn.Close()
		}
		s.conns = nil
		s.mu.Unlock()
	}
	f.serving.Wait()
	return errors.Join(errs...)
}
