package api

// A Shadow is the busiest hour of a cluster of the last day while its Envoys only reported, or what there is of the
// current one.
type Shadow struct {
	Cluster      string           `json:"cluster"`
	Recording    bool             `json:"recording"`  // Envoys report now, and none follows the weights
	Began        Time             `json:"began"`      // null: nothing was recorded
	Seconds      Number           `json:"seconds"`    // recorded
	Requests     uint64           `json:"requests"`   // begun in it
	Arrivals     []uint32         `json:"arrivals"`   // in each ten seconds
	AnswerP50    Number           `json:"answer_p50"` // time to the last byte, seconds
	AnswerP99    Number           `json:"answer_p99"` // time to the last byte, seconds
	Envoys       []ShadowEnvoy    `json:"envoys"`
	Endpoints    []ShadowEndpoint `json:"endpoints"` // by address
	PromptTokens Number           `json:"prompt_tokens"`
	OutputTokens Number           `json:"output_tokens"`
	// quantiles, in equal steps, of the time of service over its mean; empty: no slots are known
	Service []Number `json:"service"`
}

// A ShadowEnvoy is an Envoy with what it sent.
type ShadowEnvoy struct {
	NodeID   string `json:"node_id"`
	Requests uint64 `json:"requests"`
}

// A ShadowEndpoint is an endpoint with what it got.
type ShadowEndpoint struct {
	Address        string `json:"address"`
	Pod            string `json:"pod"`
	Requests       uint64 `json:"requests"`
	InFlight       Number `json:"in_flight"` // in the mean
	AnswerP99      Number `json:"answer_p99"`
	Slots          Number `json:"slots"`
	ServiceSeconds Number `json:"service_seconds"` // mean time in a slot
	RelativeSpeed  Number `json:"relative_speed"`
	CapacityShare  Number `json:"capacity_share"`
}
