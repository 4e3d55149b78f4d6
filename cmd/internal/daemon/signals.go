package daemon

import (
	"context"
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
	"steelyard/controlplane/liveness"
	"steelyard/weighting"
	"steelyard/weighting/flight"
	"steelyard/weighting/push"
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

	mu       sync.Mutex
	clusters map[string]uint64 // that have members: generation of the watchers that the ledger knows, 0 for none
	modes    uint64            // generation of the modes that the Envoys were told
	told     map[ledger.Envoy]ledger.Mode
}

// newSignals makes the services that the configuration asks for. wake is called
// when a count of a cluster changed.
func newSignals(o Options, cfg config.XDS, streams *xds.Server, wake func(cluster string)) *signals {
	s := &signals{
		ledger: ledger.New(wake), streams: streams, config: cfg,
		clusters: make(map[string]uint64), told: make(map[ledger.Envoy]ledger.Mode),
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

// unwatching is the least time between two reports of an Envoy that watches no cluster. It
// is told of a shorter one after the next, so it must not be long, either.
const unwatching = 5 * time.Second

// reportInterval is how often an Envoy is to report its load.
func (s *signals) reportInterval(e ledger.Envoy) time.Duration {
	all, reportsOnly, watches := s.ledger.ReportersWith(e)
	interval, without := s.reportIntervals(all)
	if reportsOnly || s.accessLogs == nil {
		interval = without
	}
	if !watches {
		return max(interval, unwatching)
	}
	return interval
}

// reportIntervals are those of Envoys with an access log next to the reports, and of those with reports only.
func (s *signals) reportIntervals(all ledger.Reporters) (withLog, without time.Duration) {
	fleet := loadstats.Fleet(all)
	if s.accessLogs == nil {
		fleet = loadstats.Fleet{ReportsOnly: all.WithAccessLog + all.ReportsOnly}
	}
	r := s.config.LoadReports
	return fleet.Intervals(r.Interval, float64(r.Budget), s.loadReports.ReportBytes())
}

// A membership is what the ledger needs to know of a cluster.
type membership struct {
	endpoints []discovery.Endpoint
	alpha     float64 // weight of an answer in the averages
}

// setMembers tells the ledger which endpoints there are, by cluster.
func (s *signals) setMembers(members map[string]membership) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.clusters {
		if _, ok := members[name]; !ok {
			s.ledger.Forget(name)
			delete(s.clusters, name)
		}
	}
	for name, p := range members {
		addresses := make([]string, len(p.endpoints))
		for i, e := range p.endpoints {
			addresses[i] = e.Address
		}
		s.ledger.SetMembers(name, addresses)
		s.ledger.SetAlpha(name, p.alpha)
		if _, ok := s.clusters[name]; !ok {
			s.clusters[name] = 0
		}
	}
}

// tickInterval is how soon the ledger knows who subscribes and who is silent, and Envoys how to report.
const tickInterval = 250 * time.Millisecond

// run ticks until ctx is done.
func (s *signals) run(ctx context.Context, beat *liveness.Beat) error {
	ticker := time.NewTicker(tickInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-ticker.C:
			beat.Begin()
			s.tick(now)
			beat.End()
		}
	}
}

// tick keeps the ledger's watchers of all clusters and the Envoys' modes up to date. Loops only read: with a
// hundred of them on a thousand Envoys that come back, each a few milliseconds after the one before, to follow
// in every step would be too much.
func (s *signals) tick(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// A generation of the streams is never 0, so a new set of clusters is followed too.
	watched := s.streams.WatchGeneration() + 1
	for cluster, known := range s.clusters {
		if known != watched {
			s.clusters[cluster] = watched
			s.ledger.SetWatchers(cluster, envoys(s.streams.Watchers(cluster)))
		}
	}
	s.ledger.Tick(now)
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

// Counts are what the cluster's Envoys report, for its loop. It changes nothing.
func (s *signals) Counts(cluster string, now time.Time, previous []flight.Counts) controlplane.ProxyCounts {
	status := s.ledger.Cluster(cluster, now)
	c := controlplane.ProxyCounts{
		Fleet: push.Fleet{
			Proxies: status.Watchers, Clusters: status.Clusters, BusyClusters: status.Busy, Idle: status.Idle,
		},
		Reporting: status.Events + status.Reports,
	}
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
	c.Endpoints = s.ledger.Read(cluster, now, previous)
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
		out = append(out, source(admin.SourceLoadReports, watchers, known, heardOfReports))
	}
	return out
}

// Served tells the ledger what an endpoint says of its own requests.
func (s *signals) Served(address string, r weighting.ServerReport, slots float64) {
	s.ledger.Served(address, &r, slots, time.Now())
}

// Disputes are what single Envoys say against all others, by Envoy and kind.
func (s *signals) Disputes(cluster string, now time.Time) (out []admin.Dispute) {
	for _, d := range s.ledger.Disputes(cluster, now) {
		last := len(out) - 1
		if last < 0 || out[last].NodeID != d.Envoy.NodeID || out[last].Host != d.Envoy.Host || out[last].Kind != admin.DisputeKind(d.Kind) {
			out = append(out, admin.Dispute{Kind: admin.DisputeKind(d.Kind), NodeID: d.Envoy.NodeID, Host: d.Envoy.Host, Since: admin.At(d.Since)})
			last++
		}
		to := &out[last]
		to.Endpoints = append(to.Endpoints, d.Address)
		if d.Kind == ledger.DisputedInFlight {
			to.Requests = admin.Num(to.Requests.Or(0) + float64(d.InFlight))
		}
		if d.Since.Before(to.Since.Time) {
			to.Since = admin.At(d.Since)
		}
	}
	return out
}

// A hearing is what a source hears of an Envoy.
type hearing uint8

const (
	heard   hearing = iota
	idle            // it has nothing to tell
	missing         // it tells nothing, and should
)

// heardOfLog is how an Envoy's access log is heard, and when it last told what it is for.
// One without traffic opens none, and one that was told to leave it off has none; their
// load reports say so, where they have any. One that has traffic, by its reports, and no
// log lacks the lines in its configuration, or has lost it.
func heardOfLog(e ledger.EnvoyStatus) (hearing, time.Time) {
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
	return heard, last
}

// heardOfReports is how its load reports are heard. They come without traffic, too.
func heardOfReports(e ledger.EnvoyStatus) (hearing, time.Time) {
	if e.Silent || e.LastReport.IsZero() {
		return missing, e.LastReport
	}
	return heard, e.LastReport
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// source sums up who of the watchers is heard.
func source(name string, watchers []ledger.Envoy, known map[ledger.Envoy]ledger.EnvoyStatus, hear func(ledger.EnvoyStatus) (hearing, time.Time)) admin.SourceStatus {
	out := admin.SourceStatus{Name: name}
	var last time.Time
	var without []string
	count := make(map[hearing]int)
	for _, w := range watchers {
		how, at := hear(known[w])
		count[how]++
		if how == missing {
			without = append(without, w.NodeID)
		}
		last = later(last, at)
	}
	slices.Sort(without)
	out.LastSuccess = admin.At(last)
	out.Envoys = admin.Reporting{
		Expected: admin.Num(float64(len(watchers))), Reporting: admin.Num(float64(count[heard])), Idle: admin.Num(float64(count[idle])),
		Missing: without[:min(len(without), admin.MaxMissing)],
	}
	switch {
	case count[missing] == 0 && count[heard] == 0 && count[idle] > 0:
		out.State = admin.SourceIdle
	case count[missing] == 0:
		out.State = admin.SourceOK
	case count[heard] > 0:
		out.State = admin.SourcePartial
	case last.IsZero():
		out.State = admin.SourceOff
	default:
		out.State = admin.SourceDown
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
		State: admin.SignalOK, Mode: modeOf(e), ReportStreams: e.ReportStreams,
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

// modeOf is how an Envoy does tell of its requests: that which it was asked for, where it
// has an access log, and otherwise by what it has.
func modeOf(e ledger.EnvoyStatus) admin.SignalMode {
	switch {
	case e.Streams > 0:
		return admin.SignalMode(e.Mode.String())
	case !e.LastReport.IsZero():
		return admin.ModeReports
	}
	return ""
}

// totals sums up what all Envoys reported.
func (s *signals) totals(now time.Time) admin.SignalTotals {
	t := admin.SignalTotals{
		AccessLog: s.accessLogs != nil, LoadReports: s.loadReports != nil,
		Envoys: make(map[admin.SignalMode]int), Streams: make(map[string]admin.SignalStreams),
	}
	for _, e := range s.ledger.Envoys(now) {
		if mode := modeOf(e); mode != "" {
			t.Envoys[mode]++
		}
		if e.Silent {
			t.Silent++
		}
	}
	sums := s.ledger.Totals()
	t.Entries = admin.Entries{Received: sums.Events, Ignored: sums.Ignored, Unpaired: sums.Unpaired, Reconciled: sums.Reconciled}
	if s.loadReports != nil {
		stats := s.loadReports.Stats()
		t.Reports = stats.Reports
		t.Streams[admin.SourceLoadReports] = admin.SignalStreams{Open: stats.Streams, Refused: stats.Refused, Broken: stats.Broken}
		withLog, without := s.reportIntervals(s.ledger.Reporters())
		t.ReportIntervalsSeconds = map[string]admin.Number{admin.SourceLoadReports: admin.Seconds(without)}
		if s.accessLogs != nil {
			t.ReportIntervalsSeconds[admin.SourceAccessLog] = admin.Seconds(withLog)
		}
	}
	if s.accessLogs != nil {
		stats := s.accessLogs.Stats()
		t.Streams[admin.SourceAccessLog] = admin.SignalStreams{Open: stats.Streams, Refused: stats.Refused, Broken: stats.Broken}
	}
	return t
}
