package accesslog

import (
	"log/slog"

	"google.golang.org/grpc"

	"steelyard/collectors/ledger"
)

// A Server takes upstream access logs.
type Server struct {
	ledger *ledger.Ledger
	log    *slog.Logger
}

// Stats are counted since the start.
type Stats struct {
	Streams  int    // open now
	Messages uint64 // taken in
	Entries  uint64 // beginnings and ends of requests
	Skipped  uint64 // entries of other types
	Refused  uint64 // streams refused, for want of an identity or of room
	Broken   uint64 // streams ended because of a message that could not be read
}

// New makes a server that tells l of every request. A nil log discards all.
func New(l *ledger.Ledger, log *slog.Logger) *Server { return &Server{l, log} }

// Register adds the service to a gRPC server, which must use wire.Codec.
func (s *Server) Register(g *grpc.Server) {}

// Stats returns what was counted.
func (s *Server) Stats() Stats { return Stats{} }
