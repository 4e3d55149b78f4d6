package stat

// A Node is what is kept of the node that an Envoy names. All texts are cut to a bounded length.
type Node struct {
	NodeID      string `json:"node_id"`
	NodeCluster string `json:"node_cluster"`
	Version     string `json:"version"`  // of the Envoy, such as "1.40.0"
	Locality    string `json:"locality"` // region/zone/sub_zone, without the empty parts at the end
}

// A Client is one connected Envoy: all streams of one connection, node id and transport.
type Client struct {
	Node
	Address     string `json:"address"`     // remote address of the connection
	Certificate string `json:"certificate"` // the names in it; empty without one
	ConnectedAt Time   `json:"connected_at"`
	Transport   string `json:"transport"`
	// Duplicates counts the other connections with the same node id and certificate that subscribe to one of the same
	// clusters: they are of Envoys with the same id, or, until keepalive closes the old connection, of an Envoy that
	// has reconnected.
	Duplicates    int            `json:"duplicates"`
	Subscriptions []Subscription `json:"subscriptions"` // sorted by resource
}

// A Subscription is what was sent of one cluster to one Envoy, and its answers.
type Subscription struct {
	Resource string `json:"resource"` // its EDS name: the cluster's, or a variant of it
	Cluster  string `json:"cluster"`  // the cluster that this name belongs to
	// Known is true if there is an assignment to send. If not, the Envoy waits: the cluster is unknown, not ready yet,
	// or was removed.
	Known           bool   `json:"known"`
	VersionSent     string `json:"version_sent"`      // last sent on this stream, empty if there was none
	VersionAcked    string `json:"version_acked"`     // last accepted on this stream
	InSync          bool   `json:"in_sync"`           // the Envoy acknowledged the cluster's current version
	LastSent        Time   `json:"last_sent"`         // of VersionSent
	LastAck         Time   `json:"last_ack"`          // of VersionAcked
	AckDelaySeconds Number `json:"ack_delay_seconds"` // from push to ACK, smoothed
	Acks            uint64 `json:"acks"`
	Nacks           uint64 `json:"nacks"`
	Nack            Nack   `json:"nack"`
}

// A Nack is the latest refusal of an assignment.
type Nack struct {
	Message string `json:"message"` // Envoy's message; empty when there never was one
	At      Time   `json:"at"`
	Current bool   `json:"current"` // nothing was acknowledged since
}

// A GoneEnvoy is one that vanished: its connection ended while its streams were open. An Envoy that stops resets them
// first.
type GoneEnvoy struct {
	NodeID      string `json:"node_id"`
	Certificate string `json:"-"` // the names in that of its connection, empty without one
	Address     string `json:"address"`
	Since       Time   `json:"since"`
	Cause       string `json:"cause"`  // how the connection ended
	Silent      bool   `json:"silent"` // it did not answer pings: it hangs, or the network does not carry packets
}

// Runtime is whether an Envoy follows the mode that Steelyard sets over its stream of runtime values.
type Runtime struct {
	Subscribed bool   `json:"subscribed"` // it asks for them; where it does not, its own configuration holds
	InSync     bool   `json:"in_sync"`    // it accepted the latest
	Nack       string `json:"nack"`       // why it refused the latest, Envoy's message; empty when it did not
}
