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
	Cluster string       `json:"cluster"`
	Address string       `json:"address"`
	Pod     string       `json:"pod"`
	Kind    OverrideKind `json:"kind"`
	Share   Number       `json:"share"` // of a pin
	Since   Time         `json:"since"`
	Until   Time         `json:"until"`
	By      string       `json:"by"` // name of the token
	Reason  string       `json:"reason"`
	Kept    bool         `json:"kept"` // Redis has it, so it outlives a restart
}
