package config

import (
	"strings"
	"time"

	"steelyard/controlplane/discovery"
)

// The tags of the structs below are the whole schema, and the decoder, the
// checks and the commented example follow from them:
//
//	yaml      the key
//	default   the value of a key that is not written, as one would write it
//	range     the least and the largest value, both allowed
//	oneof     the allowed words; @engines stands for those of package engines
//	required  the key must be written; the tag says what to write
//	kind      "path": a relative path is taken from the folder of the config file
//	max       the largest number of items of a list

// Config is a whole configuration: checked, with every default filled in and
// every relative path resolved. Treat it as read-only.
type Config struct {
	// XDS is where Envoys connect. Default: the section's defaults.
	XDS XDS `yaml:"xds"`
	// Admin is where people and Prometheus connect. Default: the section's defaults.
	Admin Admin `yaml:"admin"`
	// Redis holds in-flight counts that proxies write. Default none: not used.
	Redis *Redis `yaml:"redis"`
	// Kubernetes says how the Kubernetes API is reached, for endpoints that are
	// found there. Default: as a Pod does, by its service account.
	Kubernetes Kubernetes `yaml:"kubernetes"`
	// Replicas connects several processes that serve Envoys at the same time. Default none: this process is the only
	// one, unless serve --service names the Service of its Pods, as the manifests do.
	Replicas *Replicas `yaml:"replicas"`
	// Pools makes a cluster of each InferencePool without a picker. Default none: only what Clusters has.
	Pools *Pools `yaml:"pools"`
	// EnvoyGateway has Envoy Gateway ask this process how InferencePools are served. Default none: it is not asked.
	EnvoyGateway *EnvoyGateway `yaml:"envoy_gateway"`
	// Clusters are the pools to weigh, 1 to 1000. Needed unless Pools is written. Default none.
	Clusters []Cluster `yaml:"clusters" max:"1000"`
}

// Pools makes a cluster NAMESPACE.NAME of each InferencePool that has no endpointPickerRef and speaks HTTP/1.1. One
// that a cluster below has as its inferencePool is that cluster instead, with its own settings; with EnvoyGateway, it
// has the same name. With those there are at most 1000: of the others each namespace has the same number, for its
// oldest pools.
type Pools struct {
	// Namespaces are those whose pools become clusters, 1 to 100. Default none: Steelyard's own.
	Namespaces []string `yaml:"namespaces" max:"100"`
	// Engine names the model server; the label llm-d.ai/engine-type or model.aibrix.ai/engine of a Pod, and its
	// annotation steelyard.dev/engine, override it. Default vllm.
	Engine string `yaml:"engine" default:"vllm" oneof:"@engines"`
	// MetricsPort is the port of the metrics page, 0 to 65535; 0 means the serving port. Default 0.
	MetricsPort int `yaml:"metrics_port" default:"0" range:"0..65535"`
}

// EnvoyGateway is the gRPC listener of the extension server for Envoy Gateway, which asks it when a route names an
// InferencePool.
type EnvoyGateway struct {
	// Listen is host:port. Port 0 takes a free one. One that is not on loopback needs TLS with ClientCAFile, or
	// Insecure. Default 127.0.0.1:18001.
	Listen string `yaml:"listen" default:"127.0.0.1:18001"`
	// TLS makes the listener speak TLS. Default none: plain text.
	TLS *ServerTLS `yaml:"tls"`
	// Insecure allows a listener that is not on loopback without client certificates: every client can read the
	// addresses of the pools' servers. Default false.
	Insecure bool `yaml:"insecure" default:"false"`
	// ModuleXDS is host:port where the module in the Gateways' Envoys reaches the xDS listener. Needed for routes with
	// the annotation gateway.envoyproxy.io/steelyard-module. Default none: the Envoys have no module.
	ModuleXDS string `yaml:"module_xds"`
	// ModuleGateways are the Gateways, NAMESPACE/NAME, 1 to 100, whose routes may have the module: an Envoy without its
	// library refuses the listener. Needed with ModuleXDS. Default none.
	ModuleGateways []string `yaml:"module_gateways" max:"100"`
}

// XDS is the gRPC listener that streams assignments to Envoys.
type XDS struct {
	// Listen is host:port. Port 0 takes a free one. One that is not on loopback needs TLS with ClientCAFile, or
	// Insecure. Default 127.0.0.1:18000.
	Listen string `yaml:"listen" default:"127.0.0.1:18000"`
	// TLS makes the listener speak TLS. Default none: plain text.
	TLS *ServerTLS `yaml:"tls"`
	// Insecure allows a listener that is not on loopback without client certificates: every client can read the
	// addresses of the servers and steer the traffic. Default false.
	Insecure bool `yaml:"insecure" default:"false"`
	// Clients say which clusters the Envoys with a certificate may watch and report on, 1 to 1000; one that no item
	// names is denied everything. Needs TLS with ClientCAFile. It may change while running. Default none: every Envoy
	// with a certificate may use all clusters.
	Clients []ClientRule `yaml:"clients" max:"1000"`
	// PushBudget bounds what all pushes of this process send together, in bytes a
	// second, 64KiB to 10GiB. It is shared evenly by the clusters. Default 10MiB.
	PushBudget Size `yaml:"push_budget" default:"10MiB" range:"64KiB..10GiB"`
	// AccessLog says how far Envoys' upstream access logs are used.
	AccessLog AccessLog `yaml:"access_log"`
	// LoadReports says how Envoys' load reports (LRS) are used.
	LoadReports LoadReports `yaml:"load_reports"`
	// Limits bound what all peers of the listener together may take.
	Limits XDSLimits `yaml:"limits"`
}

// ClientRule says which clusters the Envoys with a name in their certificate may watch and report on.
type ClientRule struct {
	// SAN is a DNS name or a URI (SPIFFE ID) of the certificate; a * stands for characters without a dot or a slash.
	// Required.
	SAN string `yaml:"san" required:"write a DNS name or URI of the certificate, e.g. san: \"spiffe://prod/ns/*/sa/envoy\""`
	// Clusters are the names of clusters, 1 to 1000; a * stands for any characters. Required.
	Clusters []string `yaml:"clusters" max:"1000" required:"write the names of clusters, e.g. clusters: [llama, \"embed-*\"]"`
}

// XDSLimits bound what all peers of the xDS listener together may take, far above what a fleet needs. An
// Envoy has a connection and one more for each of its worker threads, and on the first of them a stream for each
// EDS name and three others.
type XDSLimits struct {
	// Connections is how many there are at most, 16 to 1000000; fewer where the limit of open files has no room for
	// them. Default 32768.
	Connections int `yaml:"connections" default:"32768" range:"16..1000000"`
	// ConnectionsPerAddress is how many of them may come from one IPv4 address or one IPv6 /64, 1 to 1000000 and at
	// most Connections: behind a NAT that is the whole fleet. Default 24576, or 3/4 of Connections where that is less.
	ConnectionsPerAddress int `yaml:"connections_per_address" default:"24576" range:"1..1000000"`
	// Streams is how many are open at most, of all services, 1000 to 10000000. Default 131072.
	Streams int `yaml:"streams" default:"131072" range:"1000..10000000"`
	// Subscriptions is how many cluster names all streams together may subscribe to, 1000 to 10000000. Default 262144.
	Subscriptions int `yaml:"subscriptions" default:"262144" range:"1000..10000000"`
}

// AccessLog says how far the upstream access logs that Envoys stream to this
// listener are used. They count requests in flight within milliseconds.
type AccessLog struct {
	// Disabled leaves the service out. Default false.
	Disabled bool `yaml:"disabled" default:"false"`
	// BatchAbove is the rate of one Envoy above which it has to send its
	// entries in batches, in requests per second, 1 to 1000000. Default 200.
	BatchAbove float64 `yaml:"batch_above" default:"200" range:"1..1000000"`
	// ReportsAbove is the rate of one Envoy above which it has to send none, so that only its load reports count, in
	// requests per second, 1 to 1000000 and above BatchAbove. Default 500.
	ReportsAbove float64 `yaml:"reports_above" default:"500" range:"1..1000000"`
}

// LoadReports says how the load reports (LRS) that Envoys stream to this listener
// are used. They correct the counts of the access log, and replace them where there is none.
type LoadReports struct {
	// Disabled leaves the service out. Default false.
	Disabled bool `yaml:"disabled" default:"false"`
	// Interval is the time between two reports of an Envoy, 0s to 1m; 0s follows from the number of Envoys and Budget:
	// at least 1s for an Envoy with an access log, 100ms for one without. Default 0s.
	Interval time.Duration `yaml:"interval" default:"0s" range:"0s..1m"`
	// Budget bounds what all reports together may take, in bytes a second, 64KiB
	// to 1GiB; an Envoy repeats its 61 KB description in each. Default 10MiB.
	Budget Size `yaml:"budget" default:"10MiB" range:"64KiB..1GiB"`
}

// ServerTLS is the identity of a listener.
type ServerTLS struct {
	// CertFile holds the certificate chain, PEM. Required.
	CertFile string `yaml:"cert_file" kind:"path" required:"write the path of the certificate chain (PEM)"`
	// KeyFile holds the private key, PEM. Required.
	KeyFile string `yaml:"key_file" kind:"path" required:"write the path of the private key (PEM)"`
	// ClientCAFile holds the authorities that clients' certificates must come
	// from, PEM. Default none: clients need no certificate.
	ClientCAFile string `yaml:"client_ca_file" kind:"path"`
}

// ClientTLS is how Steelyard connects to a server with TLS.
type ClientTLS struct {
	// CAFile holds the authorities to trust, PEM. Default none: the system's.
	CAFile string `yaml:"ca_file" kind:"path"`
	// CertFile holds a client certificate, PEM. Needs KeyFile. Default none.
	CertFile string `yaml:"cert_file" kind:"path"`
	// KeyFile holds the key of that certificate, PEM. Needs CertFile. Default none.
	KeyFile string `yaml:"key_file" kind:"path"`
	// ServerName is the name that the server's certificate must carry. Default none: the host that is connected to.
	ServerName string `yaml:"server_name"`
}

// Admin is the HTTP listener for state, metrics and the dashboard.
type Admin struct {
	// Listen is host:port. Port 0 takes a free one. One that is not on loopback needs TLS, and TokensFile or
	// Kubernetes, or Insecure. Default 127.0.0.1:19000.
	Listen string `yaml:"listen" default:"127.0.0.1:19000"`
	// TLS makes the listener speak TLS. Default none: plain text.
	TLS *ServerTLS `yaml:"tls"`
	// TokensFile has a line for each token: ROLE NAME TOKEN, where ROLE is view or operate. It is read again when it
	// changes. Default none: without Kubernetes, everyone who can connect may view, and nobody may operate.
	TokensFile string `yaml:"tokens_file" kind:"path"`
	// Kubernetes accepts tokens of the Kubernetes API, too: who may get the resource admin.steelyard.dev in Steelyard's
	// namespace may view, who may update it may operate. Default false.
	Kubernetes bool `yaml:"kubernetes" default:"false"`
	// AnonymousView lets everyone who can connect view without a token. Default false.
	AnonymousView bool `yaml:"anonymous_view" default:"false"`
	// Insecure allows a listener that is not on loopback without TLS or without tokens. Default false.
	Insecure bool `yaml:"insecure" default:"false"`
	// AllowedHosts are accepted Host names, besides names that no stranger can register,
	// such as an Ingress host; *.NAME stands for all below NAME; 1 to
	// 100. Requests for others are refused. Default none.
	AllowedHosts []string `yaml:"allowed_hosts" max:"100"`
}

// The modes of Redis.
const (
	RedisSingle   = "single"
	RedisSentinel = "sentinel"
	RedisCluster  = "cluster"
)

// Redis says where in-flight counts are read.
type Redis struct {
	// Addresses are host:port: the server, the Sentinels, or some nodes of the Cluster; 1 to 100. Required.
	Addresses []string `yaml:"addresses" max:"100" required:"write the server's host:port, e.g. addresses: [127.0.0.1:6379]"`
	// Mode is single, sentinel or cluster. Default single.
	Mode string `yaml:"mode" default:"single" oneof:"single sentinel cluster"`
	// MasterName is the primary's name in the configuration of the Sentinels.
	// Needed with mode sentinel, refused without. Default none.
	MasterName string `yaml:"master_name"`
	// Username is the ACL user; it needs a password. Default none: the user "default".
	Username string `yaml:"username"`
	// PasswordFile holds the password, which is not sent to Sentinels; the file's
	// last newline does not count. Default none: no AUTH.
	PasswordFile string `yaml:"password_file" kind:"path"`
	// SentinelUsername is the ACL user at the Sentinels. Default none: the user "default".
	SentinelUsername string `yaml:"sentinel_username"`
	// SentinelPasswordFile holds the password of the Sentinels, which is read when this section comes into force.
	// With mode sentinel only. Default none: no AUTH.
	SentinelPasswordFile string `yaml:"sentinel_password_file" kind:"path"`
	// DB is the number of the database, 0 to 65535; only 0 with mode cluster. Default 0.
	DB int `yaml:"db" default:"0" range:"0..65535"`
	// TLS makes the connections speak TLS. Default none: plain text.
	TLS *ClientTLS `yaml:"tls"`
	// Interval is the time between two reads of all keys, 5ms to 1m. Default 50ms.
	Interval time.Duration `yaml:"interval" default:"50ms" range:"5ms..1m"`
	// Timeout is how long one read may take, 1ms to 1m and at most Interval.
	// Default 40ms, or 4/5 of Interval where that is less.
	Timeout time.Duration `yaml:"timeout" default:"40ms" range:"1ms..1m"`
}

// Kubernetes says how the Kubernetes API is reached.
type Kubernetes struct {
	// Kubeconfig is a kubeconfig whose current context is used. Default none: the service account of the Pod.
	Kubeconfig string `yaml:"kubeconfig" kind:"path"`
	// Wedged says what is written about Pods whose engine hangs. Each key needs a Role of its own. Default: the
	// section's defaults.
	Wedged Wedged `yaml:"wedged"`
	// DeletionCost keeps the annotation controller.kubernetes.io/pod-deletion-cost of Pods up to date, so that a
	// smaller Deployment loses those with the least work. It needs a Role of its own. Default false.
	DeletionCost bool `yaml:"deletion_cost" default:"false"`
}

// Wedged says what is written about Pods whose engine answers no request, though its own health does.
type Wedged struct {
	// Event writes an Event. Default false.
	Event bool `yaml:"event" default:"false"`
	// Condition writes the condition steelyard.dev/serving, which may be a readiness gate. Default false.
	Condition bool `yaml:"condition" default:"false"`
	// Evict evicts a Pod that has done no work for a minute, if its engine counts work as it does it, a controller
	// replaces the Pod and its PodDisruptionBudget allows it, and at most one of a cluster in ten minutes. Default
	// false.
	Evict bool `yaml:"evict" default:"false"`
}

// ActsOnPods reports whether anything is written about Pods.
func (k *Kubernetes) ActsOnPods() bool { return k.Wedged != Wedged{} || k.DeletionCost }

// Replicas says how the replicas of this control plane find each other, by one of peers and service. They connect to
// each other's xDS listener.
type Replicas struct {
	// Peers are the other replicas, each as host:port of its xDS listener. A name stands for all its addresses, and is
	// looked up every five seconds. This replica may be among them, so that all have the same list. 1 to 64. Default
	// none.
	Peers []string `yaml:"peers" max:"64"`
	// Service is the name of the Service of the replicas' xDS listeners, in the namespace of the Pod or of the
	// kubeconfig: its EndpointSlices have the other replicas. Default none.
	Service string `yaml:"service"`
	// Prefix begins the names of the lease on the queues, and is the same for all replicas of a control plane: no white
	// space, at most 256 bytes. Default steelyard.
	Prefix string `yaml:"prefix" default:"steelyard"`
	// Name is shown to people for this replica: at most 256 bytes. Default none: the name of the host.
	Name string `yaml:"name"`
	// Lease says where the replicas agree on the one that grants the places of all queues: redis; kubernetes for an
	// object in the namespace of the Pod or of the kubeconfig; or none where this replica is the only one, with which
	// nothing is shared. Default none: redis if there is one, else kubernetes with service.
	Lease string `yaml:"lease" oneof:"redis kubernetes none"`
	// Address is host:port where the other replicas reach the xDS listener of this one. Needed with a queue where
	// XDS.Listen is on loopback. Default none: XDS.Listen, and where that is all addresses of the machine, the one from
	// which it reaches Redis or the Kubernetes API.
	Address string `yaml:"address"`
}

// The places of the lease on the queues.
const (
	LeaseNone       = "none"
	LeaseRedis      = "redis"
	LeaseKubernetes = "kubernetes"
)

// Lease is where the lease on the queues is, inPod in a Pod of Kubernetes; empty for none: without a queue, or for the
// only replica. Pods have replicas without being told so.
func (c *Config) Lease(inPod bool) string {
	switch r := c.Replicas; {
	case !c.queued(), r != nil && r.Lease == LeaseNone:
		return ""
	case r != nil && r.Lease != "":
		return r.Lease
	case r != nil && c.Redis != nil:
		return LeaseRedis
	case r != nil && r.Service != "", inPod:
		return LeaseKubernetes
	}
	return ""
}

// Cluster is one pool of endpoints, weighed together and served as one assignment.
type Cluster struct {
	// Name is the EDS service name that Envoys ask for: no white space, at most 256 bytes, unique. Required.
	Name string `yaml:"name" required:"write the EDS service name that Envoys ask for, e.g. name: llama"`
	// Engine names the model server, which determines the series to read. Needed unless scraping is disabled. Default
	// none.
	Engine string `yaml:"engine" oneof:"@engines"`
	// Custom names the series of an engine that Steelyard does not know.
	// Needed where the engine is custom. Default none.
	Custom *Custom `yaml:"custom"`
	// Endpoints says where the addresses come from. Required.
	Endpoints Endpoints `yaml:"endpoints" required:"write one of static, file, dns, kubernetes or inferencePool below endpoints:"`
	// Capacity is the number of requests an endpoint runs at once, in slots; of engines that count tokens, their
	// relative speed, 0 to 1000000; 0 means it is learned. Default 0.
	Capacity float64 `yaml:"capacity" default:"0" range:"0..1000000"`
	// Policy is the weighting law: load fills the least loaded endpoints first, least-latency prefers those with the
	// least time to the last byte, by Envoys' access logs. Default load.
	Policy string `yaml:"policy" default:"load" oneof:"load least-latency"`
	// Latency holds the knobs of the policy least-latency.
	Latency Latency `yaml:"latency"`
	// Scrape says how the model servers' metrics are read.
	Scrape Scrape `yaml:"scrape"`
	// Inflight says which in-flight counts belong to the cluster.
	Inflight Inflight `yaml:"inflight"`
	// Weighting holds the clocks of the weighting law.
	Weighting Weighting `yaml:"weighting"`
	// Overload holds the thresholds of the overload flag.
	Overload Overload `yaml:"overload"`
	// Shedding says when a saturated pool refuses requests.
	Shedding Shedding `yaml:"shedding"`
	// Queue has requests wait in their Envoys until an endpoint has a place for them. Only Envoys with the module
	// or a picker do that (steelyard bootstrap --module, --picker). Default none: no request waits.
	Queue *Queue `yaml:"queue"`
	// Prefix says how pickers that look at prompts (--prefix) learn and use where those are cached.
	Prefix Prefix `yaml:"prefix"`
	// Push says when Envoys get a new assignment.
	Push Push `yaml:"push"`
	// WarmUp is how long after its start the control plane waits for a first report of every endpoint before it pushes
	// what it has, 0s to 10m. Default 5s.
	WarmUp time.Duration `yaml:"warm_up" default:"5s" range:"0s..10m"`
}

// Custom names series of a metrics page: only names, without labels. Samples that differ in labels are added up,
// except that of Utilization the largest counts. At least one name must be written.
type Custom struct {
	// Queue is a gauge of requests that wait. Default none: unknown.
	Queue string `yaml:"queue"`
	// Running is a gauge of requests that run. Default none: unknown.
	Running string `yaml:"running"`
	// Utilization is a gauge of the memory in use for requests, as a share 0..1. Default none: unknown.
	Utilization string `yaml:"utilization"`
	// Completions is a counter of requests that ended. Default none: unknown.
	Completions string `yaml:"completions"`
}

// Endpoints holds exactly one source of addresses.
type Endpoints struct {
	// Static lists the endpoints here, 1 to 10000. Default none.
	Static []StaticEndpoint `yaml:"static" max:"10000"`
	// File is a file in Prometheus' file_sd form, JSON or YAML, that is watched. Default none.
	File string `yaml:"file" kind:"path"`
	// DNS is a name that is resolved at each interval. Default none.
	DNS *DNS `yaml:"dns"`
	// Kubernetes finds the EndpointSlices of a Service. Default none.
	Kubernetes *KubernetesService `yaml:"kubernetes"`
	// InferencePool finds the Pods of a pool of the Gateway API Inference Extension. Default none.
	InferencePool *InferencePool `yaml:"inferencePool"`
}

// Listed returns the endpoints of the list, as discovery has them; nil where they come from another source.
func (e *Endpoints) Listed() []discovery.Endpoint {
	var all []discovery.Endpoint
	for _, s := range e.Static {
		all = append(all, discovery.Endpoint{Address: s.Address, Zone: s.Zone, Capacity: s.Capacity, Engine: s.Engine,
			MetricsPort: s.MetricsPort, MetricsPath: s.MetricsPath})
	}
	return all
}

// Remote reports whether the endpoints come from a server, so that they are unknown until it answers: from any source
// but lists.
func (e *Endpoints) Remote() bool { return len(e.Static) == 0 && e.File == "" }

// InKubernetes reports whether the endpoints are found in the Kubernetes API.
func (e *Endpoints) InKubernetes() bool { return e.Kubernetes != nil || e.InferencePool != nil }

// KubernetesService says which EndpointSlices hold the endpoints.
type KubernetesService struct {
	// Service is the name of the Service. Either it or Selector is needed. Default none.
	Service string `yaml:"service"`
	// Selector is a label selector, of EndpointSlices: they have the labels of their Services. Default none.
	Selector string `yaml:"selector"`
	// Namespace is where the Service is. Default none: Steelyard's own.
	Namespace string `yaml:"namespace"`
	// Port is the serving port, as the Pods have it: its name in the Service, or
	// its number. Default none: the only port.
	Port Port `yaml:"port"`
	// MetricsPort is the port of the metrics page, by name or number; a number
	// need not be in the Service. Default none: as the cluster says.
	MetricsPort Port `yaml:"metrics_port"`
	// IPFamily is IPv4 or IPv6. Default none: IPv4, and IPv6 for a Pod that has nothing else.
	IPFamily string `yaml:"ip_family" oneof:"IPv4 IPv6"`
}

// InferencePool says which InferencePool selects the endpoints: each of its target ports on each of its Pods.
type InferencePool struct {
	// Name is the name of the InferencePool. Required.
	Name string `yaml:"name" required:"write the name of the InferencePool, e.g. name: llama"`
	// Namespace is where the pool and its Pods are. Default none: Steelyard's own.
	Namespace string `yaml:"namespace"`
	// MetricsPort is the port of the metrics page, 0 to 65535; 0 means as the cluster says. Default 0.
	MetricsPort int `yaml:"metrics_port" default:"0" range:"0..65535"`
	// IPFamily is IPv4 or IPv6. Default none: IPv4, and IPv6 for a Pod that has nothing else.
	IPFamily string `yaml:"ip_family" oneof:"IPv4 IPv6"`
}

// A Port is the name or the number of a port.
type Port string

// StaticEndpoint is one model server.
type StaticEndpoint struct {
	// Address is IP:port of the serving port; an IPv6 address in brackets. Required.
	Address string `yaml:"address" required:"write the IP and the serving port, e.g. address: 10.0.0.1:8000"`
	// Zone is the locality of the endpoint. Default none.
	Zone string `yaml:"zone"`
	// Capacity is the number of requests it runs at once, in slots, or its relative
	// speed, 0 to 1000000; 0 means as the cluster says. Default 0.
	Capacity float64 `yaml:"capacity" default:"0" range:"0..1000000"`
	// Engine names its model server. Default none: as the cluster says.
	Engine string `yaml:"engine" oneof:"@engines"`
	// MetricsPort is the port of its metrics page, 0 to 65535; 0 means as the cluster says. Default 0.
	MetricsPort int `yaml:"metrics_port" default:"0" range:"0..65535"`
	// MetricsPath is the path of its metrics page. Default none: as the cluster says.
	MetricsPath string `yaml:"metrics_path"`
}

// DNSTypeSRV is the type of DNS records that carry their ports.
const DNSTypeSRV = "SRV"

// DNS is a name whose records are the endpoints.
type DNS struct {
	// Name is the name to resolve. Required.
	Name string `yaml:"name" required:"write the DNS name to resolve, e.g. name: llama.models.svc.cluster.local"`
	// Type is A, AAAA or SRV. Default A.
	Type string `yaml:"type" default:"A" oneof:"A AAAA SRV"`
	// Port is the serving port, 0 to 65535. Needed with A and AAAA; SRV records
	// carry their own, and Port is 0. Default 0.
	Port int `yaml:"port" default:"0" range:"0..65535"`
	// Interval is the time between two resolutions, 100ms to 1h. Default 5s.
	Interval time.Duration `yaml:"interval" default:"5s" range:"100ms..1h"`
}

// Scrape says how the metrics page of each endpoint is read.
type Scrape struct {
	// Disabled turns scraping off; the cluster then has only in-flight counts. Default false.
	Disabled bool `yaml:"disabled" default:"false"`
	// Interval is the time between two scrapes of an endpoint, 10ms to 1h and at most weighting's hold. Default 250ms.
	Interval time.Duration `yaml:"interval" default:"250ms" range:"10ms..1h"`
	// Timeout is how long one scrape may take, 1ms to 1h and at most Interval.
	// Default 200ms, or 4/5 of Interval where that is less.
	Timeout time.Duration `yaml:"timeout" default:"200ms" range:"1ms..1h"`
	// Scheme is http or https. Default http.
	Scheme string `yaml:"scheme" default:"http" oneof:"http https"`
	// Port is the port of the metrics page, 0 to 65535; 0 means the serving port. Default 0.
	Port int `yaml:"port" default:"0" range:"0..65535"`
	// Path is the path of the metrics page, with or without a query. Default /metrics.
	Path string `yaml:"path" default:"/metrics"`
	// BodyLimit is the largest page that is read, in bytes, 1KiB to 256MiB; a
	// larger one is a failed scrape. Default 4MiB.
	BodyLimit Size `yaml:"body_limit" default:"4MiB" range:"1KiB..256MiB"`
	// TLS is used with https. Default none: the system's authorities, no client certificate.
	TLS *ScrapeTLS `yaml:"tls"`
	// BearerTokenFile holds a token that is sent in the Authorization header. Default none.
	BearerTokenFile string `yaml:"bearer_token_file" kind:"path"`
}

// ScrapeTLS is ClientTLS with an option to accept any certificate.
type ScrapeTLS struct {
	ClientTLS `yaml:",inline"`
	// InsecureSkipVerify accepts any certificate. Default false.
	InsecureSkipVerify bool `yaml:"insecure_skip_verify" default:"false"`
}

// Inflight says which Redis key counts the cluster's requests in flight.
type Inflight struct {
	// RedisKey is the key of a sorted set: member IP:port, score the number in flight. "{cluster}" in it stands for the
	// cluster's name. Default none: not used.
	RedisKey string `yaml:"redis_key"`
	// SyncMembers keeps the members of that set equal to the endpoints: new ones with 0, removed ones deleted, all
	// other scores as they are. Default false: nothing is written.
	SyncMembers bool `yaml:"sync_members" default:"false"`
	// AddCounts adds what the Envoys have in flight to the scores, for others that read them, and takes the rest of a
	// score as requests of others, which come on top. It needs sync_members. Default false.
	AddCounts bool `yaml:"add_counts" default:"false"`
}

// The policies.
const (
	PolicyLoad         = "load"
	PolicyLeastLatency = "least-latency"
)

// Latency holds the knobs of the policy least-latency.
type Latency struct {
	// Alpha is the weight of a new answer in the moving average of the time to the last byte, 0.01 to 1. Default 0.3.
	Alpha float64 `yaml:"alpha" default:"0.3" range:"0.01..1"`
	// Threshold is the average above which an endpoint is taken to be loaded, and is given no more than its floor while
	// others are below it, 1ms to 1h. Default 3s.
	Threshold time.Duration `yaml:"threshold" default:"3s" range:"1ms..1h"`
}

// Weighting holds the clocks of the weighting law; Fresh ≤ Hold ≤ Decay.
type Weighting struct {
	// Fresh is the age up to which a reading is fresh, 10ms to 1h. Default 1s.
	Fresh time.Duration `yaml:"fresh" default:"1s" range:"10ms..1h"`
	// Hold is the age up to which a reading is used as it is, 10ms to 1h. Default 3s.
	Hold time.Duration `yaml:"hold" default:"3s" range:"10ms..1h"`
	// Decay is the age at which a reading has faded into the pool's median, 10ms to 1h. Default 10s.
	Decay time.Duration `yaml:"decay" default:"10s" range:"10ms..1h"`
	// Blackout is how long the reports of a new endpoint are not used, 0s to 1h. Default 1s.
	Blackout time.Duration `yaml:"blackout" default:"1s" range:"0s..1h"`
	// Ramp is how long, after the blackout, the capacity of a new endpoint grows to the whole, 0s to 1h. Default 10s.
	Ramp time.Duration `yaml:"ramp" default:"10s" range:"0s..1h"`
	// Floor is the least share of an endpoint, as a part of its share of the pool's capacity, 0 to 1. Default 0.001.
	Floor float64 `yaml:"floor" default:"0.001" range:"0..1"`
}

// Overload holds the thresholds of the overload flag.
type Overload struct {
	// QueueEnter flags an endpoint, in requests waiting per slot, 0.01 to 1000000. Default 4.
	QueueEnter float64 `yaml:"queue_enter" default:"4" range:"0.01..1000000"`
	// QueueLeave releases it, in requests waiting per slot, 0.01 to 1000000 and at most QueueEnter. Default 2.
	QueueLeave float64 `yaml:"queue_leave" default:"2" range:"0.01..1000000"`
	// UtilizationEnter flags an endpoint, as a share 0.01 to 1. Default 0.98.
	UtilizationEnter float64 `yaml:"utilization_enter" default:"0.98" range:"0.01..1"`
	// UtilizationLeave releases it, as a share 0.01 to 1, at most UtilizationEnter. Default 0.9.
	UtilizationLeave float64 `yaml:"utilization_leave" default:"0.9" range:"0.01..1"`
	// QueueTimeEnter flags an endpoint, as the mean time that its requests waited
	// in the last seconds, 0s to 1h; 0s turns this off. Default 0s.
	QueueTimeEnter time.Duration `yaml:"queue_time_enter" default:"0s" range:"0s..1h"`
	// QueueTimeLeave releases it, 0s to 1h, at most QueueTimeEnter. Default 0s, or half of QueueTimeEnter.
	QueueTimeLeave time.Duration `yaml:"queue_time_leave" default:"0s" range:"0s..1h"`
	// StalledAfter is how long requests may be in flight at an endpoint that reports
	// none before it is flagged as stalled, 0s to 1h; 0s means never. Default 2s.
	StalledAfter time.Duration `yaml:"stalled_after" default:"2s" range:"0s..1h"`
	// MinDwell is how long a flag stands at least, and stays away at least, 0s to 1h. Default 2s.
	MinDwell time.Duration `yaml:"min_dwell" default:"2s" range:"0s..1h"`
	// MaxShare is the largest part of the pool that is flagged, 0 to 1, unless all of it is overloaded. Default 0.5.
	MaxShare float64 `yaml:"max_share" default:"0.5" range:"0..1"`
}

// Shedding lets Envoys refuse a share of the requests (503) while every endpoint of the pool has a queue.
type Shedding struct {
	// Enabled turns it on. Default false.
	Enabled bool `yaml:"enabled" default:"false"`
	// TargetWait is the time that a request is to wait at most for its turn, in the mean over the pool, 10ms to 1h:
	// what is refused keeps the wait near it. Default 2s.
	TargetWait time.Duration `yaml:"target_wait" default:"2s" range:"10ms..1h"`
	// MaxDrop is the largest share of requests refused, 0.01 to 1. Default 0.95.
	MaxDrop float64 `yaml:"max_drop" default:"0.95" range:"0.01..1"`
}

// Queue is the queue of a cluster: requests of all Envoys wait in it, and are sent in its order.
type Queue struct {
	// MaxInFlight is the requests that an endpoint may have in flight, 0 to 1000000: others wait, or are refused; 0
	// means as many as its slots, configured or learned. Required where the cluster's engine batches continuously,
	// which has none. Default 0.
	MaxInFlight int `yaml:"max_in_flight" default:"0" range:"0..1000000"`
	// ClassHeader is the request header that names the class. Default x-steelyard-class.
	ClassHeader string `yaml:"class_header" default:"x-steelyard-class"`
	// TenantHeader is the request header that names the tenant: the tenants of a class take turns. Default
	// x-steelyard-tenant.
	TenantHeader string `yaml:"tenant_header" default:"x-steelyard-tenant"`
	// Classes share what is sent by their weights, 1 to 32. A request that names none of them belongs to the last.
	// Default none: one class, named default, with the defaults of a class.
	Classes []QueueClass `yaml:"classes" max:"32"`
}

// QueueClass is a class of requests in a queue.
type QueueClass struct {
	// Name is what requests have in the class header: no white space, at most 128 bytes, unique. Required.
	Name string `yaml:"name" required:"write what requests have in the class header, e.g. name: interactive"`
	// Weight is its share of what is sent while all classes wait, relative to the other weights, 0.001 to 1000000.
	// Default 1.
	Weight float64 `yaml:"weight" default:"1" range:"0.001..1000000"`
	// Strict sends its requests before the requests of all classes that are not strict, which may then wait for as
	// long as there are any. Default false.
	Strict bool `yaml:"strict" default:"false"`
	// MaxWaiting is how many requests of the class may wait, of all Envoys, 0 to 10000; with 0, one is refused at once
	// while no endpoint has a place. Default 1000.
	MaxWaiting int `yaml:"max_waiting" default:"1000" range:"0..10000"`
	// MaxWait is how long a request of the class may wait, 1ms to 1h. Default 30s.
	MaxWait time.Duration `yaml:"max_wait" default:"30s" range:"1ms..1h"`
}

// All returns the configured classes, or the default class if there are none.
func (q *Queue) All() []QueueClass {
	if len(q.Classes) > 0 {
		return q.Classes
	}
	return []QueueClass{{Name: "default", Weight: 1, MaxWaiting: 1000, MaxWait: 30 * time.Second}}
}

// PrefixLongestMatch is the Choice that is not the default.
const PrefixLongestMatch = "longest-match"

// Prefix says how pickers and modules that look at prompts learn where those are cached, and choose by it.
type Prefix struct {
	// Choice is least-work, which takes what is cached off the work that a request adds, or longest-match: the endpoint
	// with the most of the prompt in its cache, unless its load is above twice the median. Default least-work.
	Choice string `yaml:"choice" default:"least-work" oneof:"least-work longest-match"`
	// Routes is how many each picker keeps, 1000 to 10000000: one for each message of a conversation. 100000 take
	// 16 MB. Default 100000.
	Routes int `yaml:"routes" default:"100000" range:"1000..10000000"`
	// TTL is the time after which a route that no answer confirmed is forgotten, 1s to 168h. Default 1h.
	TTL time.Duration `yaml:"ttl" default:"1h" range:"1s..168h"`
	// Markers are the token ids that begin a message, in prompts of token ids, 1 to 32. Default none: 128006 (Llama 3)
	// and 151644 (ChatML of Qwen).
	Markers []int `yaml:"markers" max:"32"`
}

// Push says when Envoys are sent an assignment.
type Push struct {
	// MinInterval is the least time between two pushes, 1ms to 1m. The budgets
	// (xds.push_budget, EnvoyCPU) may make it longer. Default 5ms.
	MinInterval time.Duration `yaml:"min_interval" default:"5ms" range:"1ms..1m"`
	// EnvoyCPU bounds what pushes cost each Envoy, as a share of a core, 0 to 1; 0 means no bound. One that subscribes
	// to several clusters has it once: half in equal parts, half for those with traffic. A push is taken to cost 0.5 ms
	// and 3 µs an endpoint. Default 0.02.
	EnvoyCPU float64 `yaml:"envoy_cpu" default:"0.02" range:"0..1"`
	// Deadband is the change of shares (total variation, 0 to 1) under which nothing is pushed. Default 0.01.
	Deadband float64 `yaml:"deadband" default:"0.01" range:"0..1"`
	// Heartbeat is the longest time without a push, 0s to 1h, at least
	// MinInterval; 0s means no heartbeat. Default 500ms.
	Heartbeat time.Duration `yaml:"heartbeat" default:"500ms" range:"0s..1h"`
	// EndpointStaleAfter makes an Envoy that can fall back (it asks for NAME/failsafe) drop the assignment when nothing
	// was pushed for this long, 0s to 24h; 0s means never. Other Envoys keep the last one. Heartbeat must be under a
	// third of it. Weights that are not renewed keep sending requests to the endpoints that were idle when they were
	// made, so shorter is better. Default 3s.
	EndpointStaleAfter time.Duration `yaml:"endpoint_stale_after" default:"3s" range:"0s..24h"`
}

// Key returns the Redis key of a cluster, or "" where none is used.
func (i Inflight) Key(cluster string) string {
	return strings.ReplaceAll(i.RedisKey, clusterPlaceholder, cluster)
}

const clusterPlaceholder = "{cluster}"
