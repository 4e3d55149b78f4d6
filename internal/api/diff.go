package api

// A Diff is what another configuration would change, by a dry run of the law against the current reports.
type Diff struct {
	At       Time          `json:"at"`
	Restart  []string      `json:"restart"`  // sections that need a restart
	Redis    bool          `json:"redis"`    // the section differs
	Added    []string      `json:"added"`    // clusters that appear
	Removed  []string      `json:"removed"`  // clusters that disappear
	Clusters []ClusterDiff `json:"clusters"` // that change
}

// A ClusterDiff is what would change in a cluster.
type ClusterDiff struct {
	Name              string         `json:"name"`
	Keys              []KeyDiff      `json:"keys"`            // that differ
	Endpoints         []EndpointDiff `json:"endpoints"`       // by address
	CapacityBefore    Number         `json:"capacity_before"` // of the pool
	CapacityAfter     Number         `json:"capacity_after"`
	CapacityUsed      Number         `json:"capacity_used"`
	CapacityUsedAfter Number         `json:"capacity_used_after"`

	Note string `json:"note"` // what the dry run cannot show
}

// A KeyDiff is a value of the configuration that differs. An empty text is a value that is not there.
type KeyDiff struct {
	Path   string `json:"path"`   // below the cluster
	Before string `json:"before"` // empty: none
	After  string `json:"after"`
}

// An EndpointDiff is what would change for an endpoint. A part of the capacity is what it gets in the long run when the
// pool is busy; of a decision, which lasts some milliseconds, only the flag is shown.
type EndpointDiff struct {
	Address       string `json:"address"`
	Change        string `json:"change"` // `joins`, `leaves`, or empty
	Before        Part   `json:"before"`
	After         Part   `json:"after"`
	ServedShare1m Number `json:"served_share_1m"`
}

// A Part is an endpoint's part of its pool.
type Part struct {
	CapacityShare Number `json:"capacity_share"`
	Capacity      Number `json:"capacity"` // slots × relative speed
	Slots         Number `json:"slots"`
	Overloaded    bool   `json:"overloaded"`
	Reason        string `json:"reason"`
}
