package view

// A State is that of a cluster, or of the process: the worst of its incidents.
type State string

// The states, from good to bad.
const (
	StateOK      State = "ok"
	StateWarning State = "warning"
	StateError   State = "error"
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
	case EndpointAboveLevel:
		return "above the level"
	case "":
		return "–"
	}
	return string(s)
}

// The states of an endpoint. Where several hold, the first one counts.
const (
	EndpointOutlier    EndpointState = "outlier"     // flagged, because it stalls or fails
	EndpointAsleep     EndpointState = "asleep"      // flagged, because its engine sleeps and takes no requests
	EndpointDoubted    EndpointState = "doubted"     // its report stands still, and so does all else
	EndpointOverloaded EndpointState = "overloaded"  // flagged, because of its queue or its memory
	EndpointProbed     EndpointState = "probed"      // was an outlier, and is tried with few requests
	EndpointBlind      EndpointState = "blind"       // no usable report: it is treated as a median endpoint
	EndpointUnused     EndpointState = "unused"      // the Envoys send it nothing
	EndpointUnread     EndpointState = "unread"      // its metrics page fails; the Envoys' counts are used instead
	EndpointLate       EndpointState = "late"        // its report is going stale
	EndpointWarming    EndpointState = "warming"     // new: trusted with a part of its capacity
	EndpointAboveLevel EndpointState = "above_level" // fuller than the level: gets the floor until it has caught up
	EndpointOK         EndpointState = "ok"
)

// EndpointStates are all of them, in that order.
func EndpointStates() []EndpointState {
	return []EndpointState{EndpointOutlier, EndpointAsleep, EndpointDoubted, EndpointOverloaded, EndpointProbed,
		EndpointBlind, EndpointUnused, EndpointUnread, EndpointLate, EndpointWarming, EndpointAboveLevel, EndpointOK}
}

// FirstToken is the time to the first token of the requests of about the last minute, by the engine's own histogram.
// The mean is exact; the p99 lies between Low and High, the bounds of its bucket. High is unknown for the last bucket,
// which has none.
type FirstToken struct {
	FirstTokenMean    Number `json:"first_token_mean_seconds"`
	FirstTokenP99     Number `json:"first_token_p99_seconds"`
	FirstTokenP99Low  Number `json:"first_token_p99_low_seconds"`
	FirstTokenP99High Number `json:"first_token_p99_high_seconds"`
}

// A ServedSource is what counts the requests that were served.
type ServedSource string

// The sources of served shares.
const (
	// ServedBegun are requests that the Envoys sent, by their access logs and load reports.
	ServedBegun ServedSource = "begun"
	// ServedCompleted are requests that the servers completed, by their own counters, or by the rate that follows from
	// their reports: they miss what was sent and has not ended.
	ServedCompleted ServedSource = "completed"
)

// Served is what became of the traffic, as opposed to what was decided.
type Served struct {
	Source      ServedSource `json:"source"` // empty: nothing counts them
	Requests10s Number       `json:"requests_10s"`
	Requests1m  Number       `json:"requests_1m"`
	Hashed1m    Number       `json:"hashed_1m"` // of Requests1m, those whose endpoint a hash chose (affinity)
	// VsDecided is the part of the other requests of the last minute, 0 to 1, that went elsewhere than decided: half of
	// the sum of all differences between served share and the mean of the decided ones. Noise is what it would be, in
	// the mean, if each request were drawn at random by the decided shares.
	VsDecided Number `json:"vs_decided"`
	Noise     Number `json:"noise"`
}

// Use is how much of a pool's capacity is in use.
type Use struct {
	// CapacityUsed is the utilization: offered load over capacity. Above 1, queues grow.
	CapacityUsed Number `json:"capacity_used"`
	// Estimate is set until each endpoint was seen busy: what it can do is then taken from the others.
	Estimate bool `json:"estimate"`
	// ToSpare is how many endpoints, the largest first, can fail before the rest exceed capacity.
	ToSpare Number   `json:"endpoints_to_spare"`
	IfLost  []IfLost `json:"if_lost"`
}

// IfLost is the use of a pool without its largest endpoints.
type IfLost struct {
	Endpoints    int    `json:"endpoints"` // lost
	CapacityUsed Number `json:"capacity_used"`
}
