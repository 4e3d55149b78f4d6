package stat

// A Queue is the queue of a cluster.
type Queue struct {
	MaxInFlight *int `json:"max_in_flight"` // requests, of each endpoint; null: its slots
	InFlight    int  `json:"in_flight"`     // requests that were sent by the queue and have not ended
	Envoys      int  `json:"envoys"`        // whose requests wait in it
	// Shared is true if one of them stands for any number: a picker that several Envoys may ask.
	Shared bool `json:"-"`
	// Classes are in the order of the configuration.
	Classes []QueueClass `json:"classes"`
}

// A QueueClass is one class of a queue. Its counts are since the start, and never decrease.
type QueueClass struct {
	Name           string  `json:"name"`
	Weight         float64 `json:"weight"`
	Strict         bool    `json:"strict"`
	MaxWaiting     int     `json:"max_waiting"`
	MaxWaitSeconds Number  `json:"max_wait_seconds"`

	Waiting  int  `json:"waiting"`
	Tenants  int  `json:"tenants"`   // with waiting requests
	OldestAt Time `json:"oldest_at"` // arrival of the request that has waited for longest; null when none waits

	Granted        uint64 `json:"granted"`  // sent to an endpoint
	Released       uint64 `json:"released"` // sent by the proxies' own choice, because the queue could not choose
	Left           uint64 `json:"left"`     // their clients gave up
	RefusedFull    uint64 `json:"refused_full"`
	RefusedTimeout uint64 `json:"refused_timeout"`
}
