package api

// A Node is what is kept of the node that an Envoy names. All texts are cut to a bounded length.
type Node struct {
	NodeID      string `json:"node_id"`      // `node.id` of its bootstrap
	NodeCluster string `json:"node_cluster"` // `node.cluster` of its bootstrap
	Version     string `json:"version"`      // of Envoy
	Locality    string `json:"locality"`     // region, zone and sub-zone
}

// A Connection is one connected Envoy: all streams of one connection, node id and transport.
type Connection struct {
	Node
	Address     string `json:"address"`
	Certificate string `json:"certificate"` // names in its certificate; empty without one
	ConnectedAt Time   `json:"connected_at"`
	Transport   string `json:"transport"` // which xDS protocol it speaks
	// connections with this node id that subscribe to the same clusters
	Duplicates    int            `json:"duplicates"`
	Subscriptions []Subscription `json:"subscriptions"` // to clusters
}

// A Subscription is what was sent of one cluster to one Envoy, and its answers.
type Subscription struct {
	Resource        string `json:"resource"` // EDS name: the cluster's, or with `/failsafe` or `/fallback`
	Cluster         string `json:"cluster"`
	Known           bool   `json:"known"`         // there is an assignment to send
	VersionSent     string `json:"version_sent"`  // empty: none
	VersionAcked    string `json:"version_acked"` // empty: none
	InSync          bool   `json:"in_sync"`       // it accepted the current version
	LastSent        Time   `json:"last_sent"`
	LastAck         Time   `json:"last_ack"`
	AckDelaySeconds Number `json:"ack_delay_seconds"` // from a push to its ACK
	Acks            uint64 `json:"acks"`              // on this connection
	Nacks           uint64 `json:"nacks"`             // on this connection
	Nack            Nack   `json:"nack"`              // the latest
}

// Weighted reports whether the name carries weights, so that who subscribes to it can follow them.
func (s *Subscription) Weighted() bool {
	return s.Resource == s.Cluster || s.Resource == s.Cluster+"/failsafe"
}

// A Nack is the latest refusal of an assignment.
type Nack struct {
	Message string `json:"message"` // in Envoy's words
	At      Time   `json:"at"`
	Current bool   `json:"current"` // it still runs on an older version
}

// A GoneEnvoy is one that vanished: its connection ended while its streams were open. An Envoy that stops resets them
// first.
type GoneEnvoy struct {
	NodeID      string `json:"node_id"`
	Certificate string `json:"-"` // the names in that of its connection, empty without one
	Address     string `json:"address"`
	Since       Time   `json:"since"`
	Cause       string `json:"cause"` // how its connection ended
	Silent      bool   `json:"silent"`
}

// Runtime is whether an Envoy follows the mode that Steelyard sets over its stream of runtime values.
type Runtime struct {
	Subscribed bool   `json:"subscribed"` // to runtime values
	InSync     bool   `json:"in_sync"`    // it accepted the latest
	Nack       string `json:"nack"`       // why it refused them
}
