package admin

import (
	"steelyard/controlplane/view"
	"steelyard/internal/stat"
)

// A Source is the current state of the process. Its methods are called from many goroutines, on every request and every
// scrape of /metrics; they must not block on the network. What they return may be shared: this package never writes to
// it.
type Source interface {
	// Clusters returns all configured clusters, sorted by name.
	Clusters() []view.Cluster
	// Cluster returns one of them.
	Cluster(name string) (view.Cluster, bool)
	// Clients returns the connected Envoys, sorted by node id.
	Clients() []Client
	// Matrix returns the requests in flight of a cluster by Envoy and endpoint, in any order.
	Matrix(cluster string) (view.Matrix, bool)
	// Status returns the state of the process.
	Status() Status
}

// A Status is the state of the whole process.
type Status struct {
	Version    string    `json:"version"`     // version of Steelyard
	StartedAt  view.Time `json:"started_at"`  // when the process started
	ConfigFile string    `json:"config_file"` // path of the configuration; empty: none
	// configurations applied since the start; 0 before the first
	ConfigGeneration uint64 `json:"config_generation"`
	LastReload       Reload `json:"last_reload"` // latest attempt to apply a configuration
	// why changes of the file are found only by polling every 5 s
	ConfigWatchError string `json:"config_watch_error"`
	Draining         bool   `json:"draining"` // the process is shutting down
	// all clusters were ready at some moment; later ones do not change `ready`
	BeenReady bool           `json:"been_ready"`
	Signals   SignalTotals   `json:"signals"`    // reports of all Envoys about their requests
	XDSPort   stat.Port      `json:"xds_port"`   // use of the limits of the xDS port
	AdminPort stat.AdminPort `json:"admin_port"` // use of the limits of the admin listener
	Replicas  stat.Replicas  `json:"replicas"`   // other replicas of this control plane
	Pickers   Pickers        `json:"pickers"`    // programs that follow the loads
	// in use, the first to expire first; at most 100
	Certificates []Certificate `json:"certificates"`
	// TLS handshakes on the xDS port that failed, one for each reason
	RefusedHandshakes []stat.RefusedHandshake `json:"refused_handshakes"`
	// Envoys that vanished in the last ten minutes and have not returned
	GoneEnvoys []stat.GoneEnvoy `json:"gone_envoys"`
	Log        stat.LogStatus   `json:"log"`       // state of the log
	Overrides  OverrideStatus   `json:"overrides"` // endpoints that operators drained or pinned
	Tracing    stat.Tracing     `json:"tracing"`   // traces of decisions

	// Filled in by the handler.

	RefusedRequests RefusedRequests `json:"refused_requests"` // requests refused because of their Host header
	AdminAccess     AdminAccess     `json:"admin_access"`     // who may use the admin listener

	XDSAccess XDSAccess `json:"xds_access"` // who may use the xDS port

	Now           view.Time      `json:"now"`            // time of this answer
	UptimeSeconds view.Number    `json:"uptime_seconds"` // since `started_at`
	Ready         bool           `json:"ready"`          // as `/readyz` answers
	Problems      []view.Problem `json:"problems"`       // of the whole process
}

// A Reload is the latest attempt to apply a config.
type Reload struct {
	At    view.Time `json:"at"`    // null before the first
	OK    bool      `json:"ok"`    // it was applied
	Error string    `json:"error"` // why it was refused; the one before still runs
}

// Pickers are the programs that follow the loads, each by a stream of its own.
type Pickers struct {
	Connected     int                `json:"connected"`      // pickers that follow the loads, at most 1024
	List          []stat.Picker      `json:"list"`           // the oldest first, at most 100
	SharedPrompts stat.SharedPrompts `json:"shared_prompts"` // learned prompts that they send each other
}

// maxPickers bounds the list in an answer.
const maxPickers = 100

func (p Pickers) complete() Pickers {
	p.Connected = len(p.List)
	shown := make([]stat.Picker, 0, min(len(p.List), maxPickers))
	for _, picker := range limit(p.List, maxPickers) {
		picker.Clusters = orEmpty(picker.Clusters)
		shown = append(shown, picker)
	}
	p.List = shown
	return p
}

// A Client is one connected Envoy.
type Client struct {
	stat.Client
	Signals Signals `json:"signals"` // its reports of its own requests

	// Filled in by the handler.

	// first that holds: `refuses`, `behind` (no answer for 5 s), `unknown` (no such cluster), `silent`, `idle`,
	// `follows`
	State    EnvoyState     `json:"state"`
	Problems []view.Problem `json:"problems"` // of this Envoy
}
