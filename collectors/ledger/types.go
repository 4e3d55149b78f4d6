package ledger

import (
	"time"

	"steelyard/internal/api"
	"steelyard/internal/envoyid"
	"steelyard/weighting/flight"
	"steelyard/weighting/push"
)

// An Envoy is the sender of a stream.
type Envoy = envoyid.ID

// A Mode is the way in which an Envoy reports its requests.
type Mode uint8

// The modes, from the freshest to the cheapest.
const (
	ModeEvents  Mode = iota // an access log entry at each beginning and end, sent at once
	ModeBatched             // the same entries, buffered
	ModeReports             // load reports only
)

func (m Mode) String() string {
	switch m {
	case ModeEvents:
		return "events"
	case ModeBatched:
		return "batched"
	case ModeReports:
		return "reports"
	}
	return "unknown"
}

// An Outcome describes how a request to an endpoint ended.
type Outcome struct {
	Status        int           // the endpoint's own; 0 if it sent none
	GRPCStatus    int           // of a gRPC answer; 0 if it is OK, or there is none
	Latency       time.Duration // from the request's first byte to the answer's last; 0 unknown
	Bytes         uint64        // received for the request, including those before its beginning
	ConnectFailed bool          // there was no connection, and so no beginning
	Reset         bool          // the endpoint reset the request or lost its connection
}

// An Event is one access log entry.
type Event struct {
	Ended       bool   // the request is over; otherwise it got its connection
	ID, Address []byte // read during the call only
	Cluster     []byte // the Envoy's name for it, read during the call only; empty: not known
	Body        Size   // of the request, whether it begins or ends
	Outcome            // of a request that ended; of a beginning, Bytes are those received before it

	hashed bool // a hash chose the endpoint; set by the ledger
}

// A Size is a number of bytes that may be unknown, which is not zero.
type Size = flight.Size

// A ClusterLoad is the part of a load report about one cluster of an Envoy.
type ClusterLoad struct {
	Name      string // in the Envoy's configuration
	Cluster   string // its name in EDS; that of the configuration where it has none
	Dropped   uint64 // requests dropped by drop_overloads since the last report
	Endpoints []EndpointLoad
}

// An EndpointLoad is the part of a load report about one endpoint. All numbers but InProgress count since the last
// report.
type EndpointLoad struct {
	Address    string // IP:port
	InProgress uint64
	Issued     uint64
	Succeeded  uint64 // answered, including those with a 4xx
	// Errors are 5xx, gRPC statuses that correspond to one, missing answers, and Envoy's own timeouts and full circuit
	// breakers.
	Errors uint64
}

// A ClusterStatus describes which Envoys watch a cluster, and how they report.
type ClusterStatus struct {
	// Subscribers are Idle when no request began or ended for ten seconds, nor according to the last two reports of the
	// Envoys that are counted by them. While a watcher reports nothing, it may have requests, and the cluster is not
	// idle.
	push.Subscribers
	flight.Watchers
	// Dropped is the number of requests dropped by drop_overloads, cumulative.
	Dropped uint64
}

// An EnvoyStatus is the state of one Envoy. The counters are cumulative and
// start with its first stream.
type EnvoyStatus struct {
	Envoy        Envoy
	Mode         Mode
	Silent       bool
	RequestRate  float64 // requests per second
	OpenRequests int     // begun and not ended, by its access log

	api.Entries

	LastEvent, LastReport time.Time
	ReportInterval        time.Duration // as asked for; 0 without load reports
	Streams               int           // of its access log
	// ReportStreams are the processes that report load: two during a hot restart, and more than one also of
	// Envoys that share a node id behind one address.
	ReportStreams int
}

// Reporters counts the open streams of load reports of Envoys that watch a cluster, by whether a log shows the same
// requests. Other Envoys do not count: any client can invent them, and they would make these report less often.
type Reporters struct {
	WithAccessLog int // a log shows them, or the Envoy has no requests
	ReportsOnly   int // there are only the reports
}
