package api

// A ClusterList is the answer of /api/v1/clusters.
type ClusterList struct {
	Clusters []Cluster `json:"clusters"` // by name, without `endpoints`
}

// A ClientList is the answer of /api/v1/clients.
type ClientList struct {
	Total     int          `json:"total"`     // connected here, whatever the `limit`
	Clients   []Client     `json:"clients"`   // by node id
	Left      []LeftEnvoy  `json:"left"`      // in the last hour, the latest first; at most 256
	Elsewhere []OtherEnvoy `json:"elsewhere"` // Envoys and pickers at other replicas; at most 2000 of each
}

// An IncidentList is the answer of /api/v1/incidents.
type IncidentList struct {
	At        Time           `json:"at"` // found once a second
	State     State          `json:"state"`
	Clusters  []ClusterState `json:"clusters"`  // by name
	Incidents []Incident     `json:"incidents"` // errors first, then the oldest first
	LeftOut   int            `json:"left_out"`  // beyond the first 200
}

// ClusterState is the worst of a cluster's incidents.
type ClusterState struct {
	Name  string `json:"name"`
	State State  `json:"state"`
}

// An EventList is the answer of /api/v1/events.
type EventList struct {
	At       Time    `json:"at"`
	Events   []Event `json:"events"`    // oldest first
	OldestID uint64  `json:"oldest_id"` // that is kept: of the last hour, at most 1000
	LatestID uint64  `json:"latest_id"` // lower than one that you have after a restart
}

// An Explanation is how a share came about at some time.
type Explanation struct {
	Cluster     string   `json:"cluster"`
	At          Time     `json:"at"` // of the decision
	Decision    Decision `json:"decision"`
	Endpoint    Endpoint `json:"endpoint"` // at that time; what Envoys and scrapes counted is kept for now only
	KeptSeconds Number   `json:"kept_seconds"`
	StepSeconds Number   `json:"step_seconds"`
}

// An Error is the body of every response that is not a success, except for the probes.
type Error struct {
	Error string `json:"error"` // what was wrong with the request, and what to write instead
}

// A Fleet is the summary of everything, in each frame of a stream.
type Fleet struct {
	Ready            bool           `json:"ready"`
	StartedAt        Time           `json:"started_at"`
	ConfigGeneration uint64         `json:"config_generation"`
	State            State          `json:"state"` // the worst of all incidents
	Envoys           FleetEnvoys    `json:"envoys"`
	Clusters         []FleetCluster `json:"clusters"`          // by name
	Incidents        []Incident     `json:"incidents"`         // the first 50
	PushRate         Number         `json:"pushes_per_second"` // over ten seconds
	LastEventID      uint64         `json:"last_event_id"`     // 0: none
}

// FleetEnvoys counts the Envoys of all replicas by what they do with the assignments.
type FleetEnvoys struct {
	Connected int `json:"connected"`
	Here      int `json:"here"`     // connected to this replica
	Unheard   int `json:"unheard"`  // of replicas that are silent
	InSync    int `json:"in_sync"`  // with the current version of all their clusters
	Behind    int `json:"behind"`   // no answer for five seconds
	Refusing  int `json:"refusing"` // refused the latest assignment of a cluster
	Lost      int `json:"lost"`     // no answer for ten minutes, and not connected any more
	Left      int `json:"left"`     // in the last hour
}

// A FleetCluster is one cluster in a line.
type FleetCluster struct {
	Name           string         `json:"name"`
	State          State          `json:"state"`
	Ready          bool           `json:"ready"`
	Counts         EndpointCounts `json:"endpoint_counts"`
	ArrivalRate    Number         `json:"arrival_rate"`
	MedianLoad     Number         `json:"median_load"`
	FullestLoad    Number         `json:"fullest_load"` // highest `load_per_slot`
	WaterLevel     Number         `json:"water_level"`
	Unit           string         `json:"unit"`
	InFlight       Number         `json:"in_flight"`
	FirstTokenMean Number         `json:"first_token_mean_seconds"`
	AnswerP99      Number         `json:"answer_p99_seconds"`
	CapacityUsed   Number         `json:"capacity_used"`
	ToSpare        Number         `json:"endpoints_to_spare"`
	DropFraction   Number         `json:"drop_fraction"`
	DecisionAge    Number         `json:"decision_age_seconds"`
	VsDecided      Number         `json:"vs_decided"`
}

// A Frame is a second of a stream.
type Frame struct {
	At       Time          `json:"at"`
	Fleet    *Fleet        `json:"fleet"`    // everything in short
	Cluster  *ClusterFrame `json:"cluster"`  // that was asked for
	Endpoint *Endpoint     `json:"endpoint"` // that was asked for
	Matrix   *Matrix       `json:"matrix"`   // if it was asked for
}

// A ClusterFrame is a cluster in a frame: all of it but the endpoints, and of these a column for each field.
type ClusterFrame struct {
	Cluster Cluster `json:"cluster"` // without `endpoints`
	Order   uint64  `json:"order"`   // changes with the set of endpoints
	// of the columns, sorted; null while the frame before had the same `order`
	Addresses []string `json:"addresses"`
	Fields    []string `json:"fields"`  // of the columns, in their order
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
func (n FleetEnvoys) Asked() int { return n.Connected + n.Lost + n.Unheard }

// An OverrideList is the answer of /api/v1/overrides.
type OverrideList struct {
	At        Time       `json:"at"`
	Overrides []Override `json:"overrides"` // by cluster and address
}

// An OverrideRequest is the body of a PUT of an override.
type OverrideRequest struct {
	Kind       OverrideKind `json:"kind"`
	Share      Number       `json:"share"`       // of a pin, 0.0001 to 0.99
	ForSeconds Number       `json:"for_seconds"` // 1 s to 7 days; null: an hour
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
