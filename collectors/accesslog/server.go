package accesslog

import (
	"errors"
	"io"
	"log/slog"
	"time"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	"google.golang.org/grpc"

	"steelyard/collectors/ledger"
	"steelyard/collectors/wire"
)

// maxStreamsEach is how many streams one Envoy may have: its workers times two loggers.
const maxStreamsEach = 1024

// A Server receives upstream access logs.
type Server struct {
	*wire.Service
	ledger *ledger.Ledger
	log    *slog.Logger
}

// New makes a server that passes every request on to l.
func New(l *ledger.Ledger, log *slog.Logger) *Server {
	return &Server{Service: wire.NewService("access log", maxStreamsEach, log), ledger: l, log: log}
}

// Register adds the service to a gRPC server, which must use wire.Codec.
func (s *Server) Register(g *grpc.Server) {
	s.Service.Register(g, accesslogv3.AccessLogService_ServiceDesc, s.serve)
}

// serve receives one stream: the name of its Envoy, and then its entries, until it ends.
func (s *Server) serve(stream grpc.ServerStream) error {
	err := s.receive(stream)
	if errors.Is(err, io.EOF) {
		return stream.SendMsg(&accesslogv3.StreamAccessLogsResponse{})
	}
	return err
}

func (s *Server) receive(stream grpc.ServerStream) error {
	m := &message{wantNode: true}
	if err := s.Receive(stream, m); err != nil {
		return err
	}
	envoy, err := s.Identify(stream.Context(), m.node)
	if err != nil {
		return err
	}
	m.wantNode, m.node = false, nil
	first, err := s.Admit(envoy)
	if err != nil {
		return err
	}
	log := s.log.With("node", envoy.NodeID, "host", envoy.Host)
	if first {
		log.Info("access log opened")
	}
	err = s.follow(stream, m, envoy)
	if s.Dismiss(envoy) {
		cause := err
		if errors.Is(err, io.EOF) { // Envoy closed it
			cause = nil
		}
		log.Info("access log ended", "error", cause)
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
		l.Events(time.Now(), m.events)
		m.release()
		if err := s.Receive(stream, m); err != nil {
			return err
		}
	}
}
