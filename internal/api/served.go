package api

// A State is that of a cluster, or of the process: the worst of its incidents.
type State string

// The states, from good to bad.
const (
	StateOK      State = "ok"      // no incident
	StateWarning State = "warning" // warnings only
	StateError   State = "error"   // an error at least
)

// An EndpointState is a word for an endpoint.
type EndpointState string

// Words are how the state is shown; assets/views.js has the same.
func (s EndpointState) Words() string {
	switch s {
	case EndpointOutlier:
		return "stalled or failing"
	case EndpointDoubted:
		return "report doubted"
	case EndpointProbed:
		return "tried again"
	case EndpointUnread:
		return "metrics unread"
	case EndpointWarming:
		return "warming up"
	case EndpointAboveLevel: // as healthy as any: it gets its share again in a moment
		return string(EndpointOK)
	case "":
		return "–"
	}
	return string(s)
}

// The states of an endpoint. Where several hold, the first one counts.
const (
	EndpointDrained    EndpointState = "drained"     // by an operator
	EndpointOutlier    EndpointState = "outlier"     // it stalls or fails, and is flagged
	EndpointAsleep     EndpointState = "asleep"      // its engine sleeps
	EndpointDoubted    EndpointState = "doubted"     // its report stands still
	EndpointOverloaded EndpointState = "overloaded"  // its queue or memory is full, and it is flagged
	EndpointProbed     EndpointState = "probed"      // an outlier that is tried with few requests
	EndpointBlind      EndpointState = "blind"       // no usable report: it counts as a median endpoint
	EndpointUnused     EndpointState = "unused"      // the Envoys send it nothing
	EndpointUnread     EndpointState = "unread"      // its metrics page fails; the Envoys' counts are used
	EndpointLate       EndpointState = "late"        // its report is going stale
	EndpointWarming    EndpointState = "warming"     // new: its capacity grows
	EndpointAboveLevel EndpointState = "above_level" // fuller than the level: gets the floor
	EndpointOK         EndpointState = "ok"          // none of these
)

// EndpointStates are all of them, in that order.
func EndpointStates() []EndpointState {
	return []EndpointState{EndpointDrained, EndpointOutlier, EndpointAsleep, EndpointDoubted, EndpointOverloaded,
		EndpointProbed, EndpointBlind, EndpointUnused, EndpointUnread, EndpointLate, EndpointWarming,
		EndpointAboveLevel, EndpointOK}
}

// FirstToken is the time to the first token of the requests of about the last minute, by the engine's own histogram.
// The mean is exact; the p99 lies between Low and High, the bounds of its bucket. High is unknown for the last bucket,
// which has none.
type FirstToken struct {
	FirstTokenMean    Number `json:"first_token_mean_seconds"`     // time to the first token, of about the last minute
	FirstTokenP99     Number `json:"first_token_p99_seconds"`      // interpolated in its bucket
	FirstTokenP99Low  Number `json:"first_token_p99_low_seconds"`  // lower bound of that bucket
	FirstTokenP99High Number `json:"first_token_p99_high_seconds"` // upper bound of that bucket
}

// A ServedSource is what counts the requests that were served.
type ServedSource string

// The sources of served shares.
const (
	ServedBegun     ServedSource = "begun"     // by the Envoys' reports
	ServedCompleted ServedSource = "completed" // by the servers' own counters
)

// Served is what became of the traffic, as opposed to what was decided.
type Served struct {
	Source      ServedSource `json:"source"`
	Requests10s Number       `json:"requests_10s"`
	Requests1m  Number       `json:"requests_1m"`
	Hashed1m    Number       `json:"hashed_1m"`  // of these, sent by a hash
	VsDecided   Number       `json:"vs_decided"` // part of the others that went elsewhere than decided
	Noise       Number       `json:"noise"`      // what `vs_decided` would be by chance
}

// Use is how much of a pool's capacity is in use.
type Use struct {
	CapacityUsed Number   `json:"capacity_used"`      // arriving work divided by what the pool can do
	UsedMean     Number   `json:"capacity_used_5m"`   // mean of it over five minutes; unknown before
	Estimate     bool     `json:"estimate"`           // some endpoint was never seen busy
	ToSpare      Number   `json:"endpoints_to_spare"` // largest endpoints that can fail before the rest is full
	IfLost       []IfLost `json:"if_lost"`            // `capacity_used` without the largest endpoints
}

// IfLost is the use of a pool without its largest endpoints.
type IfLost struct {
	Endpoints    int    `json:"endpoints"` // lost, the largest first
	CapacityUsed Number `json:"capacity_used"`
}
