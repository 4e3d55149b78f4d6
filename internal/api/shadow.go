package api

// A Shadow is the busiest hour of a cluster of the last day while its Envoys only reported, or what there is of the
// current one.
type Shadow struct {
	Cluster   string           `json:"cluster"`    // name of the cluster
	Began     Time             `json:"began"`      // start of the hour; null: nothing was recorded
	Seconds   Number           `json:"seconds"`    // length of what was recorded
	Requests  uint64           `json:"requests"`   // begun in it
	Arrivals  []uint32         `json:"arrivals"`   // requests in each ten seconds
	AnswerP50 Number           `json:"answer_p50"` // median time to the last byte, seconds
	AnswerP99 Number           `json:"answer_p99"` // 99th percentile of the time to the last byte, seconds
	Envoys    []ShadowEnvoy    `json:"envoys"`     // that sent them
	Endpoints []ShadowEndpoint `json:"endpoints"`  // that got them, by address
	// prompt tokens that a mean request makes an engine compute now; null if no engine counts tokens
	PromptTokens Number `json:"prompt_tokens"`
	OutputTokens Number `json:"output_tokens"` // of a mean request now
	// quantiles, in equal steps, of the time of service over its mean; empty: no slots are known
	Service []Number `json:"service"`
}

// A ShadowEnvoy is an Envoy with what it sent.
type ShadowEnvoy struct {
	NodeID   string `json:"node_id"`  // `node.id` of its bootstrap
	Requests uint64 `json:"requests"` // that it sent
}

// A ShadowEndpoint is an endpoint with what it got.
type ShadowEndpoint struct {
	Address        string `json:"address"`         // `host:port`
	Pod            string `json:"pod"`             // name of its Pod; empty for one that has left
	Requests       uint64 `json:"requests"`        // that it got
	InFlight       Number `json:"in_flight"`       // requests there at once, in the mean
	AnswerP99      Number `json:"answer_p99"`      // 99th percentile of the time to the last byte, seconds
	Slots          Number `json:"slots"`           // requests that it runs at once; null: unknown
	ServiceSeconds Number `json:"service_seconds"` // mean time of a request in a slot
	RelativeSpeed  Number `json:"relative_speed"`  // its speed now, divided by the pool's median
	CapacityShare  Number `json:"capacity_share"`  // its part of the pool's capacity now, 0 to 1
}
