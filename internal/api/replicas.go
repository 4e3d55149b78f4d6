package api

// Replicas are this replica and the others of its control plane, as this one sees them. The zero value is that of the
// only one.
type Replicas struct {
	Enabled   bool            `json:"enabled"`      // there is a section `replicas`, or `serve --service`
	ID        string          `json:"id"`           // of this one; another after each start
	Name      string          `json:"name"`         // its name for people
	Connected bool            `json:"connected"`    // the messages of all others that may run arrive here
	Since     Time            `json:"since"`        // since when that holds
	Error     string          `json:"error"`        // why it is not connected
	Lookup    string          `json:"lookup_error"` // why the others were not found again; those found before stay
	Messages  ReplicaMessages `json:"messages"`     // between replicas, since the start
	Others    []Replica       `json:"others"`       // by name, at most 64
}

// ReplicaMessages count messages between replicas. They never decrease.
type ReplicaMessages struct {
	Sent        uint64 `json:"sent"`         // to each replica that follows this one
	Failed      uint64 `json:"failed"`       // not sent, because that replica is slow
	Received    uint64 `json:"received"`     // of others
	Lost        uint64 `json:"lost"`         // by the gaps in their numbers
	Stale       uint64 `json:"stale"`        // older than one before, or duplicated
	Foreign     uint64 `json:"foreign"`      // of replicas of another version, ignored
	LastForeign Time   `json:"last_foreign"` // when the latest of these came
	Invalid     uint64 `json:"invalid"`      // could not be read
	Refused     uint64 `json:"refused"`      // of more than 32 other replicas

	Prompts SharedPrompts `json:"prompts"` // learned prompts that replicas send each other
}

// A ReplicaState is the state of another replica.
type ReplicaState string

// The states.
const (
	ReplicaLive        ReplicaState = "live"        // its messages arrive
	ReplicaGone        ReplicaState = "gone"        // it has stopped, or nothing listens at its address
	ReplicaUnreachable ReplicaState = "unreachable" // its messages do not arrive, and it may run
)

// A Replica is another replica.
type Replica struct {
	ID          string       `json:"id"`           // another after each start; empty before its first message
	Name        string       `json:"name"`         // its name for people; empty before its first message
	Address     string       `json:"address"`      // where this one connects to it; empty where it is not named
	State       ReplicaState `json:"state"`        // `live`, `gone` (stopped) or `unreachable` (it may run)
	Since       Time         `json:"since"`        // of the state
	Error       string       `json:"error"`        // why its messages do not arrive
	Follows     bool         `json:"follows"`      // it is connected to this one, which sends it messages
	LastMessage Time         `json:"last_message"` // by the clock of this replica
	Envoys      int          `json:"envoys"`       // connected there
	LeftOut     int          `json:"left_out"`     // of them, not listed

	// Filled in by the handler.

	AgeSeconds Number `json:"age_seconds"` // of its last message
}
