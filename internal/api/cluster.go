package api

// Severity is how much a problem matters.
type Severity string

// The severities. An error needs action; a warning explains a number.
const (
	SeverityError   Severity = "error"   // it needs action
	SeverityWarning Severity = "warning" // it explains a number
)

// A Problem is one fault, described in a sentence.
type Problem struct {
	Severity Severity `json:"severity"` // `error`: act; `warning`: explains a number
	Message  string   `json:"message"`  // a sentence for people; its wording may change
}

// A Cluster is one pool of endpoints with the decision that holds for it.
type Cluster struct {
	Name           string         `json:"name"`             // name of the cluster, and of its EDS service
	Engine         string         `json:"engine"`           // unless an endpoint has its own
	Ready          bool           `json:"ready"`            // it has weights to push, or no endpoints
	NotReadyReason string         `json:"not_ready_reason"` // what it waits for
	Decision       Decision       `json:"decision"`         // the latest, as far as it concerns the whole pool
	Sources        []SourceStatus `json:"sources"`          // where its reports come from

	LastPush           Push   `json:"last_push"`            // the latest assignment that was sent
	Pushes             uint64 `json:"pushes"`               // since the start
	SuppressedPushes   uint64 `json:"suppressed_pushes"`    // decisions that were not pushed, since the start
	MinIntervalSeconds Number `json:"min_interval_seconds"` // current time from a push to the next
	// what sets it: `floor` (configured), `bytes` or `cpu` (budgets of pushes)
	MinIntervalReason string `json:"min_interval_reason"`
	// requests refused because of `drop_fraction`, by the Envoys' load reports
	DroppedRequests Number `json:"dropped_requests"`
	// reports of single Envoys that contradict all others, and do not count
	Disputes []Dispute `json:"disputes"`
	Shedding bool      `json:"shedding"` // a saturated pool may refuse requests
	Queue    *Queue    `json:"queue"`    // null without one

	Requests Number `json:"requests"` // begun since the start, by the Envoys' reports
	// FirstToken and AnswerP99Seconds are of the last minute, over all endpoints.
	FirstToken
	// 99th percentile of the time to the last byte, from access logs of the last minute
	AnswerP99Seconds Number `json:"answer_p99_seconds"`

	// Filled in by the handler.

	State  State  `json:"state"`  // `ok`, `warning` or `error`: the worst of its incidents
	Served Served `json:"served"` // how requests were distributed
	Use    Use    `json:"use"`    // part of the capacity in use

	// Envoys that report their requests and follow no weights (`bootstrap --shadow`)
	ShadowEnvoys int `json:"shadow_envoys"`

	Counts   EndpointCounts `json:"endpoint_counts"` // sums over its endpoints
	Problems []Problem      `json:"problems"`        // of the pool; endpoints have their own

	Terminating []Terminating `json:"terminating"` // endpoints that finish their requests and get no new ones
	// Working is the decision that Decision and Endpoints are made of.
	Working Working `json:"-"`

	Endpoints []Endpoint `json:"endpoints,omitzero"` // not in the list of clusters
}

// EndpointCounts sums a cluster's endpoints up.
type EndpointCounts struct {
	Total       int `json:"total"`       // endpoints that discovery found
	Overloaded  int `json:"overloaded"`  // with the overload flag
	Stale       int `json:"stale"`       // with reports too old to be used as they are
	New         int `json:"new"`         // in `blackout` or `ramp`
	Failing     int `json:"failing"`     // not drained; their scrapes fail, and their readings are too old
	Terminating int `json:"terminating"` // not in `total`
}

// Terminating is an endpoint that gets no new requests, until its source removes it.
type Terminating struct {
	Address string `json:"address"` // `host:port`
	Pod     string `json:"pod"`     // name of its Pod
	Node    string `json:"node"`    // node of its Pod
}

// A Push is the latest assignment sent to the Envoys of a cluster.
type Push struct {
	At      Time   `json:"at"`      // null before the first
	Version string `json:"version"` // xDS version of the assignment
	Reason  string `json:"reason"`  // `changed`, `membership`, `overload`, `drop` or `heartbeat`
}

// A Decision is what of the latest decision concerns the whole pool.
type Decision struct {
	At          Time   `json:"at"`           // null before the first decision
	AgeSeconds  Number `json:"age_seconds"`  // age of the decision
	ArrivalRate Number `json:"arrival_rate"` // expected requests per second
	// `completions`, `issued` (by the Envoys), `increments` (rises of counts: a lower bound) or `unknown`
	ArrivalRateSource string `json:"arrival_rate_source"`
	HorizonSeconds    Number `json:"horizon_seconds"` // how far the decision looks ahead
	Arrivals          Number `json:"arrivals"`        // requests that the decision distributes
	// level up to which endpoints are filled, in requests for each slot or in mean requests
	WaterLevel   Number `json:"water_level"`
	MedianLoad   Number `json:"median_load"`   // median level of the usable loads
	DropFraction Number `json:"drop_fraction"` // part of the requests that Envoys have to refuse, 0 to 1
	// of load: `work` where most engines count tokens, else `requests`
	Unit         string `json:"unit"`
	Work         Work   `json:"work"`                  // what requests cost; null if `unit` is `requests`
	ExpectedWait Number `json:"expected_wait_seconds"` // mean wait of the next request for a slot
}

// Work is what requests cost engines that batch continuously, as learned in about the last minute.
type Work struct {
	// prompt tokens that a mean request makes an engine compute
	PromptTokens Number `json:"prompt_tokens"`
	OutputTokens Number `json:"output_tokens"` // of a mean request
	// part of the prompt tokens found in prefix caches, 0 to 1
	CachedShare       Number `json:"cached_share"`
	Requests          Number `json:"requests"`            // that these means are made of
	Engines           int    `json:"engines"`             // with usable counters of tokens
	CountedAgeSeconds Number `json:"counted_age_seconds"` // age of the newest reading of these counters
	// prompt tokens to compute for each byte of a body
	TokensPerByte           Number `json:"tokens_per_byte"`
	TokensPerByteAgeSeconds Number `json:"tokens_per_byte_age_seconds"` // age of the newest reading in it
	BySize                  bool   `json:"by_size"`                     // prompts are estimated by the size of requests
	// prompt tokens per second of an engine of relative speed 1
	PrefillRate Number `json:"prefill_rate"`
	// of an iteration of such an engine, without its tokens
	IterationSeconds      Number `json:"iteration_seconds"`
	PrefillRateAgeSeconds Number `json:"prefill_rate_age_seconds"` // age of the newest reading in the two
}

// EndpointWork is the work that is outstanding at an endpoint.
type EndpointWork struct {
	// estimated prompt tokens that are still to be computed
	PromptTokens Number `json:"prompt_tokens"`
	// how requests are known: `sizes`, `requests`, `in_flight` or `expected` (nothing reports them)
	Source     string `json:"source"`
	AgeSeconds Number `json:"age_seconds"` // age of the newest report of these
	// age of the newest reading of the engine's own counters
	CountedAgeSeconds Number `json:"counted_age_seconds"`
	// outstanding work in mean requests; replaces `load` in the share
	Requests              Number `json:"requests"`
	Seconds               Number `json:"seconds"`                  // time that it keeps this engine busy
	PrefillRate           Number `json:"prefill_rate"`             // prompt tokens per second
	PrefillRateSource     string `json:"prefill_rate_source"`      // `measured`, `configured` or `typical`
	PrefillRateAgeSeconds Number `json:"prefill_rate_age_seconds"` // age of the newest reading in it
}

// An Endpoint is one address with its weight and how that was computed.
type Endpoint struct {
	Address        string `json:"address"`         // `host:port`
	Zone           string `json:"zone"`            // locality
	Engine         string `json:"engine"`          // engine of this model server
	Namespace      string `json:"namespace"`       // of the Pod; empty outside Kubernetes
	Pod            string `json:"pod"`             // name of the Pod; empty outside Kubernetes
	Node           string `json:"node"`            // node of the Pod
	Role           string `json:"role"`            // label `llm-d.ai/role` of the Pod: `prefill`, `decode`, …
	Model          string `json:"model"`           // label `llm-d.ai/model` or `model.aibrix.ai/name` of the Pod
	Weight         Number `json:"weight"`          // integer last pushed
	Share          Number `json:"share"`           // part of the requests that the decision gives it, 0 to 1
	Overloaded     bool   `json:"overloaded"`      // Envoys are asked to prefer others (DEGRADED)
	OverloadReason string `json:"overload_reason"` // why
	// main cause of the share: see [reasons](operations.md#why-did-this-endpoint-get-10--now-or-minutes-ago)
	Reason   string    `json:"reason"`
	Override *Override `json:"override"` // what an operator decided

	Load       Number `json:"load"`        // requests waiting and running, estimated
	LoadSource string `json:"load_source"` // `scraped`, `in_flight`, `fused` or `median`
	Capacity   Number `json:"capacity"`    // slots × relative speed × ramp
	// requests that it executes at once; null for engines that count tokens
	Slots Number `json:"slots"`
	// `configured`, `learned`, `assumed` (the median of others) or `work` (no slots)
	SlotsSource   string `json:"slots_source"`
	RelativeSpeed Number `json:"relative_speed"` // speed divided by the pool's median
	Ramp          Number `json:"ramp"`           // part of its capacity that is used while it is new, 0 to 1
	Unproxied     Number `json:"unproxied"`      // requests that the server has and the Envoys do not count

	Work EndpointWork `json:"work"` // outstanding work; null if `unit` is `requests`

	Inputs []Input `json:"inputs"` // the reports that load and flag are computed from

	CompletionRate       Number `json:"completion_rate"`         // requests completed per second
	MeanQueueTimeSeconds Number `json:"mean_queue_time_seconds"` // mean, of requests completed recently
	BusyFraction         Number `json:"busy_fraction"`           // part of the slots that execute, 0 to 1

	// `access_log`, `load_reports` or `redis`; empty: nothing counts
	InFlightSource string `json:"in_flight_source"`
	// requests of others among `in_flight`, by their counts in Redis
	InFlightOthers          Number `json:"in_flight_others"`
	LatencySeconds          Number `json:"latency_seconds"`            // time to the last byte, smoothed
	LatencyAgeSeconds       Number `json:"latency_age_seconds"`        // age of the newest answer in it
	ResponseBytes           Number `json:"response_bytes"`             // size of an answer, smoothed
	ResponseBytesAgeSeconds Number `json:"response_bytes_age_seconds"` // age of the newest answer in it
	// part of its requests that it failed, 0 to 1, smoothed
	FailedShare           Number `json:"failed_share"`
	FailedShareAgeSeconds Number `json:"failed_share_age_seconds"` // age of the newest request in it
	// no connection, a reset or its own 5xx, since the start
	FailedRequests Number `json:"failed_requests"`
	// other requests that ended in an error, such as a 4xx, since the start
	ErrorRequests Number `json:"error_requests"`

	Requests          Number `json:"requests"`           // begun here since the start, by the Envoys' reports
	HashedRequests    Number `json:"hashed_requests"`    // those whose endpoint a hash chose
	CompletedRequests Number `json:"completed_requests"` // completed since the first scrape, by its own counter
	// FirstToken and AnswerP99Seconds are of about the last minute.
	FirstToken
	AnswerP99Seconds Number `json:"answer_p99_seconds"` // 99th percentile of the time to the last byte
	// it stalls or fails requests, so it has the flag and the floor's share
	Outlier      bool   `json:"outlier"`
	Probed       string `json:"probed"`        // why it was an outlier, while it is tried with few requests
	OutlierSince Time   `json:"outlier_since"` // since when it has not been healthy
	// why it was flagged for its load, while it is tried with a request
	Tried        string `json:"tried"`
	DoubtedSince Time   `json:"doubted_since"` // since when its report stands still

	LastScrape          Scrape `json:"last_scrape"`          // latest request to its metrics page
	ImplausibleReadings Number `json:"implausible_readings"` // scrapes with a counter that was impossibly high
	WrongCounters       string `json:"wrong_counters"`       // latest counters that could not be right, and why
	LastWrongCounters   Time   `json:"last_wrong_counters"`  // when they were found
	// its counters begin again often, as with several servers behind one address
	CountersGoBack bool `json:"counters_go_back"`

	// Filled in by the handler.

	LoadPerSlot Number        `json:"load_per_slot"` // above 1, requests wait
	State       EndpointState `json:"state"`         // one word for its state, the worst that holds
	// a sentence that explains the share; its wording may change
	Why          string `json:"why"`
	HeardSeconds Number `json:"heard_seconds"` // age of the oldest input in use
	// part of the cluster's requests that it got in ten seconds, 0 to 1
	ServedShare10s   Number `json:"served_share_10s"`
	ServedShare1m    Number `json:"served_share_1m"`    // the same for a minute
	ServedRequests1m Number `json:"served_requests_1m"` // how many these were
	CapacityShare    Number `json:"capacity_share"`     // part of the pool's capacity, 0 to 1
	// `capacity_used` of the cluster without this endpoint
	UseWithout Number    `json:"capacity_used_without"`
	Problems   []Problem `json:"problems"` // of this endpoint
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
	// `queue`, `running`, `in_flight` (requests) or `utilization` (of the KV cache, 0 to 1)
	Field      string `json:"field"`
	Value      Number `json:"value"`       // as last read, whatever its age
	AgeSeconds Number `json:"age_seconds"` // of the value
	// `fresh`, `hold` (used as it is), `decay` (fading), `neutral` (too old), `stuck` or `unknown`
	State string `json:"state"`
}

// A Scrape is the latest exchange with an endpoint's metrics server.
type Scrape struct {
	At              Time   `json:"at"`               // null before the first
	DurationSeconds Number `json:"duration_seconds"` // time that it took
	Error           string `json:"error"`            // why it failed
	Doubt           string `json:"doubt"`            // why a number on the page is not used
}
