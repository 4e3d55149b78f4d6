package inflight

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// maxReply bounds what Redis may send in answer to one write, in bytes. The answer to a poll of 50 sets of MaxMembers
// addresses is smaller.
const maxReply = 32 << 20

// A dialer makes the connections of one Run and can be stopped: the library dials in its own goroutines and does not
// wait for them.
type dialer struct {
	tls     tlsConfig // nil: plain
	timeout time.Duration

	mu      sync.Mutex
	stopped bool
	stop    context.CancelFunc
	ctx     context.Context // done when the dialer is stopped
	dials   sync.WaitGroup
}

// A tlsConfig returns the configuration for one connection to a host.
type tlsConfig func(ctx context.Context, host string) (*tls.Config, error)

func newDialer(c tlsConfig, timeout time.Duration) *dialer {
	d := &dialer{tls: c, timeout: timeout}
	d.ctx, d.stop = context.WithCancel(context.Background())
	return d
}

// close ends the dials under way, waits for them and refuses new ones.
func (d *dialer) close() {
	d.mu.Lock()
	d.stopped = true
	d.mu.Unlock()
	d.stop()
	d.dials.Wait()
}

// begin admits one dial, unless the dialer is closed.
func (d *dialer) begin() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.stopped {
		d.dials.Add(1)
	}
	return !d.stopped
}

func (d *dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if !d.begin() {
		return nil, errors.New("the poller has stopped")
	}
	defer d.dials.Done()
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	defer context.AfterFunc(d.ctx, cancel)()

	plain := net.Dialer{KeepAlive: 15 * time.Second}
	c, err := plain.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if d.tls == nil {
		return bounded(&plainConn{Conn: c}), nil
	}
	host, _, _ := net.SplitHostPort(address)
	config, err := d.tls(ctx, host)
	if err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("TLS with Redis at %s: %w", address, err)
	}
	secure := tls.Client(c, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("TLS with Redis at %s: %w", address, err)
	}
	return bounded(secure), nil
}

// A plainConn says so when its peer expects TLS: Redis sends an alert of TLS, or nothing, and hangs up.
type plainConn struct {
	net.Conn
	answered atomic.Bool
}

func (p *plainConn) Read(b []byte) (int, error) {
	const alert = 0x15 // the first byte of the record
	n, err := p.Conn.Read(b)
	switch {
	case p.answered.Load():
	case n > 0 && b[0] != alert:
		p.answered.Store(true)
	case n > 0 || errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET):
		err = fmt.Errorf("Redis at %s hangs up before it answers: configure redis.tls, if it expects TLS: %w",
			p.RemoteAddr(), cmp.Or(err, io.EOF))
		return 0, fmt.Errorf("%w", err) // the library unwraps an error of a new connection once
	}
	return n, err
}

// A boundedConn refuses to read an endless answer.
type boundedConn struct {
	net.Conn
	left atomic.Int64 // bytes that may still come before the next write
}

func bounded(c net.Conn) net.Conn {
	b := &boundedConn{Conn: c}
	b.left.Store(maxReply)
	return b
}

func (b *boundedConn) Write(p []byte) (int, error) {
	b.left.Store(maxReply)
	return b.Conn.Write(p)
}

func (b *boundedConn) Read(p []byte) (int, error) {
	n, err := b.Conn.Read(p)
	if b.left.Add(-int64(n)) < 0 {
		return 0, fmt.Errorf("answer of Redis at %s is above %d bytes", b.RemoteAddr(), maxReply)
	}
	return n, err
}

// mayNot reports whether a script failed because the ACL user may not do what it does. Redis 7.0 names commands in a
// script that are not allowed by a sentence, not by the code.
func mayNot(err error) bool {
	return redis.HasErrorPrefix(err, "NOPERM") ||
		err != nil && strings.Contains(err.Error(), "The user executing the script can't")
}
