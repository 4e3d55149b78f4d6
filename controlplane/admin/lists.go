package admin

import (
	"steelyard/controlplane/view"
	"steelyard/internal/stat"
)

// A ClusterList is the answer of /api/v1/clusters.
type ClusterList struct {
	Clusters []view.Cluster `json:"clusters"` // sorted by name, each without `endpoints`
}

// A ClientList is the answer of /api/v1/clients.
type ClientList struct {
	Total   int         `json:"total"`   // all of them, whatever the `limit`
	Clients []Client    `json:"clients"` // by node id
	Left    []LeftEnvoy `json:"left"`    // Envoys that left in the last hour, the latest first; at most 256
}

// A LeftEnvoy is one that was connected and is not any more.
type LeftEnvoy struct {
	stat.Node
	Address     string    `json:"address"`      // remote address of its connection
	ConnectedAt view.Time `json:"connected_at"` // when it connected
	Clusters    []string  `json:"clusters"`     // the clusters that it asked for
	LeftAt      view.Time `json:"left_at"`      // when its last stream ended, to a second
	LeftReason  string    `json:"left_reason"`  // how its connection ended
	Vanished    bool      `json:"vanished"`     // it did not close its streams: a crash, a kill or the network
	Silent      bool      `json:"silent"`       // it did not answer pings, so Steelyard closed the connection

	// Filled in by the handler.

	// `behind` (`silent` and perhaps still running, for ten minutes), `gone` (`vanished`) or `left`
	State EnvoyState `json:"state"`
}

// An IncidentList is the answer of /api/v1/incidents.
type IncidentList struct {
	At        view.Time       `json:"at"`        // when they were found; once a second
	State     view.State      `json:"state"`     // `ok`, `warning` or `error`: the worst of them
	Clusters  []clusterState  `json:"clusters"`  // sorted by name
	Incidents []view.Incident `json:"incidents"` // errors first, then those that began first
	LeftOut   int             `json:"left_out"`  // incidents beyond the first 200
}

// clusterState is the worst of a cluster's incidents.
type clusterState struct {
	Name  string     `json:"name"`  // name of the cluster
	State view.State `json:"state"` // the worst of its incidents
}

// An EventList is the answer of /api/v1/events.
type EventList struct {
	At       view.Time    `json:"at"`        // time of the answer
	Events   []view.Event `json:"events"`    // oldest first
	OldestID uint64       `json:"oldest_id"` // of the oldest that is kept: of the last hour, at most 1000
	// of the latest of all; lower than one that you have after a restart of Steelyard
	LatestID uint64 `json:"latest_id"`
}

// An Explanation is how a share came about at some time.
type Explanation struct {
	Cluster  string        `json:"cluster"`  // name of the cluster
	At       view.Time     `json:"at"`       // when the explained decision was made
	Decision view.Decision `json:"decision"` // the decision, as far as it concerns the whole pool
	// the endpoint at that time; what Envoys and scrapes counted is kept for now only
	Endpoint    view.Endpoint `json:"endpoint"`
	KeptSeconds view.Number   `json:"kept_seconds"` // how far back decisions are kept
	StepSeconds view.Number   `json:"step_seconds"` // between two decisions that are kept
}

// An Error is the body of every response that is not a success, except for the probes.
type Error struct {
	Error string `json:"error"` // what was wrong with the request, and what to write instead
}

// A fleet is the summary of everything, in each frame of a stream.
type fleet struct {
	Ready            bool            `json:"ready"`             // as in Status
	StartedAt        view.Time       `json:"started_at"`        // as in Status
	ConfigGeneration uint64          `json:"config_generation"` // as in Status
	State            view.State      `json:"state"`             // the worst of all incidents
	Envoys           fleetEnvoys     `json:"envoys"`            // how many Envoys do what
	Clusters         []fleetCluster  `json:"clusters"`          // sorted by name
	Incidents        []view.Incident `json:"incidents"`         // the first 50
	PushRate         view.Number     `json:"pushes_per_second"` // pushes of all clusters, over ten seconds
	LastEventID      uint64          `json:"last_event_id"`     // of the latest event; 0: none
}

// fleetEnvoys counts the Envoys by what they do with the assignments.
type fleetEnvoys struct {
	Connected int `json:"connected"` // Envoys with an open stream
	InSync    int `json:"in_sync"`   // Envoys that have accepted the current version of all their clusters
	Behind    int `json:"behind"`    // Envoys that have not answered for five seconds
	Refusing  int `json:"refusing"`  // Envoys that refused the latest assignment of a cluster
	Lost      int `json:"lost"`      // Envoys that did not answer for ten minutes and are not connected any more
	Left      int `json:"left"`      // Envoys that left in the last hour
}

// A fleetCluster is one cluster in a line.
type fleetCluster struct {
	Name           string              `json:"name"`                     // as in Cluster
	State          view.State          `json:"state"`                    // as in Cluster
	Ready          bool                `json:"ready"`                    // as in Cluster
	Counts         view.EndpointCounts `json:"endpoint_counts"`          // as in Cluster
	ArrivalRate    view.Number         `json:"arrival_rate"`             // as in its Decision
	MedianLoad     view.Number         `json:"median_load"`              // as in its Decision
	FullestLoad    view.Number         `json:"fullest_load"`             // highest `load_per_slot` of its endpoints
	WaterLevel     view.Number         `json:"water_level"`              // as in its Decision
	Unit           string              `json:"unit"`                     // as in its Decision
	InFlight       view.Number         `json:"in_flight"`                // requests in flight, over all endpoints
	FirstTokenMean view.Number         `json:"first_token_mean_seconds"` // as in the cluster
	AnswerP99      view.Number         `json:"answer_p99_seconds"`       // as in the cluster
	CapacityUsed   view.Number         `json:"capacity_used"`            // as in its Use
	ToSpare        view.Number         `json:"endpoints_to_spare"`       // as in its Use
	DropFraction   view.Number         `json:"drop_fraction"`            // as in its Decision
	DecisionAge    view.Number         `json:"decision_age_seconds"`     // age of its Decision
	VsDecided      view.Number         `json:"vs_decided"`               // as in its Served
}

// A frame is a second of a stream.
type frame struct {
	At       view.Time      `json:"at"`       // when
	Fleet    *fleet         `json:"fleet"`    // everything in short
	Cluster  *clusterFrame  `json:"cluster"`  // the cluster that was asked for
	Endpoint *view.Endpoint `json:"endpoint"` // the endpoint that was asked for
	Matrix   *view.Matrix   `json:"matrix"`   // the matrix, if it was asked for
}

// A clusterFrame is a cluster in a frame: all of it but the endpoints, and of these a column for each field.
type clusterFrame struct {
	Cluster view.Cluster `json:"cluster"` // without `endpoints`
	Order   uint64       `json:"order"`   // changes with the set of endpoints
	// endpoints of the columns, sorted; null while `order` is that of the frame before
	Addresses []string `json:"addresses"`
	Fields    []string `json:"fields"`  // fields of the columns, in their order
	Columns   string   `json:"columns"` // base64: for each field one value for each endpoint
}
