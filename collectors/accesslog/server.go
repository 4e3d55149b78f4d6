package accesslog

import (
	"errors"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"steelyard/collectors/ledger"
	"steelyard/collectors/wire"
	"steelyard/internal/streams"
)

// maxStreamsEach is how many streams one Envoy may have: its workers times two loggers.
const maxStreamsEach = 1024

// A Server receives upstream access logs.
type Server struct {
	// Reporter returns a function that checks the address of each endpoint before a report on it is accepted; its error
	// becomes the status of the stream. If Reporter or that function is nil, everything is accepted. Set it before
	// Register.
	Reporter wire.Reporter

	ledger *ledger.Ledger
	log    *slog.Logger
	gate   *streams.Gate

	messages, entries, skipped, refused, broken atomic.Uint64
}

// Stats has counters since the start.
type Stats struct {
	Streams  int    // open now
	Messages uint64 // received
	Entries  uint64 // beginnings and ends of requests
	Skipped  uint64 // entries of other types, or without an endpoint
	Refused  uint64 // streams refused, because they had no identity or were too many
	Broken   uint64 // streams ended because of a message that could not be read
}

// New makes a server that passes every request on to l.
func New(l *ledger.Ledger, log *slog.Logger) *Server {
	return &Server{ledger: l, log: log, gate: streams.New(streams.Limits{Each: maxStreamsEach})}
}

// Register adds the service to a gRPC server, which must use wire.Codec.
func (s *Server) Register(g *grpc.Server) {
	g.RegisterService(&grpc.ServiceDesc{
		ServiceName: accesslogv3.AccessLogService_ServiceDesc.ServiceName,
		HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{{
			StreamName:    "StreamAccessLogs",
			ClientStreams: true,
			Handler: func(_ any, stream grpc.ServerStream) error {
				return s.gate.Run(func() error { return s.serve(stream) })
			},
		}},
		Metadata: "envoy/service/accesslog/v3/als.proto",
	}, s)
}

// Close ends all streams, refuses new ones, and returns when all have ended.
func (s *Server) Close() {
	s.gate.Close()
	s.gate.Wait()
}

// Stats returns the counters.
func (s *Server) Stats() Stats {
	return Stats{
		Streams:  s.gate.Open(),
		Messages: s.messages.Load(),
		Entries:  s.entries.Load(),
		Skipped:  s.skipped.Load(),
		Refused:  s.refused.Load() + s.gate.Refused(),
		Broken:   s.broken.Load(),
	}
}

// serve receives one stream: the name of its Envoy, and then its entries, until it ends.
func (s *Server) serve(stream grpc.ServerStream) error {
	m := &message{wantNode: true}
	if err := stream.RecvMsg(m); err != nil {
		return s.ended(stream, err)
	}
	envoy, err := wire.EnvoyOf(stream.Context(), m.node)
	if err != nil {
		s.refused.Add(1)
		s.log.Debug("access log refused", "error", err)
		return status.Error(codes.InvalidArgument, "access log: "+err.Error())
	}
	m.wantNode, m.node = false, nil
	first, err := s.gate.Admit(envoy)
	if err != nil {
		return err
	}
	log := s.log.With("node", envoy.NodeID, "host", envoy.Host)
	if first {
		log.Info("access log opened")
	}
	err = s.follow(stream, m, envoy)
	if s.gate.Dismiss(envoy) {
		log.Info("access log ended", "error", err)
	}
	return err
}

// follow passes each message on to the ledger, the one in m first.
func (s *Server) follow(stream grpc.ServerStream, m *message, envoy ledger.Envoy) error {
	l := s.ledger.Open(envoy, time.Now())
	defer l.Close()
	may := s.Reporter.Of(stream.Context())
	for {
		for i := range m.events {
			if err := may(m.events[i].Address); err != nil {
				return err
			}
		}
		s.messages.Add(1)
		s.entries.Add(uint64(len(m.events)))
		s.skipped.Add(uint64(m.skipped))
		l.Events(time.Now(), m.events)
		m.release()
		if err := stream.RecvMsg(m); err != nil {
			return s.ended(stream, err)
		}
	}
}

// ended returns the status that the stream ends with.
func (s *Server) ended(stream grpc.ServerStream, err error) error {
	if errors.Is(err, io.EOF) {
		return stream.SendMsg(&accesslogv3.StreamAccessLogsResponse{})
	}
	if wire.Unreadable(err) {
		s.broken.Add(1)
		s.log.Debug("access log broken", "error", err)
	}
	return err
}
