package xds

// GRPCOptionsIdle are GRPCOptions with another idle time.
var GRPCOptionsIdle = grpcOptions

// RuntimeLayers is how many Envoys have a layer that is not the default.
func (s *Server) RuntimeLayers() int {
	s.runtimes.mu.Lock()
	defer s.runtimes.mu.Unlock()
	return len(s.runtimes.layers)
}
