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
	SignalSilent  SignalState = "silent"  // no reports: its counts are not used any more
	SignalUnknown SignalState = "unknown" // it never reported
)

// SignalMode is how an Envoy reports its requests.
type SignalMode string

// The modes of an Envoy's signals, in the order that a rising rate of requests goes
// through. An Envoy without an access log, or without a request yet, is in the last.
const (
	ModeEvents  SignalMode = "events"  // each request as it begins and ends
	ModeBatched SignalMode = "batched" // many at a time
	ModeReports SignalMode = "reports" // load reports only
)

// Signals are the reports of one Envoy, identified by node id and remote IP, about its own requests. The zero value is
// that of an Envoy that reports nothing, or of a process that takes no reports.
//
// The implementation of Source fills it for each client from the ledger's status of the Envoy
// (the same node id, the client's address without its port), and Runtime from the stream of
// runtime values; an Envoy that is not in the ledger keeps the zero value.
type Signals struct {
	State SignalState `json:"state"`
	Mode  SignalMode  `json:"mode"`

	RequestRate  Number `json:"request_rate"`  // per second, smoothed
	OpenRequests Number `json:"open_requests"` // that it has in flight, to all endpoints
	Streams      int    `json:"streams"`       // of its access log, one for each worker thread
	// processes that report load under this node id: 2 during a hot restart
	ReportStreams int     `json:"report_streams"`
	Entries       Entries `json:"entries"` // of its access log

	LastEntry             Time   `json:"last_entry"`
	LastReport            Time   `json:"last_report"`
	ReportIntervalSeconds Number `json:"report_interval_seconds"` // that Steelyard asks for

	Runtime Runtime `json:"runtime"` // whether it follows the mode that Steelyard sets

	// Filled in by the handler.

	LastEntryAgeSeconds  Number `json:"last_entry_age_seconds"`
	LastReportAgeSeconds Number `json:"last_report_age_seconds"`
}

// Counted are the entries that moved a count.
func Counted(e Entries) uint64 {
	return e.Received - min(e.Received, e.Ignored+e.Unpaired)
}

// SignalTotals are sums over all Envoys since the start of the process, also those that
// have left. Its counters never decrease.
type SignalTotals struct {
	AccessLog   bool    `json:"access_log"`   // they are accepted
	LoadReports bool    `json:"load_reports"` // they are accepted
	Entries     Entries `json:"entries"`      // also of Envoys that have left
	Reports     uint64  `json:"reports"`      // load reports received

	Envoys map[SignalMode]int `json:"envoys"` // that ever reported, by mode
	Silent int                `json:"silent"` // whose counts are not used because they stopped reporting

	ReportIntervalsSeconds map[string]Number `json:"report_intervals_seconds"` // by what counts the requests

	Streams map[string]SignalStreams `json:"streams"` // by service
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
