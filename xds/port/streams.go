package port

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"steelyard/internal/api"
)

// Intercept is the interceptor for the gRPC server on this listener. It limits the number of streams, ends those
// whose first message does not arrive in time, and keeps connections from being idle while they have a stream that has
// sent a message.
func (l *Listener) Intercept(
	srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler,
) error {
	p, ok := peer.FromContext(stream.Context())
	if !ok || p.Addr == nil {
		return status.Error(codes.Internal, "the connection has no address")
	}
	connection := p.Addr.String()
	if !l.streams.Acquire(connection) {
		l.refusedStreams.Add("peer", connection, "limit", l.options.Streams)
		return status.Errorf(codes.ResourceExhausted,
			"the limit of %d open streams leaves no more of them for this connection", l.options.Streams)
	}
	defer l.streams.Release(connection)
	c := l.streamOpens(addressesOf(p.Addr, p.LocalAddr))
	if c == nil {
		return status.Error(codes.Unavailable, "the connection is closed")
	}
	s := &interceptedStream{ServerStream: stream, conn: c, timedOut: make(chan error, 1)}
	err := handler(srv, s)
	s.end()
	select {
	case err = <-s.timedOut:
		l.silent(connection)
	default:
	}
	return err
}

// streamOpens returns the connection with these addresses, nil if it is closed.
func (l *Listener) streamOpens(addresses pair) *conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.table.open[addresses]
	if c != nil {
		c.used = true
	}
	return c
}

// silent counts a stream whose first message did not arrive in time.
func (l *Listener) silent(connection string) {
	l.mu.Lock()
	l.stats.SilentStreams++
	l.stats.LastSilentStreamAt = api.At(time.Now())
	l.mu.Unlock()
	l.silentStreams.Add("peer", connection, "limit", l.options.FirstMessage)
}

// An interceptedStream keeps its connection from being idle from its first message on. It fails the first RecvMsg if
// the message does not arrive in time, so that the handler returns. RecvMsg is not called concurrently.
type interceptedStream struct {
	grpc.ServerStream
	conn     *conn
	received bool       // RecvMsg was called
	timedOut chan error // status of the stream, sent before RecvMsg fails; capacity one

	begun, ended bool // guarded by the listener's lock
}

func (s *interceptedStream) RecvMsg(m any) error {
	if s.received {
		return s.ServerStream.RecvMsg(m)
	}
	s.received = true
	first := make(chan error, 1)
	go func() { first <- s.ServerStream.RecvMsg(m) }() // returns at the latest when the stream ends
	patience := s.conn.listener.options.FirstMessage
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case err := <-first:
		if err == nil {
			s.begin()
		}
		return err
	case <-timer.C:
		err := status.Errorf(codes.DeadlineExceeded, "the stream's first message has not arrived within %v", patience)
		s.timedOut <- err
		return err
	}
}

// begin counts the stream, unless the handler has returned meanwhile.
func (s *interceptedStream) begin() {
	l := s.conn.listener
	l.mu.Lock()
	defer l.mu.Unlock()
	if !s.ended {
		s.begun = true
		l.table.streamBegins(s.conn)
	}
}

func (s *interceptedStream) end() {
	l := s.conn.listener
	l.mu.Lock()
	defer l.mu.Unlock()
	s.ended = true
	if s.begun {
		l.table.streamEnds(s.conn)
	}
}
