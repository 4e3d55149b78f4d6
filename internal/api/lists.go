package api

// A ClusterList is the answer of /api/v1/clusters.
type ClusterList struct {
	Clusters []Cluster `json:"clusters"` // sorted by name, each without `endpoints`
}

// A ClientList is the answer of /api/v1/clients.
type ClientList struct {
	Total   int         `json:"total"`   // all of them, whatever the `limit`
	Clients []Client    `json:"clients"` // by node id
	Left    []LeftEnvoy `json:"left"`    // Envoys that left in the last hour, the latest first; at most 256
}

// An IncidentList is the answer of /api/v1/incidents.
type IncidentList struct {
	At        Time           `json:"at"`        // when they were found; once a second
	State     State          `json:"state"`     // `ok`, `warning` or `error`: the worst of them
	Clusters  []ClusterState `json:"clusters"`  // sorted by name
	Incidents []Incident     `json:"incidents"` // errors first, then the oldest first
	LeftOut   int            `json:"left_out"`  // incidents beyond the first 200
}

// ClusterState is the worst of a cluster's incidents.
type ClusterState struct {
	Name  string `json:"name"`  // name of the cluster
	State State  `json:"state"` // the worst of its incidents
}

// An EventList is the answer of /api/v1/events.
type EventList struct {
	At       Time    `json:"at"`        // time of the answer
	Events   []Event `json:"events"`    // oldest first
	OldestID uint64  `json:"oldest_id"` // of the oldest that is kept: of the last hour, at most 1000
	// of the latest of all; lower than one that you have after a restart of Steelyard
	LatestID uint64 `json:"latest_id"`
}

// An Explanation is how a share came about at some time.
type Explanation struct {
	Cluster  string   `json:"cluster"`  // name of the cluster
	At       Time     `json:"at"`       // when the explained decision was made
	Decision Decision `json:"decision"` // the decision, as far as it concerns the whole pool
	// the endpoint at that time; what Envoys and scrapes counted is kept for now only
	Endpoint    Endpoint `json:"endpoint"`
	KeptSeconds Number   `json:"kept_seconds"` // how far back decisions are kept
	StepSeconds Number   `json:"step_seconds"` // between two decisions that are kept
}

// An Error is the body of every response that is not a success, except for the probes.
type Error struct {
	Error string `json:"error"` // what was wrong with the request, and what to write instead
}

// A Fleet is the summary of everything, in each frame of a stream.
type Fleet struct {
	Ready            bool           `json:"ready"`             // as in Status
	StartedAt        Time           `json:"started_at"`        // as in Status
	ConfigGeneration uint64         `json:"config_generation"` // as in Status
	State            State          `json:"state"`             // the worst of all incidents
	Envoys           FleetEnvoys    `json:"envoys"`            // how many Envoys do what
	Clusters         []FleetCluster `json:"clusters"`          // sorted by name
	Incidents        []Incident     `json:"incidents"`         // the first 50
	PushRate         Number         `json:"pushes_per_second"` // pushes of all clusters, over ten seconds
	LastEventID      uint64         `json:"last_event_id"`     // of the latest event; 0: none
}

// FleetEnvoys counts the Envoys by what they do with the assignments.
type FleetEnvoys struct {
	Connected int `json:"connected"` // Envoys with an open stream
	InSync    int `json:"in_sync"`   // Envoys that have accepted the current version of all their clusters
	Behind    int `json:"behind"`    // Envoys that have not answered for five seconds
	Refusing  int `json:"refusing"`  // Envoys that refused the latest assignment of a cluster
	Lost      int `json:"lost"`      // Envoys that did not answer for ten minutes and are not connected any more
	Left      int `json:"left"`      // Envoys that left in the last hour
}

// A FleetCluster is one cluster in a line.
type FleetCluster struct {
	Name           string         `json:"name"`                     // as in Cluster
	State          State          `json:"state"`                    // as in Cluster
	Ready          bool           `json:"ready"`                    // as in Cluster
	Counts         EndpointCounts `json:"endpoint_counts"`          // as in Cluster
	ArrivalRate    Number         `json:"arrival_rate"`             // as in its Decision
	MedianLoad     Number         `json:"median_load"`              // as in its Decision
	FullestLoad    Number         `json:"fullest_load"`             // highest `load_per_slot` of its endpoints
	WaterLevel     Number         `json:"water_level"`              // as in its Decision
	Unit           string         `json:"unit"`                     // as in its Decision
	InFlight       Number         `json:"in_flight"`                // requests in flight, over all endpoints
	FirstTokenMean Number         `json:"first_token_mean_seconds"` // as in the cluster
	AnswerP99      Number         `json:"answer_p99_seconds"`       // as in the cluster
	CapacityUsed   Number         `json:"capacity_used"`            // as in its Use
	ToSpare        Number         `json:"endpoints_to_spare"`       // as in its Use
	DropFraction   Number         `json:"drop_fraction"`            // as in its Decision
	DecisionAge    Number         `json:"decision_age_seconds"`     // age of its Decision
	VsDecided      Number         `json:"vs_decided"`               // as in its Served
}

// A Frame is a second of a stream.
type Frame struct {
	At       Time          `json:"at"`       // when
	Fleet    *Fleet        `json:"fleet"`    // everything in short
	Cluster  *ClusterFrame `json:"cluster"`  // the cluster that was asked for
	Endpoint *Endpoint     `json:"endpoint"` // the endpoint that was asked for
	Matrix   *Matrix       `json:"matrix"`   // the matrix, if it was asked for
}

// A ClusterFrame is a cluster in a frame: all of it but the endpoints, and of these a column for each field.
type ClusterFrame struct {
	Cluster Cluster `json:"cluster"` // without `endpoints`
	Order   uint64  `json:"order"`   // changes with the set of endpoints
	// endpoints of the columns, sorted; null while the frame before had the same `order`
	Addresses []string `json:"addresses"`
	Fields    []string `json:"fields"`  // fields of the columns, in their order
	Columns   string   `json:"columns"` // base64: for each field one value for each endpoint
}

// Limit keeps the first n items, all when n is 0.
func Limit[T any](items []T, n int) []T {
	if n > 0 && len(items) > n {
		return items[:n]
	}
	return items
}

// Asked are the Envoys that should follow: those that are connected, and those that may still run.
func (n FleetEnvoys) Asked() int { return n.Connected + n.Lost }

// An OverrideList is the answer of /api/v1/overrides.
type OverrideList struct {
	At        Time       `json:"at"`        // when
	Overrides []Override `json:"overrides"` // in force, sorted by cluster and address
}

// An OverrideRequest is the body of a PUT of an override.
type OverrideRequest struct {
	Kind       OverrideKind `json:"kind"`        // `drain` or `pin`
	Share      Number       `json:"share"`       // share of a pin, 0.0001 to 0.99
	ForSeconds Number       `json:"for_seconds"` // how long, 1 s to 7 days; null: an hour
	Reason     string       `json:"reason"`      // at most 200 bytes
}

// LogLevel is the answer and the body of /api/v1/log-level.
type LogLevel struct {
	Level string `json:"level"` // `debug`, `info`, `warn` or `error`
}

// OrEmpty keeps null out of the JSON where a list is meant.
func OrEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}
