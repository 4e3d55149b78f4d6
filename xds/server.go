package xds

import (
	"time"

	"google.golang.org/grpc"

	"steelyard/weighting"
)

// A Server serves the assignments of any number of clusters.
type Server struct{}

// NewServer makes a server that knows no cluster.
func NewServer(o Options) *Server { return &Server{} }

// Register adds EDS and ADS to g.
func (s *Server) Register(g *grpc.Server) {}

// Publish hands over the latest decision.
func (s *Server) Publish(cluster string, d weighting.Decision, o ClusterOptions) Push { return Push{} }

// Remove stops serving the cluster.
func (s *Server) Remove(cluster string) {}

// Clients returns the connected Envoys.
func (s *Server) Clients() []Client { return nil }

// Counters returns the totals.
func (s *Server) Counters() Counters { return Counters{} }

// AckDelay is the smoothed time from push to ACK.
func (s *Server) AckDelay(cluster string) time.Duration { return 0 }
