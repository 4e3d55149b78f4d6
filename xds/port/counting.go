package port

import (
	"context"
	"net"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/stats"
)

// Credentials returns credentials for the gRPC server on this listener that count what its peers send. c is nil for
// plain text.
func (l *Listener) Credentials(c credentials.TransportCredentials) credentials.TransportCredentials {
	if c == nil {
		c = insecure.NewCredentials()
	}
	return countingCredentials{c, l}
}

type countingCredentials struct {
	credentials.TransportCredentials
	listener *Listener
}

func (c countingCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	plain, info, err := c.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return plain, info, err
	}
	if known := c.listener.connection(raw.RemoteAddr(), raw.LocalAddr()); known != nil {
		c.listener.unread.add(known)
		plain = newFrameConn(plain, known)
	}
	return plain, info, nil
}

func (c countingCredentials) Clone() credentials.TransportCredentials {
	return countingCredentials{c.TransportCredentials.Clone(), c.listener}
}

// Deliveries returns the stats handler for the gRPC server on this listener, which counts what handlers receive.
func (l *Listener) Deliveries() stats.Handler { return deliveries{l} }

type deliveries struct{ listener *Listener }

type (
	connKey     struct{}
	deliveryKey struct{}
)

func (h deliveries) TagConn(ctx context.Context, info *stats.ConnTagInfo) context.Context {
	return context.WithValue(ctx, connKey{}, h.listener.connection(info.RemoteAddr, info.LocalAddr))
}

func (deliveries) HandleConn(context.Context, stats.ConnStats) {}

func (deliveries) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context {
	c, _ := ctx.Value(connKey{}).(*conn)
	return context.WithValue(ctx, deliveryKey{}, &delivery{conn: c})
}

func (h deliveries) HandleRPC(ctx context.Context, event stats.RPCStats) {
	d, ok := ctx.Value(deliveryKey{}).(*delivery)
	if !ok {
		return
	}
	switch e := event.(type) {
	case *stats.InPayload:
		h.listener.unread.deliver(d, e.WireLength)
	case *stats.End:
		h.listener.unread.endDelivery(d)
	}
}
