package daemon

import (
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	"steelyard/collectors/accesslog"
	"steelyard/collectors/ledger"
	"steelyard/collectors/loadstats"
	"steelyard/controlplane"
	"steelyard/controlplane/admin"
	"steelyard/controlplane/config"
	"steelyard/controlplane/discovery"
	"steelyard/weighting"
	"steelyard/xds"
)

// signals is the way of what Envoys report of their own requests: in over the
// services on the xDS port, through the ledger, and out to the loops, which ask at
// every step. It also tells Envoys, over the runtime layer, how to report.
type signals struct {
	ledger      *ledger.Ledger
	streams     *xds.Server
	accessLogs  *accesslog.Server // nil where disabled
	loadReports *loadstats.Server // nil where disabled
	config      config.XDS
	readings    sync.Pool // of *[]ledger.Counts

	mu       sync.Mutex
	clusters map[string]bool // that have members
	watched  uint64          // generation of the watchers that the ledger knows
	modes    uint64          // generation of the modes that the Envoys were told
	told     map[ledger.Envoy]ledger.Mode
}

// newSignals makes the services that the configuration asks for. wake is called
// when a count of a cluster changed.
func newSignals(o Options, cfg config.XDS, streams *xds.Server, wake func(cluster string)) *signals {
	s := &signals{
		ledger: ledger.New(wake), streams: streams, config: cfg,
		readings: sync.Pool{New: func() any { return new([]ledger.Counts) }},
		clusters: make(map[string]bool), told: make(map[ledger.Envoy]ledger.Mode),
	}
	s.ledger.SetModeThresholds(cfg.AccessLog.BatchAbove, cfg.AccessLog.ReportsAbove)
	if !cfg.AccessLog.Disabled {
		s.accessLogs = accesslog.New(s.ledger, o.Log)
	}
	if !cfg.LoadReports.Disabled {
		s.loadReports = loadstats.New(s.ledger, loadstats.Options{Interval: s.reportInterval}, o.Log)
	}
	return s
}

func (s *signals) register(g *grpc.Server) {
	if s.accessLogs != nil {
		s.accessLogs.Register(g)
	}
	if s.loadReports != nil {
		s.loadReports.Register(g)
	}
}

// close ends the streams, which never end by themselves.
func (s *signals) close() {
	if s.accessLogs != nil {
		s.accessLogs.Close()
	}
	if s.loadReports != nil {
		s.loadReports.Close()
	}
}

// reportInterval is how often each Envoy reports its load.
func (s *signals) reportInterval() time.Duration {
	r := s.config.LoadReports
	return loadstats.Interval(s.loadReports.Stats().Envoys, s.accessLogs != nil, r.Interval, float64(r.Budget))
}

// setMembers tells the ledger which endpoints there are, by cluster.
func (s *signals) setMembers(members map[string][]discovery.Endpoint) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.clusters {
		if _, ok := members[name]; !ok {
			s.ledger.Forget(name)
			delete(s.clusters, name)
		}
	}
	for name, endpoints := range members {
		addresses := make([]string, len(endpoints))
		for i, e := range endpoints {
			addresses[i] = e.Address
		}
		s.ledger.SetMembers(name, addresses)
		s.clusters[name] = true
	}
	s.watched = 0
}

// follow keeps the ledger's watchers and the Envoys' modes up to date.
func (s *signals) follow() {
	s.mu.Lock()
	defer s.mu.Unlock()
	// A generation of the streams is never 0, so a new set of clusters is followed too.
	if now := s.streams.WatchGeneration() + 1; now != s.watched {
		s.watched = now
		for name := range s.clusters {
			s.ledger.SetWatchers(name, envoys(s.streams.Watchers(name)))
		}
	}
	if s.accessLogs != nil && s.ledger.ModeGeneration() != s.modes {
		s.tellModes()
	}
}

func envoys(watchers []xds.Watcher) []ledger.Envoy {
	out := make([]ledger.Envoy, len(watchers))
	for i, w := range watchers {
		out[i] = ledger.Envoy(w)
	}
	return out
}

// tellModes tells the Envoys whose mode changed how to send their access logs, and
// forgets those that have left.
func (s *signals) tellModes() {
	generation, modes := s.ledger.Modes()
	for e, mode := range modes {
		if s.told[e] != mode {
			s.streams.SetRuntime(xds.Watcher(e), runtimeOf(mode))
		}
	}
	for e := range s.told {
		if _, ok := modes[e]; !ok {
			s.streams.SetRuntime(xds.Watcher(e), nil)
		}
	}
	s.modes, s.told = generation, modes
}

// runtimeOf says which of an Envoy's two access loggers is on.
func runtimeOf(m ledger.Mode) map[string]float64 {
	switch m {
	case ledger.ModeBatched:
		return map[string]float64{xds.RuntimeImmediate: 0, xds.RuntimeBatched: 100}
	case ledger.ModeReports:
		return noLog()
	}
	return nil
}

func noLog() map[string]float64 {
	return map[string]float64{xds.RuntimeImmediate: 0, xds.RuntimeBatched: 0}
}

// normalRuntime is the layer of every Envoy that has not been told otherwise. Without
// the access log it switches both loggers off: an Envoy opens a stream that is refused
// again with every entry, which costs it half as much CPU again at 500 requests a second.
func normalRuntime(cfg config.XDS) map[string]float64 {
	if cfg.AccessLog.Disabled {
		return noLog()
	}
	return nil
}

// Counts are what the cluster's Envoys report, for its loop.
func (s *signals) Counts(cluster string, now time.Time, into []controlplane.ProxyCount) controlplane.ProxyCounts {
	s.follow()
	status := s.ledger.Cluster(cluster, now)
	c := controlplane.ProxyCounts{Subscribers: status.Watchers, Reporting: status.Events + status.Reports, Shared: status.Clusters}
	if s.loadReports != nil && c.Reporting > 0 {
		c.Dropped = weighting.Reading{Value: float64(status.Dropped), At: now}
	}
	c.Interval = status.Interval
	switch {
	case status.Events > 0:
		c.Source = admin.SourceAccessLog
	case status.Reports > 0:
		c.Source = admin.SourceLoadReports
	}
	counts := s.readings.Get().(*[]ledger.Counts)
	defer s.readings.Put(counts)
	*counts = s.ledger.Read(cluster, now, (*counts)[:0])
	c.Endpoints = slices.Grow(into[:0], len(*counts))
	for i := range *counts {
		e := &(*counts)[i]
		c.Endpoints = append(c.Endpoints, controlplane.ProxyCount{Address: e.Address, InFlight: e.InFlight, Exact: e.Exact, Report: e.Proxies})
	}
	return c
}

// Sources are the states of what the cluster's Envoys report, for people.
func (s *signals) Sources(cluster string, now time.Time) []admin.SourceStatus {
	known := make(map[ledger.Envoy]ledger.EnvoyStatus)
	for _, e := range s.ledger.Envoys(now) {
		known[e.Envoy] = e
	}
	watchers := envoys(s.streams.Watchers(cluster))
	var out []admin.SourceStatus
	if s.accessLogs != nil {
		out = append(out, source(admin.SourceAccessLog, watchers, known, heardOfLog))
	}
	if s.loadReports != nil {
		out = append(out, source(admin.SourceLoadReports, watchers, known, func(e ledger.EnvoyStatus) time.Time { return e.LastReport }))
	}
	return out
}

// heardOfLog is when an Envoy last told what its access log is for. One without traffic
// opens none, and one that was told to leave it off has none; their load reports say so.
// One that has traffic, by its reports, and no log lacks the lines in its configuration.
func heardOfLog(e ledger.EnvoyStatus) time.Time {
	const traffic = 0.5 // requests per second
	if e.Streams == 0 && e.LastEvent.IsZero() && e.Mode != ledger.ModeReports && e.RequestRate > traffic {
		return time.Time{}
	}
	return later(e.LastEvent, e.LastReport)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// source sums up who of the watchers is heard.
func source(name string, watchers []ledger.Envoy, known map[ledger.Envoy]ledger.EnvoyStatus, heard func(ledger.EnvoyStatus) time.Time) admin.SourceStatus {
	out := admin.SourceStatus{Name: name, State: admin.SourceOK}
	var last time.Time
	var missing []string
	for _, w := range watchers {
		e := known[w]
		if e.Silent || heard(e).IsZero() {
			missing = append(missing, w.NodeID)
		}
		last = later(last, heard(e))
	}
	slices.Sort(missing)
	out.LastSuccess = admin.At(last)
	out.Envoys = admin.Reporting{
		Expected: admin.Num(float64(len(watchers))), Reporting: admin.Num(float64(len(watchers) - len(missing))),
		Missing: missing[:min(len(missing), admin.MaxMissing)],
	}
	switch {
	case len(missing) == 0:
	case len(missing) == len(watchers):
		out.State = admin.SourceDown
	default:
		out.State = admin.SourcePartial
	}
	return out
}

// clientSignals shows what each connected Envoy reports, by who it is.
func (s *signals) clientSignals(now time.Time) map[ledger.Envoy]admin.Signals {
	out := make(map[ledger.Envoy]admin.Signals)
	for _, e := range s.ledger.Envoys(now) {
		out[e.Envoy] = viewSignals(e)
	}
	for _, r := range s.streams.RuntimeClients() {
		e := ledger.Envoy(r.Watcher)
		v := out[e]
		v.Runtime = admin.Runtime{Subscribed: true, InSync: r.InSync, Nack: r.NackMessage}
		out[e] = v
	}
	return out
}

func viewSignals(e ledger.EnvoyStatus) admin.Signals {
	v := admin.Signals{
		State: admin.SignalOK, Mode: admin.SignalMode(e.Mode.String()),
		RequestRate: admin.Num(e.RequestRate), OpenRequests: admin.Num(float64(e.OpenRequests)), Streams: e.Streams,
		Entries:   admin.Entries{Received: e.Events, Ignored: e.Ignored, Unpaired: e.Unpaired, Reconciled: e.Reconciled},
		LastEntry: admin.At(e.LastEvent), LastReport: admin.At(e.LastReport),
	}
	if e.Silent {
		v.State = admin.SignalSilent
	}
	if e.ReportInterval > 0 {
		v.ReportIntervalSeconds = admin.Seconds(e.ReportInterval)
	}
	return v
}

// totals sums up what all Envoys reported.
func (s *signals) totals(now time.Time) admin.SignalTotals {
	t := admin.SignalTotals{
		AccessLog: s.accessLogs != nil, LoadReports: s.loadReports != nil,
		Envoys: make(map[admin.SignalMode]int),
	}
	for _, e := range s.ledger.Envoys(now) {
		t.Envoys[admin.SignalMode(e.Mode.String())]++
		if e.Silent {
			t.Silent++
		}
	}
	sums := s.ledger.Totals()
	t.Entries = admin.Entries{Received: sums.Events, Ignored: sums.Ignored, Unpaired: sums.Unpaired, Reconciled: sums.Reconciled}
	if s.loadReports != nil {
		t.Reports = s.loadReports.Stats().Reports
		t.ReportIntervalSeconds = admin.Seconds(s.reportInterval())
	}
	return t
}
