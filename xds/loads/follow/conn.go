package follow

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

// connectTimeout bounds a connection with its TLS handshake, also on a busy machine.
const connectTimeout = 2 * time.Second

// A Conn is a connection to a Steelyard, which connects when it is used.
type Conn struct {
	*grpc.ClientConn

	mu     sync.Mutex
	latest net.Conn // nil before the first; it may be closed
}

// Dial makes a connection to the xDS listener of a Steelyard, host:port; nil credentials mean plain text.
func Dial(address string, c credentials.TransportCredentials) (*Conn, error) {
	if c == nil {
		c = insecure.NewCredentials()
	}
	out := &Conn{}
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(c),
		grpc.WithContextDialer(out.dial),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: firstRetry, Multiplier: 1.5,
			MaxDelay: longestRetry}, MinConnectTimeout: connectTimeout}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 2 * time.Second}))
	if err != nil {
		return nil, fmt.Errorf("connecting to Steelyard at %s: %w", address, err)
	}
	out.ClientConn = conn
	return out, nil
}

// Renew closes what is open, so that gRPC connects again, behind a load balancer perhaps to another replica: a process
// that hangs keeps its connections open.
func (c *Conn) Renew() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.latest != nil {
		_ = c.latest.Close()
	}
}

// dial returns what it dialled unwrapped: gRPC sets options of the socket.
func (c *Conn) dial(ctx context.Context, address string) (net.Conn, error) {
	var d net.Dialer
	open, err := d.DialContext(ctx, "tcp", address)
	if err == nil {
		c.mu.Lock()
		c.latest = open
		c.mu.Unlock()
	}
	return open, err
}
