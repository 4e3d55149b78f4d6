package api

// A Bound is the use of a limit, and what was refused because of it.
type Bound struct {
	Used          int    `json:"used"`           // now
	Limit         int    `json:"limit"`          // at most
	Refused       uint64 `json:"refused"`        // new ones, since the start
	LastRefused   Time   `json:"last_refused"`   // when the latest was refused
	Displaced     uint64 `json:"displaced"`      // open ones closed to make room, since the start
	LastDisplaced Time   `json:"last_displaced"` // when the latest was displaced
}

// A RefusedHandshake sums up the TLS handshakes on the xDS port that failed for one reason.
type RefusedHandshake struct {
	// `expired`, `unknown_authority`, `bad_certificate`, `no_certificate`, `refused_by_client`, `not_tls`, `protocol`,
	// `closed`, `timeout` or `other`
	Reason    string `json:"reason"`
	Count     uint64 `json:"count"`      // since the start
	LastAt    Time   `json:"last_at"`    // when the latest failed
	LastPeer  string `json:"last_peer"`  // remote address of the latest
	LastError string `json:"last_error"` // what went wrong with the latest
}

// DeniedClients counts what the rules on clients denied of one kind.
type DeniedClients struct {
	// what was denied: `stream` (no rule names the client), `watch` or `report` (another's cluster)
	Kind        string `json:"kind"`
	Count       uint64 `json:"count"`        // since the start
	LastAt      Time   `json:"last_at"`      // when the latest was denied
	LastClient  string `json:"last_client"`  // names in its certificate
	LastPeer    string `json:"last_peer"`    // its address
	LastCluster string `json:"last_cluster"` // the cluster that it asked for
}

// A Picker is a program that follows the loads, by a stream of its own.
type Picker struct {
	Name     string   `json:"name"`     // as it names itself
	Address  string   `json:"address"`  // remote address of its connection
	Clusters []string `json:"clusters"` // that it follows; empty: all
	Since    Time     `json:"since"`    // when its stream began
}

// SharedPrompts count the learned prompts that pickers send each other through this process, since the start.
type SharedPrompts struct {
	Sent    uint64 `json:"sent"`     // to each other picker of the cluster
	LeftOut uint64 `json:"left_out"` // not sent: more than a picker may send, or another one reads
}

// Entries count access log entries by result, all at one time. They never decrease.
type Entries struct {
	Received   uint64 `json:"received"`   // all of them
	Ignored    uint64 `json:"ignored"`    // of addresses or clusters that the Envoy does not watch
	Unpaired   uint64 `json:"unpaired"`   // ends of requests whose beginning was not seen
	Reconciled uint64 `json:"reconciled"` // requests that load reports removed or added
}

// SignalStreams are the streams of one of the services to which Envoys report their requests.
type SignalStreams struct {
	Open    int    `json:"open"`    // open streams
	Refused uint64 `json:"refused"` // without a node id, or more than an Envoy may have
	Broken  uint64 `json:"broken"`  // ended because of an unreadable message
}

// A DisputeKind is what a dispute is about.
type DisputeKind string

// The kinds of disputes.
const (
	DisputeInFlight DisputeKind = "in_flight" // requests in progress, which the endpoints' own metrics contradict
	DisputeIssued   DisputeKind = "issued"    // more requests than an Envoy can have sent since its report before
	DisputeFailures DisputeKind = "failures"  // failures of endpoints that answer other Envoys
)

// A LogStatus is the state of the process's log.
type LogStatus struct {
	DroppedLines   uint64 `json:"dropped_lines"`   // not written since the start
	LastDrop       Time   `json:"last_drop"`       // when the latest was dropped
	StalledSeconds Number `json:"stalled_seconds"` // how long the current write has taken; null: none
	Error          string `json:"error"`           // why the latest write failed
}

// A Histogram has the distribution of a time over about the last minute. It is immutable.
type Histogram struct {
	Bounds []float64 // upper, in seconds, ascending; the last may be infinite
	Counts []float64 // of requests, in each bucket
	Sum    float64   // seconds
}
