package view

// A Diff is what another configuration would change, by a dry run of the law against the current reports.
type Diff struct {
	At Time `json:"at"`
	// Restart are the sections that differ and need a restart: "xds", "admin", "kubernetes". A reload would refuse the
	// whole configuration.
	Restart  []string      `json:"restart"`
	Redis    bool          `json:"redis"` // the section differs
	Added    []string      `json:"added"` // clusters
	Removed  []string      `json:"removed"`
	Clusters []ClusterDiff `json:"clusters"` // that are there before and after, and differ; sorted by name
}

// A ClusterDiff is what would change in a cluster.
type ClusterDiff struct {
	Name      string         `json:"name"`
	Keys      []KeyDiff      `json:"keys"`
	Endpoints []EndpointDiff `json:"endpoints"` // all of them, sorted by address; empty while there is no decision
	// CapacityBefore and CapacityAfter are those of the pool, in the unit of an endpoint's capacity.
	CapacityBefore Number `json:"capacity_before"`
	CapacityAfter  Number `json:"capacity_after"`
	// CapacityUsed is the utilization, offered load over capacity, and CapacityUsedAfter what it would be.
	CapacityUsed      Number `json:"capacity_used"`
	CapacityUsedAfter Number `json:"capacity_used_after"`

	Note string `json:"note"` // what the dry run cannot show; empty: nothing
}

// A KeyDiff is a value of the configuration that differs. An empty text is a value that is not there.
type KeyDiff struct {
	Path   string `json:"path"`
	Before string `json:"before"`
	After  string `json:"after"`
}

// An EndpointDiff is what would change for an endpoint. A part of the capacity is what it gets in the long run when the
// pool is busy; of a decision, which lasts some milliseconds, only the flag is shown.
type EndpointDiff struct {
	Address string `json:"address"`
	Change  string `json:"change"` // "joins", "leaves", or empty
	Before  Part   `json:"before"`
	After   Part   `json:"after"`
	// ServedShare1m is what it really got in the last minute.
	ServedShare1m Number `json:"served_share_1m"`
}

// A Part is an endpoint's part of its pool.
type Part struct {
	CapacityShare Number `json:"capacity_share"` // 0 to 1
	Capacity      Number `json:"capacity"`
	Slots         Number `json:"slots"`
	Overloaded    bool   `json:"overloaded"`
	Reason        string `json:"reason"`
}
