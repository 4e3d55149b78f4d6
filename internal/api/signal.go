package api

import (
	"cmp"
	"maps"
	"time"
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
	// `ok`, `silent` (its counts are not used any more) or `unknown` (it never reported)
	State SignalState `json:"state"`
	// `events` (each request as it begins and ends), `batched` or `reports` (load reports only)
	Mode SignalMode `json:"mode"`

	RequestRate  Number `json:"request_rate"`  // requests per second that it begins, smoothed
	OpenRequests Number `json:"open_requests"` // requests that it has in flight, to all endpoints
	Streams      int    `json:"streams"`       // open streams of its access log, one for each worker thread
	// processes that report load under this node id: 1, or 2 during a hot restart
	ReportStreams int     `json:"report_streams"`
	Entries       Entries `json:"entries"` // what became of the entries of its access log

	LastEntry  Time `json:"last_entry"`  // time of its latest access log entry
	LastReport Time `json:"last_report"` // when its load was last reported
	// time between two load reports that Steelyard asks for
	ReportIntervalSeconds Number `json:"report_interval_seconds"`

	Runtime Runtime `json:"runtime"` // whether it follows the mode that Steelyard sets

	// Filled in by the handler.

	LastEntryAgeSeconds  Number `json:"last_entry_age_seconds"`  // age of `last_entry`
	LastReportAgeSeconds Number `json:"last_report_age_seconds"` // age of `last_report`
}

// Counted are the entries that moved a count.
func Counted(e Entries) uint64 {
	return e.Received - min(e.Received, e.Ignored+e.Unpaired)
}

// SignalTotals are sums over all Envoys since the start of the process, also those that
// have left. Its counters never decrease.
type SignalTotals struct {
	AccessLog   bool    `json:"access_log"`   // access logs are accepted
	LoadReports bool    `json:"load_reports"` // load reports are accepted
	Entries     Entries `json:"entries"`      // of all Envoys, also Envoys that have left
	Reports     uint64  `json:"reports"`      // load reports received

	Envoys map[SignalMode]int `json:"envoys"` // Envoys that ever reported, by mode
	Silent int                `json:"silent"` // Envoys whose counts are not used because they stopped reporting

	// time between two load reports, by what counts the requests
	ReportIntervalsSeconds map[string]Number `json:"report_intervals_seconds"`

	Streams map[string]SignalStreams `json:"streams"` // streams over which Envoys report, by service
}

// Complete works out what follows from the rest.
func (s Signals) Complete(now time.Time) Signals {
	s.State = cmp.Or(s.State, SignalUnknown)
	s.LastEntryAgeSeconds = s.LastEntry.Age(now)
	s.LastReportAgeSeconds = s.LastReport.Age(now)
	return s
}

// Complete gives every mode a number, and has lists that are empty and not null.
func (t SignalTotals) Complete() SignalTotals {
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
