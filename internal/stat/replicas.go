package stat

// Replicas are this replica and the others of its control plane, as this one sees them. The zero value is that of the
// only one.
type Replicas struct {
	Enabled bool   `json:"enabled"`
	ID      string `json:"id"` // of this one: another after each start
	Name    string `json:"name"`
	// Connected means that its own messages come back through Redis; Since is when that changed last.
	Connected bool   `json:"connected"`
	Since     Time   `json:"since"`
	Error     string `json:"error"` // why it is not connected; empty when it is
	// Scraping is how many endpoints this replica scrapes.
	Scraping Number          `json:"scraping"`
	Messages ReplicaMessages `json:"messages"`
	Others   []Replica       `json:"others"`
}

// ReplicaMessages count messages between replicas. They never decrease.
type ReplicaMessages struct {
	Sent     uint64 `json:"sent"`
	Failed   uint64 `json:"failed"` // could not be sent
	Received uint64 `json:"received"`
	Lost     uint64 `json:"lost"`    // by gaps in their numbers
	Stale    uint64 `json:"stale"`   // older than an earlier one, or duplicated
	Foreign  uint64 `json:"foreign"` // of another version, and ignored
	// LastForeign is when the latest of those came.
	LastForeign Time   `json:"last_foreign"`
	Invalid     uint64 `json:"invalid"` // could not be read
	Refused     uint64 `json:"refused"` // of more replicas than are followed
}

// A ReplicaState is the state of another replica.
type ReplicaState string

// The states.
const (
	ReplicaLive        ReplicaState = "live"
	ReplicaGone        ReplicaState = "gone"        // silent, or it has stopped
	ReplicaUnreachable ReplicaState = "unreachable" // nothing is known of it: there is no connectivity through Redis
)

// A Replica is another replica.
type Replica struct {
	ID    string       `json:"id"`
	Name  string       `json:"name"`
	State ReplicaState `json:"state"`
	Since Time         `json:"since"` // of the state
	// LastMessage is when one came, by the clock of this replica.
	LastMessage Time `json:"last_message"`
	Envoys      int  `json:"envoys"` // that are connected there, for the cluster that has most

	// Filled in by the handler.
	AgeSeconds Number `json:"age_seconds"` // since the last message
}
