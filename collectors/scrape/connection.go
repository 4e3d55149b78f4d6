package scrape

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"

	"steelyard/internal/credentials"
)

const (
	// maxHeader bounds a response's header, in bytes.
	maxHeader = 64 << 10
	// maxInterim bounds the answers, such as 103, that may precede the response.
	maxInterim = 5
)

// A connection is the round tripper of one target. It keeps one connection from fetch to fetch and does all its work in
// the goroutine of the caller, one exchange at a time. The transport of net/http has two goroutines for each connection
// and passes every request and response between them, which for a page on loopback costs more than the system calls do.
//
// HTTP/1.1 only: over one HTTP/2 connection a hanging page would delay the pings of the next fetch instead of being
// closed. No proxy: a scrape is between two machines of one network. No compression: it would save network bytes and
// cost the server, every 250 ms, time that its requests need.
type connection struct {
	network  *network
	tls      credentials.Client
	deadline time.Time // of the exchange

	bound context.Context // ends the exchanges
	free  func() bool     // stops the AfterFunc of bound

	mu      sync.Mutex // guards the fields below against abort
	conn    *stream    // nil while there is none
	aborted bool
}

// begin sets the end of the exchange that follows. The exchange ends early, with an error, when ctx does, and then
// there can be no other. Using the same context for all exchanges makes this cheap.
func (c *connection) begin(ctx context.Context, deadline time.Time) {
	c.deadline = deadline
	if ctx == c.bound {
		return
	}
	c.unbind()
	c.bound, c.free = ctx, context.AfterFunc(ctx, c.abort)
}

// rest ends the exchange.
func (c *connection) rest() {
	if c.conn != nil {
		c.conn.rest()
	}
}

// unbind detaches the connection from the context.
func (c *connection) unbind() {
	if c.free != nil {
		c.free()
	}
}

// end closes the connection permanently.
func (c *connection) end() {
	c.unbind()
	c.close()
}

// abort makes the exchange fail at once, and any later one.
func (c *connection) abort() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.aborted = true
	if c.conn != nil {
		_ = c.conn.SetDeadline(time.Unix(1, 0)) // it fails for a closed connection, and so do its exchanges
	}
}

// close closes the connection that is kept.
func (c *connection) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}

// use keeps s as the connection and sets its deadline.
func (c *connection) use(s *stream) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn = s
	if c.aborted {
		return context.Canceled
	}
	return s.SetDeadline(c.deadline)
}

// RoundTrip sends a request and returns the response, whose body must be read before the next request. A kept
// connection that the server has closed in the meantime is replaced, once.
func (c *connection) RoundTrip(r *http.Request) (*http.Response, error) {
	if kept := c.conn; kept != nil {
		response, err := c.exchange(kept, r)
		if !errors.Is(err, errGone) {
			return response, err
		}
	}
	s, err := c.dial(r)
	if err != nil {
		return nil, err
	}
	return c.exchange(s, r)
}

// dial opens a connection to the host of the request.
func (c *connection) dial(r *http.Request) (*stream, error) {
	ctx, cancel := context.WithDeadline(r.Context(), c.deadline)
	defer cancel()
	dial := c.dialPlain
	if r.URL.Scheme == "https" {
		dial = c.dialTLS
	}
	conn, err := dial(ctx, r.URL)
	if err != nil {
		return nil, err
	}
	return &stream{Conn: conn}, nil
}

func (c *connection) dialPlain(ctx context.Context, u *url.URL) (net.Conn, error) {
	return c.network.connect(ctx, net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "80")))
}

func (c *connection) dialTLS(ctx context.Context, u *url.URL) (net.Conn, error) {
	config, err := c.network.config(ctx, c.tls)
	if err != nil {
		return nil, err
	}
	if config.ServerName == "" {
		config.ServerName = u.Hostname()
	}
	conn, err := c.network.connect(ctx, net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "443")))
	if err != nil {
		return nil, err
	}
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, err // unwrapped: net/http recognizes the answer of a server without TLS
	}
	return secure, nil
}

// exchange sends the request and reads the header of the response. After an error the
// connection is closed.
func (c *connection) exchange(s *stream, r *http.Request) (*http.Response, error) {
	err := c.use(s)
	var response *http.Response
	if err == nil {
		response, err = s.exchange(r)
	}
	if err != nil {
		c.close()
		return nil, err
	}
	response.Body = &body{
		ReadCloser: response.Body, owner: c,
		ended: response.ContentLength == 0,
		last:  response.Close || response.StatusCode == http.StatusSwitchingProtocols,
	}
	return response, nil
}

// A stream is an open connection.
type stream struct {
	net.Conn
	reader   *bufio.Reader // nil between two exchanges, see rest
	left     int           // bytes that a header may still have
	used     bool          // this is not the first exchange
	received bool          // the server has sent something in this exchange
}

// readers is a pool shared by all connections, because most are idle most of the time.
var readers = sync.Pool{New: func() any { return bufio.NewReader(nil) }}

// wake gets a reader for an exchange.
func (s *stream) wake() {
	if s.reader == nil {
		s.reader = readers.Get().(*bufio.Reader)
		s.reader.Reset(s)
	}
}

// rest returns the reader to the pool after an exchange. A reader that has more than the answer is kept, so that the
// next exchange finds the rest.
func (s *stream) rest() {
	if s.reader == nil || s.reader.Buffered() > 0 {
		return
	}
	s.reader.Reset(nil)
	readers.Put(s.reader)
	s.reader = nil
}

// unsolicited reports whether the server has sent something before the request.
func (s *stream) unsolicited() bool {
	return s.reader != nil && s.reader.Buffered() > 0
}

// errGone means that the server had closed the connection before it received the request.
var errGone = errors.New("the connection was closed while it was idle")

// Read is called by the bufio.Reader; it enforces maxHeader.
func (s *stream) Read(p []byte) (int, error) {
	if s.left <= 0 {
		return 0, fmt.Errorf("the response's header is longer than %d bytes", maxHeader)
	}
	n, err := s.Conn.Read(p)
	s.left -= n
	s.received = s.received || n > 0
	return n, err
}

// exchange sends a request and reads the header of the response.
func (s *stream) exchange(r *http.Request) (*http.Response, error) {
	if s.unsolicited() {
		return nil, errGone // or about to be
	}
	s.wake()
	s.left, s.received = maxHeader, false
	response, err := s.send(r)
	if err != nil && s.used && !s.received && !errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("%w: %w", errGone, err)
	}
	s.left, s.used = math.MaxInt, true
	return response, err
}

func (s *stream) send(r *http.Request) (*http.Response, error) {
	if err := r.Write(s.Conn); err != nil {
		return nil, err
	}
	for range maxInterim + 1 {
		response, err := http.ReadResponse(s.reader, r)
		if err != nil {
			return nil, err
		}
		if interim := response.StatusCode < 200 && response.StatusCode != http.StatusSwitchingProtocols; !interim {
			return response, nil
		}
	}
	return nil, fmt.Errorf("more than %d answers before the response", maxInterim)
}

// A body decides whether its connection can be used again: only after the whole body.
type body struct {
	io.ReadCloser
	owner       *connection
	ended, last bool
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.ended = b.ended || err == io.EOF
	return n, err
}

// Close does not close the inner body, because that would read it to its end.
func (b *body) Close() error {
	if !b.ended || b.last {
		b.owner.close()
	}
	return nil
}
