package api

// An OverrideKind is what an operator decided about an endpoint.
type OverrideKind string

// The kinds of overrides.
const (
	OverrideDrain OverrideKind = "drain" // no new requests
	OverridePin   OverrideKind = "pin"   // a fixed share
)

// An Override is what an operator decided about an endpoint, for some time.
type Override struct {
	Cluster string       `json:"cluster"` // of the endpoint
	Address string       `json:"address"` // of the endpoint
	Pod     string       `json:"pod"`     // name of its Pod; empty outside Kubernetes
	Kind    OverrideKind `json:"kind"`    // `drain` (no new requests) or `pin` (a fixed share)
	Share   Number       `json:"share"`   // of a pin, 0 to 1
	Since   Time         `json:"since"`   // when it began
	Until   Time         `json:"until"`   // when it ends by itself
	By      string       `json:"by"`      // name of the token
	Reason  string       `json:"reason"`  // in the operator's words
	Kept    bool         `json:"kept"`    // Redis has it, so it outlives a restart
}
