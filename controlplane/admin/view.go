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
	Version          string    `json:"version"` // filled in by the handler from Options
	StartedAt        view.Time `json:"started_at"`
	ConfigFile       string    `json:"config_file"`
	ConfigGeneration uint64    `json:"config_generation"` // 0 before the first config is applied
	LastReload       Reload    `json:"last_reload"`
	// why changes of the file are found by polling only; empty where the system notifies about them
	ConfigWatchError string `json:"config_watch_error"`
	Draining         bool   `json:"draining"` // shutting down
	// all clusters were ready at some time, but for those without an answer of discovery: one that is added later
	// delays only itself
	BeenReady bool `json:"been_ready"`
	// Signals sums up the reports of all Envoys about their requests.
	Signals SignalTotals `json:"signals"`
	// XDSPort is what the peers of the xDS port use of their limits.
	XDSPort stat.Port `json:"xds_port"`
	// AdminPort is the same of the admin listener.
	AdminPort stat.AdminPort `json:"admin_port"`
	// Replicas are the other replicas of this control plane, as this one sees them.
	Replicas stat.Replicas `json:"replicas"`
	// Pickers follow the loads.
	Pickers Pickers `json:"pickers"`
	// Certificates are those that Steelyard uses, its own and those of authorities. The handler
	// shows the first to expire of those of the Source.
	Certificates []Certificate `json:"certificates"`
	// RefusedHandshakes are empty where the xDS port speaks plain text.
	RefusedHandshakes []stat.RefusedHandshake `json:"refused_handshakes"`
	GoneEnvoys        []stat.GoneEnvoy        `json:"gone_envoys"` // the latest first
	Log               stat.LogStatus          `json:"log"`
	// Overrides are what operators decided about endpoints.
	Overrides OverrideStatus `json:"overrides"`
	// Tracing is what became of the traces of decisions.
	Tracing stat.Tracing `json:"tracing"`

	// Filled in by the handler.
	RefusedRequests RefusedRequests `json:"refused_requests"`
	AdminAccess     AdminAccess     `json:"admin_access"`

	// XDSAccess shows who may use the xDS port.
	XDSAccess XDSAccess `json:"xds_access"`

	Now           view.Time      `json:"now"`
	UptimeSeconds view.Number    `json:"uptime_seconds"`
	Ready         bool           `json:"ready"`
	Problems      []view.Problem `json:"problems"`
}

// A Reload is the latest attempt to apply a config.
type Reload struct {
	At    view.Time `json:"at"`
	OK    bool      `json:"ok"`
	Error string    `json:"error"` // empty when it went well
}

// Pickers are the programs that follow the loads, each by a stream of its own.
type Pickers struct {
	Connected int           `json:"connected"`
	List      []stat.Picker `json:"list"` // the oldest first; the handler shows at most maxPickers
	// SharedPrompts are what those with --prefix learn from each other.
	SharedPrompts stat.SharedPrompts `json:"shared_prompts"`
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
	Signals Signals `json:"signals"`

	// Filled in by the handler.
	State    EnvoyState     `json:"state"`
	Problems []view.Problem `json:"problems"`
}
