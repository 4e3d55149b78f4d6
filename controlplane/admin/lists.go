package admin

import (
	"steelyard/controlplane/view"
	"steelyard/internal/stat"
)

// A ClusterList is the answer of /api/v1/clusters.
type ClusterList struct {
	Clusters []view.Cluster `json:"clusters"`
}

// A ClientList is the answer of /api/v1/clients.
type ClientList struct {
	Total   int         `json:"total"`
	Clients []Client    `json:"clients"`
	Left    []LeftEnvoy `json:"left"` // in the last hour, and not back; the latest first
}

// A LeftEnvoy is one that was connected and is not any more.
type LeftEnvoy struct {
	stat.Node
	Address     string    `json:"address"`
	ConnectedAt view.Time `json:"connected_at"`
	Clusters    []string  `json:"clusters"` // that it subscribed to
	LeftAt      view.Time `json:"left_at"`
	LeftReason  string    `json:"left_reason"`
	Vanished    bool      `json:"vanished"` // without closing its streams
	Silent      bool      `json:"silent"`   // it did not answer pings, and Steelyard closed the connection

	// Filled in by the handler.
	State EnvoyState `json:"state"`
}

// An IncidentList is the answer of /api/v1/incidents.
type IncidentList struct {
	At        view.Time       `json:"at"`
	State     view.State      `json:"state"` // the worst of all
	Clusters  []clusterState  `json:"clusters"`
	Incidents []view.Incident `json:"incidents"` // errors first, then those that began first
	LeftOut   int             `json:"left_out"`  // incidents beyond the bound
}

// clusterState is the worst of a cluster's incidents.
type clusterState struct {
	Name  string     `json:"name"`
	State view.State `json:"state"`
}

// An EventList is the answer of /api/v1/events.
type EventList struct {
	At       view.Time    `json:"at"`
	Events   []view.Event `json:"events"`    // oldest first
	OldestID uint64       `json:"oldest_id"` // of those that are kept; 0: none
	LatestID uint64       `json:"latest_id"` // of all since the start; 0: none
}

// An Explanation is how a share came about at some time.
type Explanation struct {
	Cluster     string        `json:"cluster"`
	At          view.Time     `json:"at"` // of the decision
	Decision    view.Decision `json:"decision"`
	Endpoint    view.Endpoint `json:"endpoint"`
	KeptSeconds view.Number   `json:"kept_seconds"` // how far back decisions are kept
	StepSeconds view.Number   `json:"step_seconds"` // between two that are kept
}

// An Error is the body of every response that is not a success, except for the probes.
type Error struct {
	Error string `json:"error"`
}

// A fleet is the summary of everything, in each frame of a stream.
type fleet struct {
	Ready            bool            `json:"ready"`
	StartedAt        view.Time       `json:"started_at"`
	ConfigGeneration uint64          `json:"config_generation"`
	State            view.State      `json:"state"`
	Envoys           fleetEnvoys     `json:"envoys"`
	Clusters         []fleetCluster  `json:"clusters"`
	Incidents        []view.Incident `json:"incidents"`
	PushRate         view.Number     `json:"pushes_per_second"` // of all clusters, over ten seconds
	LastEventID      uint64          `json:"last_event_id"`
}

// fleetEnvoys counts the Envoys by what they do with the assignments.
type fleetEnvoys struct {
	Connected int `json:"connected"`
	InSync    int `json:"in_sync"` // of them, those that subscribe to something and accepted it
	Behind    int `json:"behind"`  // have not answered for longer than Envoys take
	Refusing  int `json:"refusing"`
	Lost      int `json:"lost"` // not connected any more, because they answered nothing in the last ten minutes
	Left      int `json:"left"` // in the last hour, and not back
}

// A fleetCluster is one cluster in a line.
type fleetCluster struct {
	Name           string              `json:"name"`
	State          view.State          `json:"state"`
	Ready          bool                `json:"ready"`
	Counts         view.EndpointCounts `json:"endpoint_counts"`
	ArrivalRate    view.Number         `json:"arrival_rate"`
	MedianLoad     view.Number         `json:"median_load"`
	FullestLoad    view.Number         `json:"fullest_load"`
	WaterLevel     view.Number         `json:"water_level"`
	Unit           string              `json:"unit"`
	InFlight       view.Number         `json:"in_flight"`
	FirstTokenMean view.Number         `json:"first_token_mean_seconds"`
	AnswerP99      view.Number         `json:"answer_p99_seconds"`
	CapacityUsed   view.Number         `json:"capacity_used"`
	ToSpare        view.Number         `json:"endpoints_to_spare"`
	DropFraction   view.Number         `json:"drop_fraction"`
	DecisionAge    view.Number         `json:"decision_age_seconds"`
	VsDecided      view.Number         `json:"vs_decided"`
}

// A frame is a second of a stream.
type frame struct {
	At       view.Time      `json:"at"`
	Fleet    *fleet         `json:"fleet"`
	Cluster  *clusterFrame  `json:"cluster"`  // null: the stream is of no cluster, or there is none of that name
	Endpoint *view.Endpoint `json:"endpoint"` // null: of no endpoint, or it is not in the pool
	Matrix   *view.Matrix   `json:"matrix"`   // null: not asked for
}

// A clusterFrame is a cluster in a frame: all of it but the endpoints, and of these a column for each field.
type clusterFrame struct {
	Cluster view.Cluster `json:"cluster"` // without endpoints
	// Order changes with the set of endpoints; Addresses are those of the columns, and null if the frame before had
	// the same.
	Order     uint64   `json:"order"`
	Addresses []string `json:"addresses"`
	Fields    []string `json:"fields"`
	Columns   string   `json:"columns"` // base64
}
