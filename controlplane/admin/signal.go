package admin

import (
	"cmp"
	"maps"
	"time"
)

// SignalState says whether an Envoy's own counts of its requests are used.
type SignalState string

// The states of an Envoy's signals.
const (
	SignalOK      SignalState = "ok"      // its counts are used
	SignalSilent  SignalState = "silent"  // it was heard of, then for too long not: its counts are no longer used
	SignalUnknown SignalState = "unknown" // it never told of a request: it has neither an access log nor load reports to here
)

// SignalMode is how an Envoy tells of its requests.
type SignalMode string

// The modes of an Envoy's signals, in the order in which a rising rate of requests leads
// through them. An Envoy without an access log, or without a request yet, is in the last.
const (
	ModeEvents  SignalMode = "events"  // every entry of its access log as it happens
	ModeBatched SignalMode = "batched" // many entries at a time
	ModeReports SignalMode = "reports" // load reports alone
)

// Signals are what one Envoy, told apart by node id and remote IP, tells of its own
// requests. The zero value is that of an Envoy that tells nothing, or of a process that
// takes nothing in.
//
// Whoever implements Source fills it for each client from the ledger's status of the Envoy
// (the same node id, the client's address without its port), and Runtime from
// the stream of runtime values; an Envoy that the ledger does not know keeps the zero value.
type Signals struct {
	State SignalState `json:"state"` // empty reads unknown
	Mode  SignalMode  `json:"mode"`  // empty: none yet

	RequestRate  Number `json:"request_rate"`  // requests per second that it begins, smoothed
	OpenRequests Number `json:"open_requests"` // that it has in flight to all endpoints
	Streams      int    `json:"streams"`       // open streams of its access log
	// ReportStreams are processes that report load: one, the two of a hot restart, or those of several
	// Envoys that share a node id behind one address. They add up.
	ReportStreams int     `json:"report_streams"`
	Entries       Entries `json:"entries"`

	LastEntry             Time   `json:"last_entry"`  // of its access log
	LastReport            Time   `json:"last_report"` // of its load
	ReportIntervalSeconds Number `json:"report_interval_seconds"`

	Runtime Runtime `json:"runtime"`

	// Filled in by the handler.
	LastEntryAgeSeconds  Number `json:"last_entry_age_seconds"`
	LastReportAgeSeconds Number `json:"last_report_age_seconds"`
}

// Entries count what became of entries of access logs, all as of one moment. None of
// them goes back.
type Entries struct {
	Received   uint64 `json:"received"`   // all of them
	Ignored    uint64 `json:"ignored"`    // of addresses or clusters that the Envoy does not watch
	Unpaired   uint64 `json:"unpaired"`   // ends of requests whose beginning was not seen
	Reconciled uint64 `json:"reconciled"` // requests that load reports put right: dropped as lost, or added as unseen
}

// counted are the entries that moved a count.
func (e Entries) counted() uint64 {
	return e.Received - min(e.Received, e.Ignored+e.Unpaired)
}

// Runtime says whether an Envoy follows the mode that it is given over its stream of runtime
// values.
type Runtime struct {
	Subscribed bool   `json:"subscribed"` // it asks for them; where it does not, its own configuration holds
	InSync     bool   `json:"in_sync"`    // it accepted the latest
	Nack       string `json:"nack"`       // why it refused the latest, in its words; empty when it did not
}

// SignalTotals are sums over all Envoys since the start of the process, also those that
// have left. None of its counters goes back.
type SignalTotals struct {
	AccessLog   bool    `json:"access_log"`   // access logs are taken in
	LoadReports bool    `json:"load_reports"` // load reports are taken in
	Entries     Entries `json:"entries"`
	Reports     uint64  `json:"reports"` // load reports received

	// Envoys counts the Envoys that were heard of, by mode. A mode that no Envoy is in
	// may be left out.
	Envoys map[SignalMode]int `json:"envoys"`
	Silent int                `json:"silent"` // of them, those whose counts are not used

	// ReportIntervalsSeconds are the intervals that Envoys are asked to report in now, by
	// the source that counts their requests.
	ReportIntervalsSeconds map[string]Number `json:"report_intervals_seconds"`

	// Streams are those over which Envoys tell, by source.
	Streams map[string]SignalStreams `json:"streams"`
}

// SignalStreams are the streams of one of the services that Envoys tell their requests to.
type SignalStreams struct {
	Open    int    `json:"open"`
	Refused uint64 `json:"refused"` // for want of a node id, or more than an Envoy may have
	Broken  uint64 `json:"broken"`  // ended because of a message that could not be read
}

// Reporting says which of the Envoys that watch a cluster a source hears from. It is filled
// for the sources SourceAccessLog and SourceLoadReports; a source with a Missing Envoy is
// SourcePartial; one that hears from none is SourceDown, SourceOff if it never did, and
// SourceIdle if there is nothing to hear.
type Reporting struct {
	Expected  Number   `json:"expected"`  // Envoys that watch the cluster; null for a source that is no Envoy
	Reporting Number   `json:"reporting"` // of them, those whose counts are used
	Idle      Number   `json:"idle"`      // of them, those that have nothing to tell: no request is known of
	Missing   []string `json:"missing"`   // node ids of the others, sorted, at most MaxMissing
}

// missing is how many Envoys do not report.
func (r Reporting) missing() Number {
	expected, known := r.Expected.Value()
	if !known {
		return Number{}
	}
	return Num(expected - r.Reporting.Or(0) - r.Idle.Or(0))
}

// A DisputeKind is what an Envoy says of endpoints against all others.
type DisputeKind string

// The kinds of disputes.
const (
	DisputeInFlight DisputeKind = "in_flight" // requests in progress, which the endpoints' own metrics deny
	DisputeFailures DisputeKind = "failures"  // failures, of endpoints that answer others
)

// A Dispute is what one Envoy says of endpoints, and all others do not find. It is not believed.
type Dispute struct {
	Kind      DisputeKind `json:"kind"`
	NodeID    string      `json:"node_id"`
	Host      string      `json:"host"`      // its remote IP address
	Endpoints []string    `json:"endpoints"` // that it is about, sorted
	Requests  Number      `json:"requests"`  // in progress there, as it says; unknown for failures
	Since     Time        `json:"since"`
}

// MaxMissing is how many Envoys that do not report are named.
const MaxMissing = 10

// Names of the sources that are Envoys.
const (
	SourceAccessLog   = "access_log"
	SourceLoadReports = "load_reports"
)

// complete works out what follows from the rest.
func (s Signals) complete(now time.Time) Signals {
	s.State = cmp.Or(s.State, SignalUnknown)
	s.LastEntryAgeSeconds = age(s.LastEntry, now)
	s.LastReportAgeSeconds = age(s.LastReport, now)
	return s
}

// complete gives every mode a number, and has lists that are empty and not null.
func (t SignalTotals) complete() SignalTotals {
	envoys := map[SignalMode]int{ModeEvents: 0, ModeBatched: 0, ModeReports: 0}
	maps.Copy(envoys, t.Envoys)
	t.Envoys = envoys
	if t.ReportIntervalsSeconds == nil {
		t.ReportIntervalsSeconds = map[string]Number{}
	}
	if t.Streams == nil {
		t.Streams = map[string]SignalStreams{}
	}
	return t
}
