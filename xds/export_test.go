package xds

import (
	"time"

	"steelyard/internal/api"
	"steelyard/weighting"
	"steelyard/weighting/push"
)

// GRPCOptionsIdle are GRPCOptions with another idle time.
var GRPCOptionsIdle = grpcOptions

// RuntimeLayers returns how many Envoys have a layer that is not the default.
func (s *Server) RuntimeLayers() int {
	s.runtimes.mu.Lock()
	defer s.runtimes.mu.Unlock()
	return len(s.runtimes.layers)
}

// Vanish makes an Envoy vanish.
func Vanish(s *Server, node string, since time.Time) {
	s.tracker.mu.Lock()
	defer s.tracker.mu.Unlock()
	s.tracker.gone.add(api.GoneEnvoy{NodeID: node, Since: api.At(since)})
}

// Push publishes a decision as one that changes members.
func (s *Server) Push(cluster string, d weighting.Decision, staleAfter time.Duration) (version string, err error) {
	return s.Publish(cluster, push.Verdict{Decision: d, StaleAfter: staleAfter, Members: true})
}
