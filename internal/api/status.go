package api

// An AdminAccess is who may use the admin listener, and who was denied.
type AdminAccess struct {
	Loopback      bool   `json:"loopback"`       // only processes of this machine can connect
	TLS           bool   `json:"tls"`            // the listener speaks TLS
	TokensFile    string `json:"tokens_file"`    // path of `admin.tokens_file`; empty for none
	Tokens        int    `json:"tokens"`         // tokens in use
	TokensError   string `json:"tokens_error"`   // why the file cannot be used; its previous tokens stay in use
	AnonymousView bool   `json:"anonymous_view"` // viewing needs no token though there are tokens
	Insecure      bool   `json:"insecure"`       // clients of other machines need no TLS or no token
	Kubernetes    bool   `json:"kubernetes"`     // tokens of the Kubernetes API are accepted
	// why the Kubernetes API cannot be asked about tokens; callers that had access keep it for a while
	KubernetesError string `json:"kubernetes_error"`

	Denied []DeniedRequests `json:"denied"` // one for each reason
}

// DeniedRequests are those that were denied for one reason.
type DeniedRequests struct {
	// `no_token`, `wrong_token`, `role` (it may not), `not_reviewed` (Kubernetes did not answer) or `cross_origin`
	Reason   string `json:"reason"`
	Count    uint64 `json:"count"`     // since the start
	LastAt   Time   `json:"last_at"`   // when the latest was denied
	LastPeer string `json:"last_peer"` // address that sent the latest
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
	// what for: `xds`, `admin`, `envoy_gateway` or one of these with `_client_ca`; `scrape` or `redis` with `_client`
	// or `_ca`
	Use      string `json:"use"`
	File     string `json:"file"`      // path of the file
	Subject  string `json:"subject"`   // whose it is; of a chain, the certificate that expires first
	NotAfter Time   `json:"not_after"` // when it expires
	Error    string `json:"error"`     // why the file cannot be used now

	// Filled in by the handler.

	DaysLeft Number `json:"days_left"` // until `not_after`; below 0 once it has expired
}

// An XDSAccess is who may use the xDS port, and who was denied.
type XDSAccess struct {
	Loopback           bool `json:"loopback"`            // only processes of this machine can connect
	TLS                bool `json:"tls"`                 // the port speaks TLS
	ClientCertificates bool `json:"client_certificates"` // clients need a certificate
	Insecure           bool `json:"insecure"`            // clients of other machines need no certificate
	// number of items of `xds.clients`; 0: every client may use all clusters
	Rules int `json:"rules"`

	Denied []DeniedClients `json:"denied"` // one for each kind
}

// RefusedRequests are requests that were refused for their Host header.
type RefusedRequests struct {
	Count    uint64 `json:"count"`     // since the start
	LastAt   Time   `json:"last_at"`   // when the last was
	LastHost string `json:"last_host"` // its Host header
}

// A Session is who a request comes from.
type Session struct {
	Name string `json:"name"` // name of the token; empty without one
	Role string `json:"role"` // `view` or `operate`
}

// An OverrideStatus is how many overrides there are, and whether they outlive a restart.
type OverrideStatus struct {
	Count  int    `json:"count"`   // in force
	KeptIn string `json:"kept_in"` // `redis`: they outlive a restart; empty: they end with the process
	Error  string `json:"error"`   // why Redis does not keep them now
}

// A Status is the state of the whole process.
type Status struct {
	Version    string `json:"version"`     // version of Steelyard
	StartedAt  Time   `json:"started_at"`  // when the process started
	ConfigFile string `json:"config_file"` // path of the configuration; empty: none
	// configurations applied since the start; 0 before the first
	ConfigGeneration uint64 `json:"config_generation"`
	LastReload       Reload `json:"last_reload"` // latest attempt to apply a configuration
	// why changes of the file are found only by polling every 5 s
	ConfigWatchError string `json:"config_watch_error"`
	Draining         bool   `json:"draining"` // the process is shutting down
	// how commands of this program are run, such as by kubectl exec in its Pod
	Program string `json:"program"`
	// all clusters were ready at some moment; later ones do not change `ready`
	BeenReady bool         `json:"been_ready"`
	Signals   SignalTotals `json:"signals"`    // reports of all Envoys about their requests
	XDSPort   Port         `json:"xds_port"`   // use of the limits of the xDS port
	AdminPort AdminPort    `json:"admin_port"` // use of the limits of the admin listener
	Replicas  Replicas     `json:"replicas"`   // other replicas of this control plane
	Pickers   Pickers      `json:"pickers"`    // programs that follow the loads
	// in use, the first to expire first; at most 100
	Certificates []Certificate `json:"certificates"`
	// TLS handshakes on the xDS port that failed, one for each reason
	RefusedHandshakes []RefusedHandshake `json:"refused_handshakes"`
	// Envoys that vanished in the last ten minutes and have not returned
	GoneEnvoys []GoneEnvoy    `json:"gone_envoys"`
	Log        LogStatus      `json:"log"`       // state of the log
	Overrides  OverrideStatus `json:"overrides"` // endpoints that operators drained or pinned
	Pods       PodActions     `json:"pods"`      // what is written about Pods into the Kubernetes API
	Pools      Pools          `json:"pools"`     // InferencePools that become clusters

	EnvoyGateway EnvoyGateway `json:"envoy_gateway"` // what Envoy Gateway asked

	// Filled in by the handler.

	RefusedRequests RefusedRequests `json:"refused_requests"` // requests refused because of their Host header
	AdminAccess     AdminAccess     `json:"admin_access"`     // who may use the admin listener

	XDSAccess XDSAccess `json:"xds_access"` // who may use the xDS port

	Now           Time      `json:"now"`            // time of this answer
	UptimeSeconds Number    `json:"uptime_seconds"` // since `started_at`
	Ready         bool      `json:"ready"`          // as `/readyz` answers
	Problems      []Problem `json:"problems"`       // of the whole process
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
	Connected     int           `json:"connected"`      // pickers that follow the loads, at most 1024
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
	Enabled bool        `json:"enabled"` // something may be written
	Wedged  []WedgedPod `json:"wedged"`  // Pods whose engine hangs while its metrics page is answered
	Error   string      `json:"error"`   // why something could not be written; empty if everything could
}

// A WedgedPod is a Pod whose engine hangs.
type WedgedPod struct {
	Cluster   string `json:"cluster"`   // name of the cluster
	Namespace string `json:"namespace"` // of the Pod
	Pod       string `json:"pod"`       // name of the Pod
	Since     Time   `json:"since"`     // since when it answers nothing
	Eviction  string `json:"eviction"`  // what became of its eviction; empty if it is not to be evicted
}
