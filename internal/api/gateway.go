package api

// EnvoyGateway is what Envoy Gateway asked of the extension server.
type EnvoyGateway struct {
	Enabled     bool          `json:"enabled"`       // the server is configured
	Calls       uint64        `json:"calls"`         // translations of Gateways that were answered
	LastCallAt  Time          `json:"last_call_at"`  // when the latest was
	Failures    uint64        `json:"failures"`      // calls that were answered by an error
	LastError   string        `json:"last_error"`    // of the latest, until one is answered
	LastErrorAt Time          `json:"last_error_at"` // when
	Pools       []GatewayPool `json:"pools"`         // that routes name, at most 100
}

// maxGatewayPools bounds the list in an answer.
const maxGatewayPools = 100

// Complete cuts the list.
func (g EnvoyGateway) Complete() EnvoyGateway {
	g.Pools = append([]GatewayPool{}, Limit(g.Pools, maxGatewayPools)...)
	return g
}

// A GatewayPool is an InferencePool that a route of a Gateway names.
type GatewayPool struct {
	Gateway   string `json:"gateway"`   // namespace and name of the Gateway
	Namespace string `json:"namespace"` // of the pool
	Name      string `json:"name"`      // of the pool
	Cluster   string `json:"cluster"`   // that serves it; empty: none
	Picker    string `json:"picker"`    // endpointPickerRef, to which it is left; empty: none
	Reason    string `json:"reason"`    // why neither serves it
}

// Pools are the InferencePools that become clusters.
type Pools struct {
	Enabled  bool   `json:"enabled"`  // the section is configured
	Answered bool   `json:"answered"` // the Kubernetes API has answered for every namespace
	Found    int    `json:"found"`    // pools of these namespaces
	Pickers  int    `json:"pickers"`  // of them, pools that are left to their pickers
	Error    string `json:"error"`    // of the latest request; the pools that are known stay
}
