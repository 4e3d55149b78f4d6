package admin

import (
	"time"
)

// A Source is what the process knows at this moment. Its methods are called
// from many goroutines, on every request and every scrape of /metrics; they
// must not block on the network. What they return may be shared: this package
// never writes to it.
type Source interface {
	// Clusters returns all configured clusters, sorted by name.
	Clusters() []Cluster
	// Cluster returns one of them.
	Cluster(name string) (Cluster, bool)
	// Clients returns the connected Envoys, sorted by node id.
	Clients() []Client
	// Status returns the state of the process.
	Status() Status
}

// Severity says how much a problem matters.
type Severity string

// The severities. Something is done about an error; a warning explains a number.
const (
	SeverityError   Severity = "error"
	SeverityWarning Severity = "warning"
)

// A Problem is one thing that is wrong, in a sentence for a person.
type Problem struct {
	Severity Severity `json:"severity"`
	Message  string   `json:"message"`
}

// A Status is the state of the whole process.
type Status struct {
	Version          string `json:"version"` // filled in by the handler from Options
	StartedAt        Time   `json:"started_at"`
	ConfigFile       string `json:"config_file"`
	ConfigGeneration uint64 `json:"config_generation"` // 0 before the first config is applied
	LastReload       Reload `json:"last_reload"`
	ConfigWatchError string `json:"config_watch_error"` // why changes of the file are found by polling only; empty where the system tells of them
	Draining         bool   `json:"draining"`           // shutting down
	// Signals are what all Envoys together told of their requests.
	Signals SignalTotals `json:"signals"`

	// Filled in by the handler.
	Now           Time      `json:"now"`
	UptimeSeconds Number    `json:"uptime_seconds"`
	Ready         bool      `json:"ready"`
	Problems      []Problem `json:"problems"`
}

// A Reload is the latest attempt to apply a config.
type Reload struct {
	At    Time   `json:"at"`
	OK    bool   `json:"ok"`
	Error string `json:"error"` // empty when it went well
}

// A Cluster is one pool of endpoints with the decision that holds for it.
type Cluster struct {
	Name           string         `json:"name"`
	Engine         string         `json:"engine"`
	Ready          bool           `json:"ready"`
	NotReadyReason string         `json:"not_ready_reason"` // empty when ready
	Decision       Decision       `json:"decision"`
	Sources        []SourceStatus `json:"sources"`

	LastPush         Push   `json:"last_push"`
	Pushes           uint64 `json:"pushes"`
	SuppressedPushes uint64 `json:"suppressed_pushes"`
	// MinIntervalSeconds is the time to the next push as of now, and MinIntervalReason
	// what sets it: "floor" (the configured one), "bytes" or "cpu" (pushes that gain
	// much come sooner).
	MinIntervalSeconds Number `json:"min_interval_seconds"`
	MinIntervalReason  string `json:"min_interval_reason"`
	// DroppedRequests counts the requests that Envoys refused because the cluster told them
	// to (drop fraction), as their load reports say; unknown without reports. It never goes back.
	DroppedRequests Number `json:"dropped_requests"`
	// Disputes are what single Envoys say of endpoints against all others, and is not believed.
	Disputes []Dispute `json:"disputes"`
	// Shedding is whether the cluster may have Envoys refuse requests when it is saturated.
	Shedding bool `json:"shedding"`

	// Filled in by the handler.
	Counts   EndpointCounts `json:"endpoint_counts"`
	Problems []Problem      `json:"problems"`

	// Endpoints are sorted by address. The list of clusters leaves them out.
	Endpoints []Endpoint `json:"endpoints,omitzero"`
}

// EndpointCounts sums a cluster's endpoints up.
type EndpointCounts struct {
	Total      int `json:"total"`
	Overloaded int `json:"overloaded"`
	Stale      int `json:"stale"`   // reason decay or neutral: the report is too old to be used as it is
	New        int `json:"new"`     // reason blackout or ramp
	Failing    int `json:"failing"` // the latest scrape failed
}

// A Push is the latest assignment sent to the Envoys of a cluster.
type Push struct {
	At      Time   `json:"at"`
	Version string `json:"version"`
	Reason  string `json:"reason"`
}

// A SourceState is the health of a source.
type SourceState string

// The states of a source.
const (
	SourceOK      SourceState = "ok"
	SourcePartial SourceState = "partial" // some of the Envoys that watch the cluster do not report: see Reporting
	SourceStale   SourceState = "stale"   // failing, in part or for a moment: what it last said is still in use
	SourceIdle    SourceState = "idle"    // there is nothing to hear: no Envoy that watches the cluster has requests
	SourceOff     SourceState = "off"     // there are requests, and no Envoy ever told of any: none has it switched on
	SourceDown    SourceState = "down"    // it never worked; or nothing of it is young enough to be used as it is
)

// A SourceStatus is the health of one source of a cluster.
type SourceStatus struct {
	Name           string      `json:"name"` // "scrape", "redis", "discovery", "access_log", "load_reports", ...
	State          SourceState `json:"state"`
	LastSuccess    Time        `json:"last_success"`
	LastError      string      `json:"last_error"` // empty when the latest attempt went well
	IgnoredMembers int         `json:"ignored_members"`
	Envoys         Reporting   `json:"envoys"` // of the sources that are Envoys
}

// A Decision is the pool-wide working of the latest decision.
type Decision struct {
	At                Time   `json:"at"`
	AgeSeconds        Number `json:"age_seconds"`
	ArrivalRate       Number `json:"arrival_rate"` // requests per second
	ArrivalRateSource string `json:"arrival_rate_source"`
	HorizonSeconds    Number `json:"horizon_seconds"`
	Arrivals          Number `json:"arrivals"`    // requests expected within the horizon
	WaterLevel        Number `json:"water_level"` // requests for each slot
	MedianLoad        Number `json:"median_load"` // requests for each slot
	DropFraction      Number `json:"drop_fraction"`
	ExpectedWait      Number `json:"expected_wait_seconds"` // of the next request, in the mean over the pool
}

// An Endpoint is one address with its weight and how that came about.
type Endpoint struct {
	Address        string `json:"address"`
	Zone           string `json:"zone"`
	Engine         string `json:"engine"`
	Weight         Number `json:"weight"` // the integer last pushed, unknown before the first push
	Share          Number `json:"share"`
	Overloaded     bool   `json:"overloaded"`
	OverloadReason string `json:"overload_reason"`
	Reason         string `json:"reason"`

	Load          Number `json:"load"` // requests
	LoadSource    string `json:"load_source"`
	Capacity      Number `json:"capacity"`
	Slots         Number `json:"slots"`
	SlotsSource   string `json:"slots_source"`
	RelativeSpeed Number `json:"relative_speed"`
	Ramp          Number `json:"ramp"`
	Unproxied     Number `json:"unproxied"` // requests

	Inputs []Input `json:"inputs"`

	CompletionRate       Number `json:"completion_rate"` // requests per second
	MeanQueueTimeSeconds Number `json:"mean_queue_time_seconds"`
	BusyFraction         Number `json:"busy_fraction"`

	// What the proxies say of the requests that they sent here.
	InFlightSource string `json:"in_flight_source"` // "access_log", "load_reports", "redis"; empty: nobody counts
	LatencySeconds Number `json:"latency_seconds"`  // time to the last byte, smoothed
	// LatencyAgeSeconds is the time since the newest answer in it.
	LatencyAgeSeconds Number `json:"latency_age_seconds"`
	// ResponseBytes is the size of an answer and FailedShare the part, 0 to 1, that the
	// endpoint failed of the requests that it answered or failed: moving averages, each with
	// the time since the newest request in it.
	ResponseBytes           Number `json:"response_bytes"`
	ResponseBytesAgeSeconds Number `json:"response_bytes_age_seconds"`
	FailedShare             Number `json:"failed_share"`
	FailedShareAgeSeconds   Number `json:"failed_share_age_seconds"`
	FailedRequests          Number `json:"failed_requests"` // since the start: no connection, reset, or a 5xx of its own; never goes back

	LastScrape Scrape `json:"last_scrape"`
	// ImplausibleReadings are scrapes, since the start, in which a counter had risen by more than any server can
	// have made it: nothing of that interval counts. Unknown where it is not scraped.
	ImplausibleReadings    Number `json:"implausible_readings"`
	LastImplausibleReading Time   `json:"last_implausible_reading"`

	// Filled in by the handler.
	LoadPerSlot Number    `json:"load_per_slot"`
	Problems    []Problem `json:"problems"`
}

// Input returns the endpoint's input of that field, or an unknown one.
func (e Endpoint) Input(field string) Input {
	for _, in := range e.Inputs {
		if in.Field == field {
			return in
		}
	}
	return Input{Field: field, State: "unknown"}
}

// An Input is one field as the decision saw it.
type Input struct {
	Field      string `json:"field"`
	Value      Number `json:"value"`
	AgeSeconds Number `json:"age_seconds"`
	State      string `json:"state"`
}

// A Scrape is the latest exchange with an endpoint's metrics server.
type Scrape struct {
	At              Time   `json:"at"`
	DurationSeconds Number `json:"duration_seconds"`
	Error           string `json:"error"` // empty when it went well
}

// A Client is one connected Envoy.
type Client struct {
	NodeID        string         `json:"node_id"`
	NodeCluster   string         `json:"node_cluster"`
	Version       string         `json:"version"` // of Envoy
	Locality      string         `json:"locality"`
	Address       string         `json:"address"`
	ConnectedAt   Time           `json:"connected_at"`
	Transport     string         `json:"transport"`
	Duplicates    int            `json:"duplicates"` // other connections under the same node id
	Subscriptions []Subscription `json:"subscriptions"`
	Signals       Signals        `json:"signals"`

	// Filled in by the handler.
	Problems []Problem `json:"problems"`
}

// A Subscription is what one Envoy was sent of one cluster, and its answers.
type Subscription struct {
	Resource        string `json:"resource"` // the EDS name that it asks for: the cluster's, or a variant of it
	Cluster         string `json:"cluster"`  // the cluster that this name belongs to
	Known           bool   `json:"known"`    // false: there is nothing to send; the cluster is not configured, or not ready
	VersionSent     string `json:"version_sent"`
	VersionAcked    string `json:"version_acked"`
	InSync          bool   `json:"in_sync"`
	LastSent        Time   `json:"last_sent"`
	LastAck         Time   `json:"last_ack"`
	AckDelaySeconds Number `json:"ack_delay_seconds"`
	Acks            uint64 `json:"acks"`
	Nacks           uint64 `json:"nacks"`
	Nack            Nack   `json:"nack"`
}

// A Nack is the latest refusal of an assignment.
type Nack struct {
	Message string `json:"message"` // in Envoy's words, empty when there never was one
	At      Time   `json:"at"`
	Current bool   `json:"current"` // nothing was acknowledged since
}

// age is how long ago t was, unknown for the zero Time and never negative.
func age(t Time, now time.Time) Number {
	if t.IsZero() {
		return Number{}
	}
	return Seconds(max(0, now.Sub(t.Time)))
}
