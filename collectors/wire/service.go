package wire

import (
	"context"
	"log/slog"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"steelyard/internal/api"
	"steelyard/internal/envoyid"
	"steelyard/internal/streams"
)

// A Service is what the services have in common: it bounds their streams, identifies the Envoys at the other end, and
// counts what it refuses. Make one with NewService.
type Service struct {
	// Reporter returns a function that checks the address of each endpoint before a report on it is accepted; its error
	// becomes the status of the stream. If Reporter or that function is nil, everything is accepted. Set it before
	// Register.
	Reporter Reporter

	*streams.Gate
	what            string
	log             *slog.Logger
	refused, broken atomic.Uint64
}

// NewService makes a service of which one Envoy may have so many streams. what names them in errors and in the log.
func NewService(what string, each int, log *slog.Logger) *Service {
	return &Service{Gate: streams.New(streams.Limits{Each: each}), what: what, log: log}
}

// Register adds the only method of a service, as generated, to a gRPC server, which must use Codec. serve serves one
// stream and returns its status.
func (s *Service) Register(g *grpc.Server, generated grpc.ServiceDesc, serve func(grpc.ServerStream) error) {
	method := generated.Streams[0]
	method.Handler = func(_ any, stream grpc.ServerStream) error {
		return s.Run(func() error { return serve(stream) })
	}
	generated.HandlerType, generated.Streams = (*any)(nil), []grpc.StreamDesc{method}
	g.RegisterService(&generated, s)
}

// Close ends all streams, refuses new ones, and returns when all have ended.
func (s *Service) Close() {
	s.Gate.Close()
	s.Wait()
}

// StreamStats returns the counts of the streams.
func (s *Service) StreamStats() api.SignalStreams {
	return api.SignalStreams{Open: s.Open(), Refused: s.refused.Load() + s.Gate.Refused(), Broken: s.broken.Load()}
}

// Receive reads the next message of a stream. Its error is the status of the stream, io.EOF if the Envoy closed it.
func (s *Service) Receive(stream grpc.ServerStream, m Message) error {
	err := stream.RecvMsg(m)
	if Unreadable(err) {
		s.broken.Add(1)
		s.log.Debug(s.what+" broken", "error", err)
	}
	return err
}

// Identify returns the Envoy of a stream, by the Node in its first message. Its error is the status of the stream.
func (s *Service) Identify(ctx context.Context, node []byte) (envoyid.ID, error) {
	envoy, err := EnvoyOf(ctx, node)
	if err != nil {
		s.refused.Add(1)
		s.log.Debug(s.what+" refused", "error", err)
		return envoyid.ID{}, status.Error(codes.InvalidArgument, s.what+": "+err.Error())
	}
	return envoy, nil
}
