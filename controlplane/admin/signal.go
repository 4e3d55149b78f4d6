package admin

import (
	"cmp"
	"maps"
	"time"

	"steelyard/controlplane/view"
	"steelyard/internal/stat"
)

// SignalState is whether an Envoy's own counts of its requests are used.
type SignalState string

// The states of an Envoy's signals.
const (
	SignalOK      SignalState = "ok"      // its counts are used
	SignalSilent  SignalState = "silent"  // it has not reported for too long: its counts are no longer used
	SignalUnknown SignalState = "unknown" // it never reported: it has neither an access log nor load reports configured
)

// SignalMode is how an Envoy reports its requests.
type SignalMode string

// The modes of an Envoy's signals, in the order that a rising rate of requests goes
// through. An Envoy without an access log, or without a request yet, is in the last.
const (
	ModeEvents  SignalMode = "events"  // every entry of its access log as it happens
	ModeBatched SignalMode = "batched" // many entries at a time
	ModeReports SignalMode = "reports" // load reports only
)

// Signals are the reports of one Envoy, identified by node id and remote IP, about its own requests. The zero value is
// that of an Envoy that reports nothing, or of a process that takes no reports.
//
// The implementation of Source fills it for each client from the ledger's status of the Envoy
// (the same node id, the client's address without its port), and Runtime from the stream of
// runtime values; an Envoy that is not in the ledger keeps the zero value.
type Signals struct {
	State SignalState `json:"state"` // empty reads unknown
	Mode  SignalMode  `json:"mode"`  // empty: none yet

	RequestRate  view.Number `json:"request_rate"`  // requests per second that it starts, smoothed
	OpenRequests view.Number `json:"open_requests"` // that it has in flight to all endpoints
	Streams      int         `json:"streams"`       // open streams of its access log
	// ReportStreams are processes that report load: one, the two of a hot restart, or those of several
	// Envoys that share a node id behind one address. They add up.
	ReportStreams int          `json:"report_streams"`
	Entries       stat.Entries `json:"entries"`

	LastEntry             view.Time   `json:"last_entry"`  // of its access log
	LastReport            view.Time   `json:"last_report"` // of its load
	ReportIntervalSeconds view.Number `json:"report_interval_seconds"`

	Runtime stat.Runtime `json:"runtime"`

	// Filled in by the handler.
	LastEntryAgeSeconds  view.Number `json:"last_entry_age_seconds"`
	LastReportAgeSeconds view.Number `json:"last_report_age_seconds"`
}

// counted are the entries that moved a count.
func counted(e stat.Entries) uint64 {
	return e.Received - min(e.Received, e.Ignored+e.Unpaired)
}

// SignalTotals are sums over all Envoys since the start of the process, also those that
// have left. Its counters never decrease.
type SignalTotals struct {
	AccessLog   bool         `json:"access_log"`   // access logs are accepted
	LoadReports bool         `json:"load_reports"` // load reports are accepted
	Entries     stat.Entries `json:"entries"`
	Reports     uint64       `json:"reports"` // load reports received

	// Envoys counts the Envoys that ever reported, by mode. A mode without Envoys may be left out.
	Envoys map[SignalMode]int `json:"envoys"`
	Silent int                `json:"silent"` // of them, those whose counts are not used

	// ReportIntervalsSeconds are the intervals that Envoys are asked to report in now, by
	// the source that counts their requests.
	ReportIntervalsSeconds map[string]view.Number `json:"report_intervals_seconds"`

	// Streams are those over which Envoys report, by source.
	Streams map[string]stat.SignalStreams `json:"streams"`
}

// complete works out what follows from the rest.
func (s Signals) complete(now time.Time) Signals {
	s.State = cmp.Or(s.State, SignalUnknown)
	s.LastEntryAgeSeconds = s.LastEntry.Age(now)
	s.LastReportAgeSeconds = s.LastReport.Age(now)
	return s
}

// complete gives every mode a number, and has lists that are empty and not null.
func (t SignalTotals) complete() SignalTotals {
	envoys := map[SignalMode]int{ModeEvents: 0, ModeBatched: 0, ModeReports: 0}
	maps.Copy(envoys, t.Envoys)
	t.Envoys = envoys
	if t.ReportIntervalsSeconds == nil {
		t.ReportIntervalsSeconds = map[string]view.Number{}
	}
	if t.Streams == nil {
		t.Streams = map[string]stat.SignalStreams{}
	}
	return t
}
