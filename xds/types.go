package xds

import (
	"log/slog"
	"time"

	"steelyard/internal/envoyid"
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
	Acked(cluster string, a Answered, delay time.Duration)
	// Nacked is called when an Envoy refused an assignment, with Envoy's message.
	Nacked(cluster string, a Answered, message string)
}

// Answered identifies what an Envoy answered.
type Answered struct{ Node, Version string }

// Transports of a Client.
const (
	TransportEDS      = "eds"       // StreamEndpoints
	TransportEDSDelta = "eds-delta" // DeltaEndpoints
	TransportADS      = "ads"       // StreamAggregatedResources
	TransportADSDelta = "ads-delta" // DeltaAggregatedResources
)

// A Client is one connected Envoy: all streams of one connection and node id. Strings that come from Envoy are limited
// in length.
type Client struct {
	NodeID      string
	NodeCluster string
	Version     string // of the Envoy, such as "1.40.0"
	Locality    string // region/zone/sub_zone, without the empty parts at the end
	Peer        string // remote address of the connection
	Certificate string // the names in that of the client, empty without one
	Transport   string // one of the constants above
	ConnectedAt time.Time

	// Duplicates counts the other connections with the same node id and certificate that subscribe to one of the same
	// clusters: they are of Envoys with the same id, or, until keepalive closes the old connection, of an Envoy that
	// has reconnected.
	Duplicates int

	Subscriptions []Subscription // sorted by cluster
}

// Envoy identifies the Envoy as other services of the port do.
func (c *Client) Envoy() envoyid.ID {
	return envoyid.ID{NodeID: c.NodeID, Host: hostOf(c.Peer), Certificate: c.Certificate}
}

// A Subscription is the state of one cluster at one Envoy.
type Subscription struct {
	Cluster string
	// Known is true if there is an assignment to send. If not, the Envoy waits: the cluster is unknown, not ready yet,
	// or was removed.
	Known  bool
	InSync bool // the Envoy acknowledged the cluster's current version

	VersionSent  string    // last sent on this stream, empty if there was none
	VersionAcked string    // last accepted on this stream
	SentAt       time.Time // of VersionSent
	AckedAt      time.Time // of VersionAcked

	AckDelaySmoothed time.Duration // from push to ACK, zero if there was none
	Acks, Nacks      uint64

	Nacked      bool // the last answer was a NACK
	NackMessage string
	NackedAt    time.Time
}
