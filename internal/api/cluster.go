package api

// Severity is how much a problem matters.
type Severity string

// The severities. An error needs action; a warning explains a number.
const (
	SeverityError   Severity = "error"   // act
	SeverityWarning Severity = "warning" // it explains a number
)

// A Problem is one fault, described in a sentence.
type Problem struct {
	Severity Severity `json:"severity"`
	Message  string   `json:"message"` // for people; its wording may change
}

// A Cluster is one pool of endpoints with the decision that holds for it.
type Cluster struct {
	Name           string         `json:"name"`             // of its EDS service, too
	Engine         string         `json:"engine"`           // unless an endpoint has its own
	Ready          bool           `json:"ready"`            // it has weights to push, or no endpoints
	NotReadyReason string         `json:"not_ready_reason"` // what it waits for
	Decision       Decision       `json:"decision"`         // what of it concerns the whole pool
	Sources        []SourceStatus `json:"sources"`

	LastPush           Push   `json:"last_push"`
	Pushes             uint64 `json:"pushes"`               // since the start
	SuppressedPushes   uint64 `json:"suppressed_pushes"`    // decisions that were not pushed
	MinIntervalSeconds Number `json:"min_interval_seconds"` // between two pushes, now
	MinIntervalReason  string `json:"min_interval_reason"`  // `floor` (configured), `bytes` or `cpu` (budgets)
	DroppedRequests    Number `json:"dropped_requests"`     // refused because of `drop_fraction`
	// reports of Envoys that all others contradict, so they do not count
	Disputes []Dispute `json:"disputes"`
	Shedding bool      `json:"shedding"` // it is configured
	Queue    *Queue    `json:"queue"`    // null without one
	Routes   *Routes   `json:"routes"`   // learned by pickers, and kept for new ones; null for none

	Requests Number `json:"requests"` // begun since the start, by the Envoys' reports
	// FirstToken and AnswerP99Seconds are of the last minute, over all endpoints.
	FirstToken
	AnswerP99Seconds Number `json:"answer_p99_seconds"` // p99 of the time to the last byte, of the last minute

	// Filled in by the handler.

	State  State  `json:"state"`  // the worst of its incidents
	Served Served `json:"served"` // how requests were distributed
	Use    Use    `json:"use"`

	ShadowEnvoys int `json:"shadow_envoys"` // that report and follow no weights (`bootstrap --shadow`)

	Counts   EndpointCounts `json:"endpoint_counts"`
	Problems []Problem      `json:"problems"` // of the pool; endpoints have their own

	Terminating []Terminating `json:"terminating"` // endpoints that finish their requests and get no new ones
	// Working is the decision that Decision and Endpoints are made of.
	Working Working `json:"-"`

	Endpoints []Endpoint `json:"endpoints,omitzero"` // not in the list of clusters
}

// EndpointCounts sums a cluster's endpoints up.
type EndpointCounts struct {
	Total       int `json:"total"` // without the terminating ones
	Overloaded  int `json:"overloaded"`
	Stale       int `json:"stale"`   // with reports too old to be used as they are
	New         int `json:"new"`     // in `blackout` or `ramp`
	Failing     int `json:"failing"` // scrapes fail, and readings are too old; not drained
	Terminating int `json:"terminating"`
}

// Terminating is an endpoint that gets no new requests, until its source removes it.
type Terminating struct {
	Address string `json:"address"`
	Pod     string `json:"pod"`
	Node    string `json:"node"`
}

// A Push is the latest assignment sent to the Envoys of a cluster.
type Push struct {
	At      Time   `json:"at"`
	Version string `json:"version"` // of xDS
	Reason  string `json:"reason"`  // `changed`, `membership`, `overload`, `drop` or `heartbeat`
}

// A Decision is what of the latest decision concerns the whole pool.
type Decision struct {
	At          Time   `json:"at"` // null before the first
	AgeSeconds  Number `json:"age_seconds"`
	ArrivalRate Number `json:"arrival_rate"` // expected requests per second
	// `completions`, `issued` (by the Envoys), `increments` (rises of counts: a lower bound) or `unknown`
	ArrivalRateSource string `json:"arrival_rate_source"`
	HorizonSeconds    Number `json:"horizon_seconds"` // how far it looks ahead
	Arrivals          Number `json:"arrivals"`        // requests that it distributes
	// to which endpoints are filled: requests for each slot, or mean requests
	WaterLevel   Number `json:"water_level"`
	MedianLoad   Number `json:"median_load"`           // of the usable loads
	DropFraction Number `json:"drop_fraction"`         // that Envoys refuse; null while none follows here
	Unit         string `json:"unit"`                  // of load: `work` if most engines count tokens, else `requests`
	Work         Work   `json:"work"`                  // null if `unit` is `requests`
	ExpectedWait Number `json:"expected_wait_seconds"` // mean wait of the next request for a slot
}

// Work is what requests cost engines that batch continuously, as learned in about the last minute.
type Work struct {
	PromptTokens            Number `json:"prompt_tokens"`       // that a mean request makes an engine compute
	OutputTokens            Number `json:"output_tokens"`       // of a mean request
	CachedShare             Number `json:"cached_share"`        // part of the prompt tokens found in caches
	Requests                Number `json:"requests"`            // that these means are made of
	Engines                 int    `json:"engines"`             // with usable counters of tokens
	CountedAgeSeconds       Number `json:"counted_age_seconds"` // of the newest reading of these counters
	TokensPerByte           Number `json:"tokens_per_byte"`     // prompt tokens for each byte of a body
	TokensPerByteAgeSeconds Number `json:"tokens_per_byte_age_seconds"`
	BySize                  bool   `json:"by_size"`           // prompts are estimated by the size of requests
	PrefillRate             Number `json:"prefill_rate"`      // prompt tokens per second, at relative speed 1
	IterationSeconds        Number `json:"iteration_seconds"` // of such an engine, without its tokens
	PrefillRateAgeSeconds   Number `json:"prefill_rate_age_seconds"`
}

// EndpointWork is the work that is outstanding at an endpoint.
type EndpointWork struct {
	PromptTokens Number `json:"prompt_tokens"` // estimated, still to be computed
	// how requests are known: `sizes`, `requests`, `in_flight` or `expected` (nothing reports them)
	Source            string `json:"source"`
	AgeSeconds        Number `json:"age_seconds"` // of the newest report
	CountedAgeSeconds Number `json:"counted_age_seconds"`
	// outstanding work in mean requests; replaces `load` in the share
	Requests              Number `json:"requests"`
	Seconds               Number `json:"seconds"`             // that it keeps this engine busy
	PrefillRate           Number `json:"prefill_rate"`        // prompt tokens per second
	PrefillRateSource     string `json:"prefill_rate_source"` // `measured`, `configured` or `typical`
	PrefillRateAgeSeconds Number `json:"prefill_rate_age_seconds"`
}

// An Endpoint is one address with its weight and how that was computed.
type Endpoint struct {
	Address        string `json:"address"` // of an endpoint `host:port`, of a connection the remote address
	Zone           string `json:"zone"`    // locality
	Engine         string `json:"engine"`
	Namespace      string `json:"namespace"`  // of the Pod; empty outside Kubernetes
	Pod            string `json:"pod"`        // its name; empty outside Kubernetes
	Node           string `json:"node"`       // of the Pod
	Role           string `json:"role"`       // the Pod's label `llm-d.ai/role`
	Model          string `json:"model"`      // the Pod's label `llm-d.ai/model` or `model.aibrix.ai/name`
	Weight         Number `json:"weight"`     // integer last pushed
	Share          Number `json:"share"`      // part of the requests that the decision gives it
	Overloaded     bool   `json:"overloaded"` // Envoys are asked to prefer others (DEGRADED)
	OverloadReason string `json:"overload_reason"`
	// main cause of the share: see [reasons](operations.md#why-did-this-endpoint-get-10--now-or-minutes-ago)
	Reason   string    `json:"reason"`
	Override *Override `json:"override"`

	Load       Number `json:"load"`        // requests waiting and running, estimated
	LoadSource string `json:"load_source"` // `scraped`, `in_flight`, `fused` or `median`
	Capacity   Number `json:"capacity"`    // slots × relative speed × ramp
	Slots      Number `json:"slots"`       // requests that it executes at once; null for engines that count tokens
	// `configured`, `learned`, `assumed` (the median of others) or `work` (no slots)
	SlotsSource   string `json:"slots_source"`
	RelativeSpeed Number `json:"relative_speed"` // divided by the pool's median
	Ramp          Number `json:"ramp"`           // part of its capacity while it is new
	Unproxied     Number `json:"unproxied"`      // requests that the server has and no Envoy counts

	Work EndpointWork `json:"work"` // null if `unit` is `requests`

	Inputs []Input `json:"inputs"` // what load and flag are computed from

	CompletionRate       Number `json:"completion_rate"`         // requests per second
	MeanQueueTimeSeconds Number `json:"mean_queue_time_seconds"` // of requests completed recently
	BusyFraction         Number `json:"busy_fraction"`           // part of the slots that execute

	// `access_log`, `load_reports` or `redis`; empty: nothing counts
	InFlightSource          string `json:"in_flight_source"`
	InFlightOthers          Number `json:"in_flight_others"`           // of `in_flight`, what others count in Redis
	LatencySeconds          Number `json:"latency_seconds"`            // to the last byte, smoothed
	LatencyAgeSeconds       Number `json:"latency_age_seconds"`        // of the newest answer in it
	ResponseBytes           Number `json:"response_bytes"`             // smoothed
	ResponseBytesAgeSeconds Number `json:"response_bytes_age_seconds"` // of the newest answer in it
	// part of its requests that it failed, smoothed
	FailedShare           Number `json:"failed_share"`
	FailedShareAgeSeconds Number `json:"failed_share_age_seconds"` // of the newest request in it
	// no connection, a reset or its own 5xx
	FailedRequests Number `json:"failed_requests"`
	ErrorRequests  Number `json:"error_requests"` // other errors, such as a 4xx

	Requests          Number `json:"requests"`
	HashedRequests    Number `json:"hashed_requests"`    // of these, sent by a hash
	CompletedRequests Number `json:"completed_requests"` // since the first scrape, by its own counter
	// FirstToken and AnswerP99Seconds are of about the last minute.
	FirstToken
	AnswerP99Seconds Number `json:"answer_p99_seconds"`
	// it stalls or fails requests, so it has the flag and the floor's share
	Outlier      bool   `json:"outlier"`
	Probed       string `json:"probed"`        // why it was an outlier, while it is tried with few requests
	OutlierSince Time   `json:"outlier_since"` // when it was last healthy
	// when its process last answered or did work; null where work counts only when a request ends
	WorkedAt     Time   `json:"worked_at"`
	Tried        string `json:"tried"`         // why it was flagged for its load, while it is tried with a request
	DoubtedSince Time   `json:"doubted_since"` // since when its report stands still

	LastScrape          Scrape `json:"last_scrape"`
	ImplausibleReadings Number `json:"implausible_readings"` // scrapes with a counter that was impossibly high
	WrongCounters       string `json:"wrong_counters"`       // latest counters that could not be right, and why
	LastWrongCounters   Time   `json:"last_wrong_counters"`  // when they were found
	// they begin again often, as with several servers behind one address
	CountersGoBack bool `json:"counters_go_back"`

	// Filled in by the handler.

	LoadPerSlot  Number        `json:"load_per_slot"` // above 1, requests wait
	State        EndpointState `json:"state"`         // the first that holds
	Why          string        `json:"why"`           // explains the share, for people
	HeardSeconds Number        `json:"heard_seconds"` // age of the oldest input in use
	// part of the requests that it got in ten seconds
	ServedShare10s   Number    `json:"served_share_10s"`
	ServedShare1m    Number    `json:"served_share_1m"`       // the same for a minute
	ServedRequests1m Number    `json:"served_requests_1m"`    // how many these were
	CapacityShare    Number    `json:"capacity_share"`        // part of the pool's capacity
	UseWithout       Number    `json:"capacity_used_without"` // `capacity_used` of the cluster without it
	Problems         []Problem `json:"problems"`
}

// Named is how people know the endpoint: by its Pod, with its address, since others may get that later.
func (e *Endpoint) Named() string {
	if e.Pod == "" {
		return e.Address
	}
	return e.Pod + " (" + e.Address + ")"
}

// Input returns the endpoint's input of that field, or an unknown one.
func (e *Endpoint) Input(field string) Input {
	for i := range e.Inputs {
		if e.Inputs[i].Field == field {
			return e.Inputs[i]
		}
	}
	return Input{Field: field, State: "unknown"}
}

// An Input is one field as the decision saw it.
type Input struct {
	Field      string `json:"field"` // `queue`, `running`, `in_flight` or `utilization` (of the KV cache, 0 to 1)
	Value      Number `json:"value"` // as last read, whatever its age
	AgeSeconds Number `json:"age_seconds"`
	// see [states of a number](operations.md#why-did-this-endpoint-get-10--now-or-minutes-ago)
	State string `json:"state"`
}

// A Scrape is the latest exchange with an endpoint's metrics server.
type Scrape struct {
	At              Time   `json:"at"`
	DurationSeconds Number `json:"duration_seconds"`
	Error           string `json:"error"`
	Doubt           string `json:"doubt"` // why a number on the page is not used
}
