package view

import "steelyard/internal/stat"

// Severity is how much a problem matters.
type Severity string

// The severities. An error needs action; a warning explains a number.
const (
	SeverityError   Severity = "error"
	SeverityWarning Severity = "warning"
)

// A Problem is one fault, described in a sentence.
type Problem struct {
	Severity Severity `json:"severity"`
	Message  string   `json:"message"`
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
	// MinIntervalSeconds is the current time to the next push, and MinIntervalReason what sets it: "floor" (the
	// configured one), "bytes" or "cpu" (pushes that gain much come sooner).
	MinIntervalSeconds Number `json:"min_interval_seconds"`
	MinIntervalReason  string `json:"min_interval_reason"`
	// DroppedRequests counts the requests that Envoys refused because of the drop fraction,
	// according to their load reports; unknown without reports. It never decreases.
	DroppedRequests Number `json:"dropped_requests"`
	// Disputes are reports of single Envoys that conflict with those of all others. They do not count.
	Disputes []Dispute `json:"disputes"`
	// Shedding is whether the cluster may have Envoys refuse requests when it is saturated.
	Shedding bool `json:"shedding"`
	// Queue is the queue in which requests wait for an endpoint with a place; null: none.
	Queue *stat.Queue `json:"queue"`

	// Requests began since the start, according to the Envoys; unknown without a source that counts them. It never
	// decreases.
	Requests Number `json:"requests"`
	// FirstToken and AnswerP99Seconds are of the last minute, over all endpoints.
	FirstToken
	AnswerP99Seconds Number `json:"answer_p99_seconds"`

	// Filled in by the handler.
	State  State  `json:"state"` // the worst of the cluster's incidents
	Served Served `json:"served"`
	Use    Use    `json:"use"`

	Counts   EndpointCounts `json:"endpoint_counts"`
	Problems []Problem      `json:"problems"`

	// Terminating are the endpoints that finish the requests that they have, and get no new ones; by address.
	Terminating []Terminating `json:"terminating"`
	// Working is the decision that Decision and Endpoints are made of.
	Working Working `json:"-"`

	// Endpoints are sorted by address. The list of clusters leaves them out.
	Endpoints []Endpoint `json:"endpoints,omitzero"`
}

// EndpointCounts sums a cluster's endpoints up.
type EndpointCounts struct {
	Total      int `json:"total"`
	Overloaded int `json:"overloaded"`
	Stale      int `json:"stale"`   // reason decay or neutral: the report is too old to be used as it is
	New        int `json:"new"`     // reason blackout or ramp
	Failing    int `json:"failing"` // the scrapes fail, and no reading is used as it is
	// Terminating are not in Total: they finish the requests that they have, and get no new ones.
	Terminating int `json:"terminating"`
}

// Terminating is an endpoint that gets no new requests, until its source removes it.
type Terminating struct {
	Address string `json:"address"`
	Pod     string `json:"pod"`  // empty outside Kubernetes
	Node    string `json:"node"` // empty where it is not known
}

// A Push is the latest assignment sent to the Envoys of a cluster.
type Push struct {
	At      Time   `json:"at"`
	Version string `json:"version"`
	Reason  string `json:"reason"`
}

// A Decision is what of the latest decision concerns the whole pool.
type Decision struct {
	At                Time   `json:"at"`
	AgeSeconds        Number `json:"age_seconds"`
	ArrivalRate       Number `json:"arrival_rate"` // requests per second
	ArrivalRateSource string `json:"arrival_rate_source"`
	HorizonSeconds    Number `json:"horizon_seconds"`
	Arrivals          Number `json:"arrivals"`    // requests to fill in: those of the horizon, one at least
	WaterLevel        Number `json:"water_level"` // requests for each slot
	MedianLoad        Number `json:"median_load"` // requests for each slot
	DropFraction      Number `json:"drop_fraction"`
	// Unit is the unit of load: "requests" or "work"; empty before the first decision.
	Unit         string `json:"unit"`
	Work         Work   `json:"work"`                  // all null where the unit is the request
	ExpectedWait Number `json:"expected_wait_seconds"` // of the next request, in the mean over the pool
}

// Work is what requests cost engines that batch continuously, as learned in about the last minute.
type Work struct {
	PromptTokens Number `json:"prompt_tokens"` // that a mean request makes an engine compute
	OutputTokens Number `json:"output_tokens"` // of a mean request
	CachedShare  Number `json:"cached_share"`  // of all prompt tokens, 0..1: those that prefix caches answered
	Requests     Number `json:"requests"`      // that the means stand on
	// Engines are those whose counters of tokens are usable, CountedAgeSeconds is the age of the newest reading of one.
	Engines           int    `json:"engines"`
	CountedAgeSeconds Number `json:"counted_age_seconds"`
	// TokensPerByte is by these counters and the sizes of requests in the Envoys' access logs.
	TokensPerByte           Number `json:"tokens_per_byte"`
	TokensPerByteAgeSeconds Number `json:"tokens_per_byte_age_seconds"`
	BySize                  bool   `json:"by_size"`      // prompts are guessed by the size of requests
	PrefillRate             Number `json:"prefill_rate"` // prompt tokens per second of a typical engine
	IterationSeconds        Number `json:"iteration_seconds"`
	PrefillRateAgeSeconds   Number `json:"prefill_rate_age_seconds"`
}

// EndpointWork is the work that is outstanding at an endpoint.
type EndpointWork struct {
	PromptTokens Number `json:"prompt_tokens"` // guessed not to be computed yet
	// Source is what the requests that began are known by: "sizes", "requests", "in_flight" or "expected";
	// AgeSeconds is the age of the newest report of these, and CountedAgeSeconds that of the newest reading of the
	// engine's own counters, which corrects the guess.
	Source            string `json:"source"`
	AgeSeconds        Number `json:"age_seconds"`
	CountedAgeSeconds Number `json:"counted_age_seconds"`
	Requests          Number `json:"requests"` // the work in mean requests: the load that the share is computed from
	Seconds           Number `json:"seconds"`
	PrefillRate       Number `json:"prefill_rate"` // prompt tokens per second
	// PrefillRateSource is "measured", "configured" or "typical".
	PrefillRateSource     string `json:"prefill_rate_source"`
	PrefillRateAgeSeconds Number `json:"prefill_rate_age_seconds"`
}

// An Endpoint is one address with its weight and how that was computed.
type Endpoint struct {
	Address        string `json:"address"`
	Zone           string `json:"zone"`
	Engine         string `json:"engine"`
	Pod            string `json:"pod"`    // its name; empty outside Kubernetes
	Node           string `json:"node"`   // that it runs on; empty where that is not known
	Weight         Number `json:"weight"` // the integer last pushed, unknown before the first push
	Share          Number `json:"share"`
	Overloaded     bool   `json:"overloaded"`
	OverloadReason string `json:"overload_reason"`
	Reason         string `json:"reason"`
	// Override is what an operator decided; null: nothing.
	Override *Override `json:"override"`

	Load          Number `json:"load"` // requests
	LoadSource    string `json:"load_source"`
	Capacity      Number `json:"capacity"`
	Slots         Number `json:"slots"`
	SlotsSource   string `json:"slots_source"`
	RelativeSpeed Number `json:"relative_speed"`
	Ramp          Number `json:"ramp"`
	Unproxied     Number `json:"unproxied"` // requests

	Work EndpointWork `json:"work"` // all null where the unit of load is the request

	Inputs []Input `json:"inputs"`

	CompletionRate       Number `json:"completion_rate"` // requests per second
	MeanQueueTimeSeconds Number `json:"mean_queue_time_seconds"`
	BusyFraction         Number `json:"busy_fraction"`

	// The Envoys' reports of the requests that they sent here.
	InFlightSource string `json:"in_flight_source"` // "access_log", "load_reports", "redis"; empty: no source counts
	// InFlightOthers is how many of them Redis has of others (add_counts); null where their count is not added.
	InFlightOthers Number `json:"in_flight_others"`
	LatencySeconds Number `json:"latency_seconds"` // time to the last byte, smoothed
	// LatencyAgeSeconds is the time since the newest answer in it.
	LatencyAgeSeconds Number `json:"latency_age_seconds"`
	// ResponseBytes is the size of a response and FailedShare the part, 0 to 1, that the endpoint failed of the
	// requests that it answered or failed: moving averages, each with the time since the newest request in it.
	ResponseBytes           Number `json:"response_bytes"`
	ResponseBytesAgeSeconds Number `json:"response_bytes_age_seconds"`
	FailedShare             Number `json:"failed_share"`
	FailedShareAgeSeconds   Number `json:"failed_share_age_seconds"`
	// since the start: no connection, reset, or a 5xx of its own; never decreases
	FailedRequests Number `json:"failed_requests"`
	// ErrorRequests are the others that ended in an error, even if it is the request's own fault: a 4xx
	// or a gRPC status; with load reports only, which have no 4xx, every error. Never decreases.
	ErrorRequests Number `json:"error_requests"`

	// Requests began here since the start, according to the Envoys; of them, HashedRequests by a hash (affinity) and
	// not by the weights. CompletedRequests ended, by the server's own counter, since the first scrape. None decreases.
	Requests          Number `json:"requests"`
	HashedRequests    Number `json:"hashed_requests"`
	CompletedRequests Number `json:"completed_requests"`
	// FirstToken and AnswerP99Seconds are of about the last minute.
	FirstToken
	AnswerP99Seconds Number `json:"answer_p99_seconds"`
	// Outlier is whether it stalls or fails its requests: its share is the floor, and the flag is for that.
	Outlier bool `json:"outlier"`
	// Probed is why it was an outlier, while it is tried with few requests; empty otherwise.
	Probed string `json:"probed"`
	// OutlierSince is since when it has not been healthy, over all times that it was tried again; unknown otherwise.
	OutlierSince Time `json:"outlier_since"`
	// Tried is why it was flagged for its load, while it has no flag and is given a request; empty otherwise.
	Tried string `json:"tried"`
	// DoubtedSince is since when its report stands still, where that is doubted; unknown otherwise.
	DoubtedSince Time `json:"doubted_since"`

	LastScrape Scrape `json:"last_scrape"`
	// ImplausibleReadings are scrapes, since the start, in which a counter began to be higher than any server can have
	// counted. Unknown where it is not scraped.
	ImplausibleReadings Number `json:"implausible_readings"`
	// WrongCounters are the latest series of its metrics page that could not be right, and why: they rose by more than
	// any server can count, or fell while most others did not. Empty if there was none.
	WrongCounters     string `json:"wrong_counters"`
	LastWrongCounters Time   `json:"last_wrong_counters"`
	// CountersGoBack is whether its counters began again three times within about a minute, as those of several servers
	// behind one address do. Counts of tokens are not used then.
	CountersGoBack bool `json:"counters_go_back"`

	// Filled in by the handler.
	LoadPerSlot Number `json:"load_per_slot"`
	// State is its most important state, in a word.
	State EndpointState `json:"state"`
	// Why is a sentence that explains the share.
	Why string `json:"why"`
	// HeardSeconds is the age of the oldest input that is in use.
	HeardSeconds Number `json:"heard_seconds"`
	// ServedShare10s and ServedShare1m are the parts, 0 to 1, of the cluster's requests that it really got, and
	// ServedRequests1m how many that were in the last minute. Served of the cluster names what counts them.
	ServedShare10s   Number `json:"served_share_10s"`
	ServedShare1m    Number `json:"served_share_1m"`
	ServedRequests1m Number `json:"served_requests_1m"`
	// CapacityShare is its part of the capacity of the pool, 0 to 1, and UseWithout the part of the pool's capacity
	// that would be in use without it.
	CapacityShare Number    `json:"capacity_share"`
	UseWithout    Number    `json:"capacity_used_without"`
	Problems      []Problem `json:"problems"`
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
	Field      string `json:"field"`
	Value      Number `json:"value"`
	AgeSeconds Number `json:"age_seconds"`
	State      string `json:"state"`
}

// A Scrape is the latest exchange with an endpoint's metrics server.
type Scrape struct {
	At              Time   `json:"at"`
	DurationSeconds Number `json:"duration_seconds"`
	Error           string `json:"error"`   // empty when it went well
	Doubt           string `json:"doubt"`   // why a number of the page is unknown although it is there; empty for none
	Replica         string `json:"replica"` // name of the replica that scraped it; empty for this one
}
