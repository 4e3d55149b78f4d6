package api

import "slices"

// A Bound is the use of a limit, and what was refused because of it.
type Bound struct {
	Used          int    `json:"used"`
	Limit         int    `json:"limit"`
	Refused       uint64 `json:"refused"` // new ones
	LastRefused   Time   `json:"last_refused"`
	Displaced     uint64 `json:"displaced"` // open ones closed to make room
	LastDisplaced Time   `json:"last_displaced"`
}

// A RefusedHandshake sums up the TLS handshakes on the xDS port that failed for one reason.
type RefusedHandshake struct {
	// `expired`, `unknown_authority`, `bad_certificate`, `no_certificate`, `refused_by_client`, `not_tls`,
	// `protocol`, `closed`, `timeout` or `other`
	Reason    string `json:"reason"`
	Count     uint64 `json:"count"`
	LastAt    Time   `json:"last_at"`
	LastPeer  string `json:"last_peer"`
	LastError string `json:"last_error"`
}

// DeniedClients counts what the rules on clients denied of one kind.
type DeniedClients struct {
	// `stream` (no rule names the client), `watch` or `report` (another's cluster)
	Kind        string `json:"kind"`
	Count       uint64 `json:"count"`
	LastAt      Time   `json:"last_at"`
	LastClient  string `json:"last_client"` // names in its certificate
	LastPeer    string `json:"last_peer"`
	LastCluster string `json:"last_cluster"` // that it asked for
}

// A Picker is a program that follows the loads, by a stream of its own.
type Picker struct {
	Name     string   `json:"name"` // as it names itself
	Address  string   `json:"address"`
	Clusters []string `json:"clusters"` // that it follows; empty: all
	Since    Time     `json:"since"`
}

// Follows reports whether a picker follows a cluster.
func (p Picker) Follows(cluster string) bool {
	return len(p.Clusters) == 0 || slices.Contains(p.Clusters, cluster)
}

// SharedPrompts count the learned prompts that pickers, or replicas, send each other, since the start.
type SharedPrompts struct {
	Sent    uint64 `json:"sent"`     // to each other picker of the cluster, or to the other replicas
	LeftOut uint64 `json:"left_out"` // not sent: more than one may send, or another one reads
}

// Entries count access log entries by result, all at one time. They never decrease.
type Entries struct {
	Received   uint64 `json:"received"`
	Ignored    uint64 `json:"ignored"`    // of addresses or clusters that the Envoy does not watch
	Unpaired   uint64 `json:"unpaired"`   // ends of requests whose beginning was not seen
	Reconciled uint64 `json:"reconciled"` // requests that load reports removed or added
}

// SignalStreams are the streams of one of the services to which Envoys report their requests.
type SignalStreams struct {
	Open    int    `json:"open"`
	Refused uint64 `json:"refused"` // without a node id, or more than an Envoy may have
	Broken  uint64 `json:"broken"`  // by an unreadable message
}

// A DisputeKind is what a dispute is about.
type DisputeKind string

// The kinds of disputes.
const (
	DisputeInFlight DisputeKind = "in_flight" // more than the endpoints' metrics show
	DisputeIssued   DisputeKind = "issued"    // more than an Envoy can have sent since its last report
	DisputeFailures DisputeKind = "failures"  // of endpoints that answer other Envoys
)

// A LogStatus is the state of the process's log.
type LogStatus struct {
	DroppedLines   uint64 `json:"dropped_lines"` // since the start
	LastDrop       Time   `json:"last_drop"`
	StalledSeconds Number `json:"stalled_seconds"` // of the current write; null: none
	Error          string `json:"error"`
}

// A Histogram has the distribution of a time over about the last minute. It is immutable.
type Histogram struct {
	Bounds []float64 // upper, in seconds, ascending; the last may be infinite
	Counts []float64 // of requests, in each bucket
	Sum    float64   // seconds
}
