package xds

import (
	"time"
)

// RuntimeLayer is the name of the runtime layer that an Envoy asks for, and the keys in it
// are percentages of the requests, 0 to 100, of which each access logger tells.
const (
	RuntimeLayer     = "steelyard"
	RuntimeImmediate = "steelyard.access_log.immediate" // every entry as it happens
	RuntimeBatched   = "steelyard.access_log.batched"   // many entries at a time
)

// A RuntimeClient is one Envoy's stream of runtime values.
type RuntimeClient struct {
	Watcher
	ConnectedAt time.Time
	Layer       map[string]float64 // what it is to use; the receiver's own
	InSync      bool               // it acknowledged Layer
	Acks, Nacks uint64
	Nacked      bool // the last answer was a NACK
	NackMessage string
}

// SetRuntime says what an Envoy's runtime layer holds from now on; nil is the default,
// which is RuntimeImmediate at 100 and RuntimeBatched at 0. It is sent when it
// differs from what the Envoy has, and kept for an Envoy that is not connected.
func (s *Server) SetRuntime(w Watcher, layer map[string]float64) {}

// RuntimeClients returns the Envoys that follow their runtime layer, sorted by node id
// and host. The result is the caller's.
func (s *Server) RuntimeClients() []RuntimeClient { return nil }
