package api

// A FollowerKind is what follows a replica.
type FollowerKind string

// The kinds of followers.
const (
	FollowerEnvoy  FollowerKind = "envoy"  // it is sent assignments
	FollowerPicker FollowerKind = "picker" // it is sent loads; the module in an Envoy is one, too
)

// An OtherEnvoy is an Envoy or a picker at another replica, as that one reported it.
type OtherEnvoy struct {
	Kind      FollowerKind `json:"kind"`       // `envoy` or `picker`
	NodeID    string       `json:"node_id"`    // `node.id` of the Envoy, or the picker's name
	Address   string       `json:"address"`    // remote address of its connection
	Replica   string       `json:"replica"`    // name of the replica that it follows
	ReplicaID string       `json:"replica_id"` // which run of that one
	// as a Client has it, or `unheard` while the replica is silent
	State       EnvoyState `json:"state"`
	Clusters    []string   `json:"clusters"`     // that it follows, at most 20; empty of a picker: all
	ConnectedAt Time       `json:"connected_at"` // when it connected
	LastAck     Time       `json:"last_ack"`     // when it last accepted an assignment
	HeardAt     Time       `json:"heard_at"`     // when its replica was last heard of
}
