package api

import "fmt"

// An AdminAccess is who may use the admin listener, and who was denied.
type AdminAccess struct {
	Loopback        bool   `json:"loopback"`         // only processes of this machine can connect
	TLS             bool   `json:"tls"`              // it speaks TLS
	TokensFile      string `json:"tokens_file"`      // path; empty for none
	Tokens          int    `json:"tokens"`           // tokens in use
	TokensError     string `json:"tokens_error"`     // why the file cannot be used; its previous tokens stay
	AnonymousView   bool   `json:"anonymous_view"`   // viewing needs no token
	Insecure        bool   `json:"insecure"`         // other machines need no TLS or no token
	Kubernetes      bool   `json:"kubernetes"`       // tokens of Kubernetes are accepted
	KubernetesError string `json:"kubernetes_error"` // why it cannot be asked about tokens

	Denied []DeniedRequests `json:"denied"` // one for each reason
}

// DeniedRequests are those that were denied for one reason.
type DeniedRequests struct {
	// `no_token`, `wrong_token`, `role`, `not_reviewed` (Kubernetes did not answer) or `cross_origin`
	Reason   string `json:"reason"`
	Count    uint64 `json:"count"`
	LastAt   Time   `json:"last_at"`
	LastPeer string `json:"last_peer"`
}

// The uses of certificates.
const (
	UseXDS           = "xds"             // presented to Envoys
	UseXDSClientCA   = "xds_client_ca"   // authorities for Envoys
	UseAdmin         = "admin"           // presented to people and Prometheus
	UseAdminClientCA = "admin_client_ca" // authorities for them
	UseScrapeClient  = "scrape_client"   // presented to model servers
	UseScrapeCA      = "scrape_ca"       // authorities for model servers
	UseRedisClient   = "redis_client"    // presented to Redis
	UseRedisCA       = "redis_ca"        // authorities for Redis
	UseGateway       = "envoy_gateway"   // presented to Envoy Gateway

	UseGatewayClientCA = "envoy_gateway_client_ca" // authorities for it
)

// A Certificate is one that Steelyard uses: the one of a chain that expires first, or an authority.
type Certificate struct {
	// section of the configuration, or with `_client_ca`; of `scrape` and `redis` with `_client` or `_ca`
	Use      string `json:"use"`
	File     string `json:"file"`
	Subject  string `json:"subject"` // of a chain, the one that expires first
	NotAfter Time   `json:"not_after"`
	Error    string `json:"error"`

	// Filled in by the handler.

	DaysLeft Number `json:"days_left"` // below 0 once it has expired
}

// An XDSAccess is who may use the xDS port, and who was denied.
type XDSAccess struct {
	Loopback           bool `json:"loopback"`
	TLS                bool `json:"tls"`
	ClientCertificates bool `json:"client_certificates"` // clients need one
	Insecure           bool `json:"insecure"`            // other machines need no certificate
	Rules              int  `json:"rules"`               // items of `xds.clients`; 0: every client may use all clusters

	Denied []DeniedClients `json:"denied"` // one for each kind
}

// RefusedRequests are requests that were refused for their Host header.
type RefusedRequests struct {
	Count    uint64 `json:"count"`
	LastAt   Time   `json:"last_at"`
	LastHost string `json:"last_host"` // its Host
}

// A Session is who a request comes from.
type Session struct {
	Name string `json:"name"` // of the token; empty without one
	Role string `json:"role"` // `view` or `operate`
}

// An OverrideStatus is how many overrides there are, and whether they outlive a restart.
type OverrideStatus struct {
	Count  int    `json:"count"`   // in force
	KeptIn string `json:"kept_in"` // `redis`; empty: they end with the process
	Error  string `json:"error"`
}

// A Status is the state of the whole process.
type Status struct {
	Version          string `json:"version"`
	StartedAt        Time   `json:"started_at"`
	ConfigFile       string `json:"config_file"`        // path; empty: none
	ConfigGeneration uint64 `json:"config_generation"`  // configurations applied since the start
	LastReload       Reload `json:"last_reload"`        // latest attempt to apply one
	ConfigWatchError string `json:"config_watch_error"` // why the file is only polled, every 5 s
	Draining         bool   `json:"draining"`           // it is shutting down
	Program          string `json:"program"`            // how commands are run, such as by kubectl exec
	OwnPod           OwnPod `json:"own_pod"`            // that the process runs in
	// all clusters were ready at some moment; later ones do not change `ready`
	BeenReady         bool               `json:"been_ready"`
	Signals           SignalTotals       `json:"signals"`    // of all Envoys
	XDSPort           Port               `json:"xds_port"`   // use of its limits
	AdminPort         AdminPort          `json:"admin_port"` // use of its limits
	Replicas          Replicas           `json:"replicas"`
	Pickers           Pickers            `json:"pickers"`
	Certificates      []Certificate      `json:"certificates"`       // in use, the first to expire first; at most 100
	RefusedHandshakes []RefusedHandshake `json:"refused_handshakes"` // on the xDS port, one for each reason
	GoneEnvoys        []GoneEnvoy        `json:"gone_envoys"`        // vanished in the last ten minutes and not back
	Log               LogStatus          `json:"log"`
	Overrides         OverrideStatus     `json:"overrides"`
	Pods              PodActions         `json:"pods"` // what is written about Pods
	Pools             Pools              `json:"pools"`

	EnvoyGateway EnvoyGateway `json:"envoy_gateway"` // what it asked

	// Filled in by the handler.

	RefusedRequests RefusedRequests `json:"refused_requests"` // because of their Host
	AdminAccess     AdminAccess     `json:"admin_access"`

	XDSAccess XDSAccess `json:"xds_access"`

	Now           Time      `json:"now"`
	UptimeSeconds Number    `json:"uptime_seconds"`
	Ready         bool      `json:"ready"` // as `/readyz` answers
	Problems      []Problem `json:"problems"`
}

// An OwnPod is the Pod that a process runs in; all is empty outside of Kubernetes.
type OwnPod struct {
	Namespace      string `json:"namespace"`       // its namespace
	Name           string `json:"name"`            // its name
	ServiceAccount string `json:"service_account"` // whose rights it has
}

// Program is how the commands of a program in the Pod are run, where they need no options.
func (p OwnPod) Program() string {
	if p.Name == "" {
		return "steelyard"
	}
	return fmt.Sprintf("kubectl -n %s exec %s -- /steelyard", p.Namespace, p.Name)
}

// RestartToChange ends the Error of a Reload that a restart would apply.
const RestartToChange = "restart to change it"

// A Reload is the latest attempt to apply a config.
type Reload struct {
	At    Time   `json:"at"`    // null before the first
	OK    bool   `json:"ok"`    // it was applied
	Error string `json:"error"` // why it was refused; the one before still runs
}

// Pickers are the programs that follow the loads, each by a stream of its own.
type Pickers struct {
	Connected     int           `json:"connected"`      // that follow the loads, at most 1024
	List          []Picker      `json:"list"`           // the oldest first, at most 100
	SharedPrompts SharedPrompts `json:"shared_prompts"` // learned prompts that they send each other
}

// maxPickers bounds the list in an answer.
const maxPickers = 100

func (p Pickers) Complete() Pickers {
	p.Connected = len(p.List)
	shown := make([]Picker, 0, min(len(p.List), maxPickers))
	for _, picker := range Limit(p.List, maxPickers) {
		picker.Clusters = OrEmpty(picker.Clusters)
		shown = append(shown, picker)
	}
	p.List = shown
	return p
}

// The reasons of denied requests.
const (
	DeniedNoToken     = "no_token"
	DeniedWrongToken  = "wrong_token"
	DeniedRole        = "role"
	DeniedNotReviewed = "not_reviewed"
	DeniedCrossOrigin = "cross_origin"
)

// PodActions is what is written about Pods into the Kubernetes API.
type PodActions struct {
	Enabled bool        `json:"enabled"`
	Wedged  []WedgedPod `json:"wedged"` // the engine hangs while its metrics page is answered
	Error   string      `json:"error"`
}

// A WedgedPod is a Pod whose engine hangs.
type WedgedPod struct {
	Cluster   string `json:"cluster"`
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	Since     Time   `json:"since"`
	Eviction  string `json:"eviction"` // what became of it, or why it is kept; empty without `evict`
}
