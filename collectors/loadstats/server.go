package loadstats

import (
	"log/slog"
	"time"

	"google.golang.org/grpc"

	"steelyard/collectors/ledger"
)

// Options of a Server.
type Options struct {
	// Interval is how often each Envoy is to report. It is asked for at each
	// report; a change of more than a tenth is told to the Envoy.
	Interval func() time.Duration
}

// A Server takes load reports.
type Server struct {
	ledger  *ledger.Ledger
	options Options
	log     *slog.Logger
}

// Stats are counted since the start.
type Stats struct {
	Streams int    // open now
	Reports uint64 // taken in
	Bytes   uint64 // of all messages
	Refused uint64 // streams refused, for want of an identity or of room
	Broken  uint64 // streams ended because of a message that could not be read
}

// New makes a server that tells l of every report. A nil log discards all.
func New(l *ledger.Ledger, o Options, log *slog.Logger) *Server { return &Server{l, o, log} }

// Register adds the service to a gRPC server, which must use wire.Codec.
func (s *Server) Register(g *grpc.Server) {}

// Stats returns what was counted.
func (s *Server) Stats() Stats { return Stats{} }

// Close ends all streams and refuses new ones.
func (s *Server) Close() {}
