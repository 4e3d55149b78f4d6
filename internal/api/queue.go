package api

// A Queue is the queue of a cluster.
type Queue struct {
	MaxInFlight *int `json:"max_in_flight"` // for each endpoint; null: its slots
	InFlight    int  `json:"in_flight"`     // sent by the queue, and not ended
	Envoys      int  `json:"envoys"`        // Envoys whose requests wait in it
	// Shared is true if one of them stands for any number: a picker that several Envoys may ask.
	Shared  bool         `json:"-"`
	Classes []QueueClass `json:"classes"` // in the order of the configuration
}

// A QueueClass is one class of a queue. Its counts are since the start, and never decrease.
type QueueClass struct {
	Name           string  `json:"name"`             // of the class
	Weight         float64 `json:"weight"`           // relative to the other classes
	Strict         bool    `json:"strict"`           // it precedes all classes that are not
	MaxWaiting     int     `json:"max_waiting"`      // requests that may wait
	MaxWaitSeconds Number  `json:"max_wait_seconds"` // how long one may wait

	Waiting  int  `json:"waiting"`   // requests that wait
	Tenants  int  `json:"tenants"`   // with waiting requests
	OldestAt Time `json:"oldest_at"` // arrival of the request that waits for longest

	Granted uint64 `json:"granted"` // requests that were sent to an endpoint
	// requests that follow the weights, because the queue could not choose
	Released       uint64 `json:"released"`
	Left           uint64 `json:"left"`            // requests whose clients gave up
	RefusedFull    uint64 `json:"refused_full"`    // answered 503: the class was full
	RefusedTimeout uint64 `json:"refused_timeout"` // answered 503: they waited for too long
}
