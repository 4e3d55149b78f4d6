package api

// Replicas are this replica and the others of its control plane, as this one sees them. The zero value is that of the
// only one.
type Replicas struct {
	Enabled   bool            `json:"enabled"`   // it is configured
	ID        string          `json:"id"`        // another after each start
	Name      string          `json:"name"`      // for people
	Connected bool            `json:"connected"` // its own messages come back through Redis
	Since     Time            `json:"since"`
	Error     string          `json:"error"`
	Messages  ReplicaMessages `json:"messages"` // since the start
	Others    []Replica       `json:"others"`   // by name, at most 32
}

// ReplicaMessages count messages between replicas. They never decrease.
type ReplicaMessages struct {
	Sent        uint64 `json:"sent"`
	Failed      uint64 `json:"failed"` // could not be sent
	Received    uint64 `json:"received"`
	Lost        uint64 `json:"lost"`    // by the gaps in their numbers
	Stale       uint64 `json:"stale"`   // older than one before, or duplicated
	Foreign     uint64 `json:"foreign"` // of replicas of another version, ignored
	LastForeign Time   `json:"last_foreign"`
	Invalid     uint64 `json:"invalid"` // could not be read
	Refused     uint64 `json:"refused"` // of more than 32 other replicas
}

// A ReplicaState is the state of another replica.
type ReplicaState string

// The states.
const (
	ReplicaLive        ReplicaState = "live"        // its messages arrive
	ReplicaGone        ReplicaState = "gone"        // silent, or it has stopped
	ReplicaUnreachable ReplicaState = "unreachable" // Redis fails, so nothing is known of it
)

// A Replica is another replica.
type Replica struct {
	ID          string       `json:"id"`
	Name        string       `json:"name"`
	State       ReplicaState `json:"state"`
	Since       Time         `json:"since"`
	LastMessage Time         `json:"last_message"` // by the clock of this replica
	Envoys      int          `json:"envoys"`       // connected there, for the cluster with the most

	// Filled in by the handler.

	AgeSeconds Number `json:"age_seconds"` // of its last message
}
