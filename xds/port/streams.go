package port

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// Intercept is the interceptor for the gRPC server on this listener: it bounds the streams, and marks the
// connections that have any as not idle.
func (l *Listener) Intercept(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	p, ok := peer.FromContext(stream.Context())
	if !ok || p.Addr == nil {
		return status.Error(codes.Internal, "the connection has no address")
	}
	connection := p.Addr.String()
	if !l.streams.Take(connection) {
		l.refusedStreams.add("peer", connection, "limit", l.options.Streams)
		return status.Errorf(codes.ResourceExhausted, "there are as many streams as are served, %d, and this connection has its share of them", l.options.Streams)
	}
	defer l.streams.Give(connection)
	end, ok := l.begin(pairOf(p.Addr, p.LocalAddr))
	if !ok {
		return status.Error(codes.Unavailable, "the connection is closed")
	}
	defer end()
	return handler(srv, stream)
}

// begin notes that a stream begins on the connection, and returns what notes its end; false when the connection
// is closed.
func (l *Listener) begin(which pair) (end func(), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.table.open[which]
	if c == nil {
		return nil, false
	}
	l.table.begin(c)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.table.end(c)
	}, true
}
