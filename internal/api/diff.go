package api

// A Diff is what another configuration would change, by a dry run of the law against the current reports.
type Diff struct {
	At       Time          `json:"at"`       // when
	Restart  []string      `json:"restart"`  // sections that need a restart
	Redis    bool          `json:"redis"`    // the section `redis` differs
	Added    []string      `json:"added"`    // clusters that appear
	Removed  []string      `json:"removed"`  // clusters that disappear
	Clusters []ClusterDiff `json:"clusters"` // clusters that change
}

// A ClusterDiff is what would change in a cluster.
type ClusterDiff struct {
	Name              string         `json:"name"`                // name of the cluster
	Keys              []KeyDiff      `json:"keys"`                // values that differ
	Endpoints         []EndpointDiff `json:"endpoints"`           // all, sorted by address
	CapacityBefore    Number         `json:"capacity_before"`     // capacity of the pool now
	CapacityAfter     Number         `json:"capacity_after"`      // capacity of the pool then
	CapacityUsed      Number         `json:"capacity_used"`       // part of it in use now
	CapacityUsedAfter Number         `json:"capacity_used_after"` // part of it in use then

	Note string `json:"note"` // what the dry run cannot show
}

// A KeyDiff is a value of the configuration that differs. An empty text is a value that is not there.
type KeyDiff struct {
	Path   string `json:"path"`   // below the cluster
	Before string `json:"before"` // value now; empty: none
	After  string `json:"after"`  // value then; empty: none
}

// An EndpointDiff is what would change for an endpoint. A part of the capacity is what it gets in the long run when the
// pool is busy; of a decision, which lasts some milliseconds, only the flag is shown.
type EndpointDiff struct {
	Address       string `json:"address"`         // the endpoint
	Change        string `json:"change"`          // `joins`, `leaves`, or empty
	Before        Part   `json:"before"`          // part of the pool now
	After         Part   `json:"after"`           // part of the pool then
	ServedShare1m Number `json:"served_share_1m"` // part of the requests that it got in the last minute
}

// A Part is an endpoint's part of its pool.
type Part struct {
	CapacityShare Number `json:"capacity_share"` // part of the pool's capacity, 0 to 1
	Capacity      Number `json:"capacity"`       // slots × relative speed
	Slots         Number `json:"slots"`          // requests that it executes at once
	Overloaded    bool   `json:"overloaded"`     // it has the overload flag
	Reason        string `json:"reason"`         // main cause of its share
}
