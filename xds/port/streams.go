package port

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// Intercept is the interceptor for the gRPC server on this listener. It bounds the number of streams, ends those
// whose first message does not arrive in time, and keeps the connections that have streams from counting as idle.
func (l *Listener) Intercept(
	srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler,
) error {
	p, ok := peer.FromContext(stream.Context())
	if !ok || p.Addr == nil {
		return status.Error(codes.Internal, "the connection has no address")
	}
	connection := p.Addr.String()
	if !l.streams.Acquire(connection) {
		l.refusedStreams.add("peer", connection, "limit", l.options.Streams)
		return status.Errorf(codes.ResourceExhausted,
			"the limit of %d open streams leaves no more of them for this connection", l.options.Streams)
	}
	defer l.streams.Release(connection)
	end, ok := l.begin(addressesOf(p.Addr, p.LocalAddr))
	if !ok {
		return status.Error(codes.Unavailable, "the connection is closed")
	}
	defer end()
	s := &startingStream{ServerStream: stream, patience: l.options.FirstMessage, timedOut: make(chan error, 1)}
	err := handler(srv, s)
	select {
	case err = <-s.timedOut:
		l.silent(connection)
	default:
	}
	return err
}

// begin notes that a stream begins on the connection, and returns the function that notes its end; false when the
// connection is closed.
func (l *Listener) begin(which pair) (end func(), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.table.open[which]
	if c == nil {
		return nil, false
	}
	l.table.streamBegins(c)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.table.streamEnds(c)
	}, true
}

// silent counts a stream that was ended because it sent no message.
func (l *Listener) silent(connection string) {
	l.mu.Lock()
	l.stats.SilentStreams++
	l.stats.SilentStreamTime = time.Now()
	l.mu.Unlock()
	l.silentStreams.add("peer", connection, "limit", l.options.FirstMessage)
}

// A startingStream fails its first RecvMsg if the message does not arrive in time, so that the handler returns. RecvMsg
// is not called concurrently.
type startingStream struct {
	grpc.ServerStream
	patience time.Duration
	timedOut chan error // status of the stream, sent before RecvMsg fails; capacity one
	started  bool
}

func (s *startingStream) RecvMsg(m any) error {
	if s.started {
		return s.ServerStream.RecvMsg(m)
	}
	s.started = true
	received := make(chan error, 1)
	go func() { received <- s.ServerStream.RecvMsg(m) }() // returns at the latest when the stream ends
	timer := time.NewTimer(s.patience)
	defer timer.Stop()
	select {
	case err := <-received:
		return err
	case <-timer.C:
		err := status.Errorf(codes.DeadlineExceeded, "the stream's first message has not arrived within %v", s.patience)
		s.timedOut <- err
		return err
	}
}
