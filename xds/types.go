package xds

import (
	"log/slog"
	"time"
)

// Options of a Server. The zero value works.
type Options struct {
	Log *slog.Logger // nil: slog.Default()
	// Now is the clock, nil for time.Now.
	Now func() time.Time
	// Seed makes the dither of the weights repeatable, for tests. Zero: a random seed.
	Seed uint64
	// Observer receives the events of the streams. Nil: none does.
	Observer Observer
	// Runtime is the runtime layer of Envoys for which SetRuntime has set none, as percentages by key. Nil:
	// RuntimeImmediate at 100 and RuntimeBatched at 0.
	Runtime map[string]float64
	// Names is the largest number of subscriptions of all streams together, to cluster names and other resource types.
	// Zero: DefaultNames.
	Names int
}

// DefaultNames is far above what a fleet subscribes to: 1000 Envoys with 130 clusters, each under two names.
const DefaultNames = 262_144

// An Observer receives the ACKs and NACKs of all streams. Its methods are called concurrently, from the goroutines of
// the streams, and must not block. Cluster names are those that were published, so their number is limited.
type Observer interface {
	// Acked is called when an Envoy accepted an assignment, delay after its push.
	Acked(cluster string, delay time.Duration)
	// Nacked is called when an Envoy refused an assignment.
	Nacked(cluster string)
}

// Transports of an api.Connection.
const (
	TransportEDS      = "eds"       // StreamEndpoints
	TransportEDSDelta = "eds-delta" // DeltaEndpoints
	TransportADS      = "ads"       // StreamAggregatedResources
	TransportADSDelta = "ads-delta" // DeltaAggregatedResources
)
