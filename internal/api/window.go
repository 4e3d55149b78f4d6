package api

// A Window is a part of a cluster's history. Item i of each list belongs to the moment At[i]. Where neighbours were
// averaged, At is the latest of them.
type Window struct {
	Cluster          string          `json:"cluster"`
	WindowSeconds    Number          `json:"window_seconds"` // that was asked for
	StepSeconds      Number          `json:"step_seconds"`   // between two moments
	At               []Time          `json:"at"`             // the moments, oldest first
	Fields           []string        `json:"fields"`         // asked for of each endpoint
	Pool             PoolTrace       `json:"pool"`
	Endpoints        []EndpointTrace `json:"endpoints"`          // by address; some left within the window
	EndpointsLeftOut int             `json:"endpoints_left_out"` // beyond the first 1000
	KeptSeconds      Number          `json:"kept_seconds"`       // how far back there is a history
	FineSeconds      Number          `json:"fine_seconds"`       // how far back it has each second
}

// An EndpointTrace is one endpoint's past over a Window, unknown where the endpoint was not in the pool. A list that
// was not asked for is empty.
type EndpointTrace struct {
	Address  string          `json:"address"`
	Shares   []Number        `json:"shares"`    // decided
	Served   []Number        `json:"served"`    // share of the last ten seconds
	Loads    []Number        `json:"loads"`     // mean `load_per_slot`
	MaxLoads []Number        `json:"max_loads"` // highest `load_per_slot`
	InFlight []Number        `json:"in_flight"`
	Latency  []Number        `json:"latency_seconds"` // mean, to the first token, or else to the last byte
	States   []EndpointState `json:"states"`          // the worst; empty while it was not in the pool
}

// A PoolTrace is the past of a whole cluster over a Window.
type PoolTrace struct {
	ArrivalRate  []Number `json:"arrival_rate"`
	MedianLoad   []Number `json:"median_load"` // `load_per_slot` of the median endpoint
	FullestLoad  []Number `json:"fullest_load"`
	WaterLevel   []Number `json:"water_level"`
	InFlight     []Number `json:"in_flight"` // at all endpoints
	FirstToken   []Number `json:"first_token_mean_seconds"`
	AnswerP99    []Number `json:"answer_p99_seconds"`
	CapacityUsed []Number `json:"capacity_used"`
	DropFraction []Number `json:"drop_fraction"`
}

// The fields of endpoints that a query may ask for.
const (
	FieldShares   = "shares"
	FieldServed   = "served"
	FieldLoads    = "loads"
	FieldInFlight = "in_flight"
	FieldLatency  = "latency"
	FieldStates   = "states"
)

func HistoryFields() []string {
	return []string{FieldShares, FieldServed, FieldLoads, FieldInFlight, FieldLatency, FieldStates}
}
