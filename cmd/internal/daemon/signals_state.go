package daemon

import (
	"slices"
	"time"

	"steelyard/collectors/ledger"
	"steelyard/internal/api"
)

// A reportState is the state of a source's reports from one Envoy.
type reportState uint8

// logState returns the state of an Envoy's access log, and the time of its last information. An Envoy without traffic
// opens no log, and one in mode reports has none; their load reports show that, where they send any. An Envoy with
// traffic (by its load reports) and without a log lacks the lines in its configuration, or has lost the log.
func logState(e ledger.EnvoyStatus) (reportState, time.Time) {
	const traffic = 0.5 // requests per second
	last := later(e.LastEvent, e.LastReport)
	switch {
	case e.Silent:
		return missing, last
	case e.Streams == 0 && e.Mode != ledger.ModeReports && e.RequestRate > traffic:
		return missing, e.LastEvent
	case last.IsZero():
		return idle, last
	}
	return reporting, last
}

// loadReportState returns the state of an Envoy's load reports. They come without traffic, too.
func loadReportState(e ledger.EnvoyStatus) (reportState, time.Time) {
	if e.Silent || e.LastReport.IsZero() {
		return missing, e.LastReport
	}
	return reporting, e.LastReport
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// source summarizes how many of the watchers report to a source.
func source(name string, watchers []ledger.Envoy, known map[ledger.Envoy]ledger.EnvoyStatus,
	stateOf func(ledger.EnvoyStatus) (reportState, time.Time)) api.SourceStatus {
	out := api.SourceStatus{Name: name}
	var last time.Time
	var without []string
	count := make(map[reportState]int)
	for _, w := range watchers {
		state, at := stateOf(known[w])
		count[state]++
		if state == missing {
			without = append(without, w.NodeID)
		}
		last = later(last, at)
	}
	slices.Sort(without)
	out.LastSuccess = api.At(last)
	out.Envoys = api.Reporting{
		Expected: api.Num(float64(len(watchers))), Reporting: api.Num(float64(count[reporting])),
		Idle:    api.Num(float64(count[idle])),
		Missing: without[:min(len(without), api.MaxMissing)],
	}
	switch {
	case count[missing] == 0 && count[reporting] == 0 && count[idle] > 0:
		out.State = api.SourceIdle
	case count[missing] == 0:
		out.State = api.SourceOK
	case count[reporting] > 0:
		out.State = api.SourcePartial
	case last.IsZero():
		out.State = api.SourceOff
	default:
		out.State = api.SourceDown
	}
	return out
}

// clientSignals returns the signals of each connected Envoy.
func (s *signals) clientSignals(now time.Time) map[ledger.Envoy]api.Signals {
	out := make(map[ledger.Envoy]api.Signals)
	for _, e := range s.ledger.Envoys(now) {
		out[e.Envoy] = viewSignals(e)
	}
	for _, r := range s.streams.RuntimeClients() {
		v := out[r.ID]
		v.Runtime = r.Runtime
		out[r.ID] = v
	}
	return out
}

func viewSignals(e ledger.EnvoyStatus) api.Signals {
	v := api.Signals{
		State: api.SignalOK, Mode: modeOf(e), ReportStreams: e.ReportStreams,
		RequestRate: api.Num(e.RequestRate), OpenRequests: api.Num(float64(e.OpenRequests)), Streams: e.Streams,
		Entries:   e.Entries,
		LastEntry: api.At(e.LastEvent), LastReport: api.At(e.LastReport),
	}
	if e.Silent {
		v.State = api.SignalSilent
	}
	if e.ReportInterval > 0 {
		v.ReportIntervalSeconds = api.Seconds(e.ReportInterval)
	}
	return v
}

// modeOf returns how an Envoy reports its requests: in the mode that was set, where it has an access log, and otherwise
// by its load reports.
func modeOf(e ledger.EnvoyStatus) api.SignalMode {
	switch {
	case e.Streams > 0:
		return api.SignalMode(e.Mode.String())
	case !e.LastReport.IsZero():
		return api.ModeReports
	}
	return ""
}

// totals sums up the signals of all Envoys.
func (s *signals) totals(now time.Time) api.SignalTotals {
	t := api.SignalTotals{
		AccessLog: s.accessLogs != nil, LoadReports: s.loadReports != nil,
		Envoys: make(map[api.SignalMode]int), Streams: make(map[string]api.SignalStreams),
	}
	for _, e := range s.ledger.Envoys(now) {
		if mode := modeOf(e); mode != "" {
			t.Envoys[mode]++
		}
		if e.Silent {
			t.Silent++
		}
	}
	t.Entries = s.ledger.Totals()
	if s.loadReports != nil {
		stats := s.loadReports.Stats()
		t.Reports = stats.Reports
		t.Streams[api.SourceLoadReports] = stats.SignalStreams
		withLog, reportsOnly := s.reportIntervals(s.ledger.Reporters())
		t.ReportIntervalsSeconds = map[string]api.Number{api.SourceLoadReports: api.Seconds(reportsOnly)}
		if s.accessLogs != nil {
			t.ReportIntervalsSeconds[api.SourceAccessLog] = api.Seconds(withLog)
		}
	}
	if s.accessLogs != nil {
		t.Streams[api.SourceAccessLog] = s.accessLogs.StreamStats()
	}
	return t
}

const (
	reporting reportState = iota
	idle                  // it has nothing to report
	missing               // it does not report, although it has requests
)
