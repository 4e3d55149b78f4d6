package api

// EnvoyGateway is what Envoy Gateway asked of the extension server.
type EnvoyGateway struct {
	Enabled     bool          `json:"enabled"`
	Calls       uint64        `json:"calls"` // that were answered
	LastCallAt  Time          `json:"last_call_at"`
	Failures    uint64        `json:"failures"`   // calls answered by an error
	LastError   string        `json:"last_error"` // empty once all is answered that failed
	LastErrorAt Time          `json:"last_error_at"`
	Pools       []GatewayPool `json:"pools"`   // that routes name, at most 100
	Ignored     []string      `json:"ignored"` // what of the routes has no effect, and why, at most 100
}

// maxGatewayPools bounds the lists in an answer.
const maxGatewayPools = 100

// Complete cuts the lists.
func (g EnvoyGateway) Complete() EnvoyGateway {
	g.Pools = append([]GatewayPool{}, Limit(g.Pools, maxGatewayPools)...)
	g.Ignored = append([]string{}, Limit(g.Ignored, maxGatewayPools)...)
	return g
}

// A GatewayPool is an InferencePool that a route of a Gateway names.
type GatewayPool struct {
	Gateway   string `json:"gateway"` // namespace and name
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Cluster   string `json:"cluster"` // that serves it; empty: none
	Picker    string `json:"picker"`  // endpointPickerRef, to which it is left; empty: none
	Reason    string `json:"reason"`  // why neither serves it
}

// Pools are the InferencePools that become clusters.
type Pools struct {
	Enabled     bool           `json:"enabled"`
	Answered    bool           `json:"answered"` // Kubernetes has answered for every namespace once, or refuses some
	Found       int            `json:"found"`
	Pickers     int            `json:"pickers"`      // pools that are left to their pickers
	Unserved    []UnservedPool `json:"unserved"`     // pools without a cluster, at most 100
	Error       string         `json:"error"`        // the pools that are known stay
	StatusError string         `json:"status_error"` // why the `status.parents` of pools is not written
}

// An UnservedPool is an InferencePool without a picker that is no cluster.
type UnservedPool struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Reason    string `json:"reason"` // why
}

// Complete cuts the list.
func (p Pools) Complete() Pools {
	p.Unserved = append([]UnservedPool{}, Limit(p.Unserved, maxGatewayPools)...)
	return p
}
