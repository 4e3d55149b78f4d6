package stat

// A Bound is the use of a limit, and what was refused because of it.
type Bound struct {
	Used          int    `json:"used"`
	Limit         int    `json:"limit"`
	Refused       uint64 `json:"refused"` // because the limit was reached, since the start
	LastRefused   Time   `json:"last_refused"`
	Displaced     uint64 `json:"displaced"` // open ones that were closed to make room for new ones, since the start
	LastDisplaced Time   `json:"last_displaced"`
}

// A RefusedHandshake sums up the TLS handshakes on the xDS port that failed for one reason.
type RefusedHandshake struct {
	Reason    string `json:"reason"`
	Count     uint64 `json:"count"` // since the start
	LastAt    Time   `json:"last_at"`
	LastPeer  string `json:"last_peer"`
	LastError string `json:"last_error"`
}

// DeniedClients counts what the rules on clients denied of one kind.
type DeniedClients struct {
	Kind        string `json:"kind"`
	Count       uint64 `json:"count"` // since the start
	LastAt      Time   `json:"last_at"`
	LastClient  string `json:"last_client"` // the names in its certificate
	LastPeer    string `json:"last_peer"`
	LastCluster string `json:"last_cluster"` // empty of kind stream
}

// A Picker is a program that follows the loads, by a stream of its own.
type Picker struct {
	Name     string   `json:"name"` // as it names itself, clipped
	Address  string   `json:"address"`
	Clusters []string `json:"clusters"` // that it asks for; empty: all
	Since    Time     `json:"since"`
}

// SharedPrompts count the learned prompts that pickers send each other through this process, since the start.
type SharedPrompts struct {
	Sent uint64 `json:"sent"` // each to each other picker of its cluster
	// LeftOut is those of a picker that learns too much, and those that another one could not be sent.
	LeftOut uint64 `json:"left_out"`
}

// Entries count access log entries by result, all at one time. They never decrease.
type Entries struct {
	Received   uint64 `json:"received"`   // all of them
	Ignored    uint64 `json:"ignored"`    // of addresses or clusters that the Envoy does not watch
	Unpaired   uint64 `json:"unpaired"`   // ends of requests whose start was not seen
	Reconciled uint64 `json:"reconciled"` // requests that load reports corrected: removed as lost, or added as unseen
}

// SignalStreams are the streams of one of the services to which Envoys report their requests.
type SignalStreams struct {
	Open    int    `json:"open"`
	Refused uint64 `json:"refused"` // without a node id, or more than an Envoy may have
	Broken  uint64 `json:"broken"`  // ended because of a message that could not be read
}

// A DisputeKind is what a dispute is about.
type DisputeKind string

// The kinds of disputes.
const (
	DisputeInFlight DisputeKind = "in_flight" // requests in progress, which the endpoints' own metrics contradict
	DisputeIssued   DisputeKind = "issued"    // more requests than an Envoy can have sent since its report before
	DisputeFailures DisputeKind = "failures"  // failures of endpoints that answer other Envoys
)

// Tracing is what became of the traces of decisions, since tracing was configured. The zero value is that of a process
// that makes none.
type Tracing struct {
	Enabled  bool   `json:"enabled"`
	Skipped  uint64 `json:"skipped"`  // pushes that were drawn, and are beyond the bounds
	Exported uint64 `json:"exported"` // spans
	Failed   uint64 `json:"failed"`   // spans that are lost
	Error    string `json:"error"`    // of the latest export; empty when it succeeded
	ErrorAt  Time   `json:"error_at"`
}

// A LogStatus is the state of the process's log.
type LogStatus struct {
	DroppedLines uint64 `json:"dropped_lines"` // since the start; never goes back
	LastDrop     Time   `json:"last_drop"`
	// StalledSeconds is how long the current write has taken; unknown while nothing is written.
	StalledSeconds Number `json:"stalled_seconds"`
	Error          string `json:"error"` // of the latest write; empty when it went well
}

// A Histogram has the distribution of a time over about the last minute. It is immutable.
type Histogram struct {
	Bounds []float64 // upper, in seconds, ascending; the last may be infinite
	Counts []float64 // of requests, in each bucket
	Sum    float64   // seconds
}
