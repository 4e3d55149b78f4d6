package api

// A Queue is the queue of a cluster.
type Queue struct {
	MaxInFlight *int       `json:"max_in_flight"` // for each endpoint; null: its slots
	Owner       QueueOwner `json:"owner"`         // the replica that grants its places
	InFlight    Number     `json:"in_flight"`     // that it sent; null: another replica knows
	Envoys      int        `json:"envoys"`        // with requests in it; of another owner: those connected here
	// Here is how many of them are connected here.
	Here int `json:"-"`
	// Shared is true if one of them stands for any number: a picker that several Envoys may ask.
	Shared  bool         `json:"-"`
	Classes []QueueClass `json:"classes"` // as configured; empty: another replica knows
}

// A QueueOwnerState says what a replica knows of the owner of a queue.
type QueueOwnerState string

// The states.
const (
	QueueGrants  QueueOwnerState = "grants"  // this replica grants places
	QueueFollows QueueOwnerState = "follows" // another one does, and gets this one's requests
	QueueStopped QueueOwnerState = "stopped" // this one did, and cannot renew its lease
	QueueUnknown QueueOwnerState = "unknown" // none is known
)

// A QueueOwner is the replica that grants the places of a queue.
type QueueOwner struct {
	State   QueueOwnerState `json:"state"`
	Name    string          `json:"name"`
	Address string          `json:"address"` // for the other replicas
	Epoch   Number          `json:"epoch"`   // rises with each change of the owner; null: there is only one replica
	Since   Time            `json:"since"`   // when this replica learned of it
	Lease   string          `json:"lease"`   // `redis`, `kubernetes`, or `none` of the only replica
	Error   string          `json:"error"`
}

// A QueueClass is one class of a queue. Its counts are since the start, and never decrease.
type QueueClass struct {
	Name           string  `json:"name"`
	Weight         float64 `json:"weight"` // relative to the other classes
	Strict         bool    `json:"strict"` // it precedes all classes that are not
	MaxWaiting     int     `json:"max_waiting"`
	MaxWaitSeconds Number  `json:"max_wait_seconds"`

	Waiting  int  `json:"waiting"`
	Tenants  int  `json:"tenants"`   // with waiting requests
	OldestAt Time `json:"oldest_at"` // arrival of the request that waits for longest

	Granted        uint64 `json:"granted"`         // sent to an endpoint
	Released       uint64 `json:"released"`        // they follow the weights, because the queue could not choose
	Left           uint64 `json:"left"`            // their clients gave up
	RefusedFull    uint64 `json:"refused_full"`    // 429: the class was full
	RefusedTimeout uint64 `json:"refused_timeout"` // 429: they waited for too long
}
