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
	// Seed makes the dither of the weights repeatable, for tests. Zero draws one.
	Seed uint64
	// Observer is told what happens on the streams, as it happens. Nil: nobody is.
	Observer Observer
	// Runtime is the runtime layer of Envoys that SetRuntime says nothing about,
	// percentages by key. Nil: RuntimeImmediate at 100 and RuntimeBatched at 0.
	Runtime map[string]float64
	// Names is how many cluster names and other resource types are subscribed to at most, by all streams
	// together. Zero: DefaultNames.
	Names int
}

// DefaultNames is far above what a fleet subscribes to: 1000 Envoys with 130 clusters, each under two names.
const DefaultNames = 262_144

// An Observer counts what happens on the streams. Its methods are called from
// the goroutines of the streams, at the same time, and must not block. Cluster
// names are those that were published, so their number is bounded.
type Observer interface {
	// Acked is called when an Envoy accepted an assignment, delay after its push.
	Acked(cluster string, delay time.Duration)
	// Nacked is called when an Envoy refused an assignment, with its words.
	Nacked(cluster, node, message string)
}

// Transports of a Client.
const (
	TransportEDS      = "eds"       // StreamEndpoints
	TransportEDSDelta = "eds-delta" // DeltaEndpoints
	TransportADS      = "ads"       // StreamAggregatedResources
	TransportADSDelta = "ads-delta" // DeltaAggregatedResources
)

// A Client is one connected Envoy: all streams that came over one connection
// with one node id. Strings that come from Envoy are bounded in length.
type Client struct {
	NodeID      string
	NodeCluster string
	Version     string // of the Envoy, such as "1.40.0"
	Locality    string // region/zone/sub_zone, without the empty parts at the end
	Peer        string // remote address of the connection
	Transport   string // one of the constants above
	ConnectedAt time.Time

	// Duplicates counts the other connections under the same node id that
	// subscribe to one of the same clusters: two Envoys that cannot be told apart, or,
	// for as long as the keepalive takes to notice, an Envoy that has reconnected.
	Duplicates int

	Subscriptions []Subscription // sorted by cluster
}

// A Subscription is one cluster as one Envoy knows it.
type Subscription struct {
	Cluster string
	// Known is true when there is an assignment to send. Where it is false, the
	// Envoy waits: the cluster is unknown, not ready yet, or was removed.
	Known  bool
	InSync bool // the Envoy acknowledged the cluster's current version

	VersionSent  string    // last sent on this stream, empty when nothing was
	VersionAcked string    // last accepted on this stream
	SentAt       time.Time // of VersionSent
	AckedAt      time.Time // of VersionAcked

	AckDelaySmoothed time.Duration // push to ACK, zero when there was none
	Acks, Nacks      uint64

	Nacked      bool // the last answer was a NACK
	NackMessage string
	NackedAt    time.Time
}
