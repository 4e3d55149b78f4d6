package view

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
	Kind    OverrideKind `json:"kind"`
	Share   Number       `json:"share"` // of a pin, 0 to 1
	Since   Time         `json:"since"`
	Until   Time         `json:"until"`
	By      string       `json:"by"`     // name of the token
	Reason  string       `json:"reason"` // in the operator's words; empty where none was given
	// Kept is whether it would be there after a restart: it is in Redis.
	Kept bool `json:"kept"`
}
