package daemon

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"

	"steelyard/collectors/accesslog"
	"steelyard/collectors/ledger"
	"steelyard/collectors/loadstats"
	"steelyard/collectors/replicas"
	"steelyard/collectors/wire"
	"steelyard/controlplane"
	"steelyard/controlplane/config"
	"steelyard/controlplane/discovery"
	"steelyard/controlplane/liveness"
	"steelyard/internal/api"
	"steelyard/internal/loops"
	"steelyard/weighting"
	"steelyard/weighting/flight"
	"steelyard/xds"
)

// signals connects the services that receive Envoys' access logs and load reports with the ledger, and the ledger with
// the loops, which read it at every step. It also sets, over the runtime layer, how Envoys report.
type signals struct {
	ledger      *ledger.Ledger
	streams     *xds.Server
	accessLogs  *accesslog.Server // nil where disabled
	loadReports *loadstats.Server // nil where disabled
	config      config.XDS
	link        *replicas.Link // with other replicas

	mu       sync.Mutex
	clusters map[string]uint64 // that have members: generation of their watchers in the ledger, 0 for none
	// modeGeneration is the ledger's generation of modes, which were sent to the Envoys.
	modeGeneration uint64
	modes          map[ledger.Envoy]ledger.Mode
}

// newSignals makes the services that the configuration enables. wake is called when a count of a cluster changed.
func newSignals(
	o Options, cfg config.XDS, streams *xds.Server, reporter wire.Reporter, wake func(cluster string),
) *signals {
	s := &signals{
		ledger: ledger.New(wake), streams: streams, config: cfg,
		clusters: make(map[string]uint64), modes: make(map[ledger.Envoy]ledger.Mode),
	}
	s.ledger.SetModeThresholds(cfg.AccessLog.BatchAbove, cfg.AccessLog.ReportsAbove)
	if !cfg.AccessLog.Disabled {
		s.accessLogs = accesslog.New(s.ledger, o.Log)
		s.accessLogs.Reporter = reporter
	}
	if !cfg.LoadReports.Disabled {
		s.loadReports = loadstats.New(s.ledger, loadstats.Options{Interval: s.reportInterval}, o.Log)
		s.loadReports.Reporter = reporter
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

// close ends the streams, because Envoys never do.
func (s *signals) close() {
	if s.accessLogs != nil {
		s.accessLogs.Close()
	}
	if s.loadReports != nil {
		s.loadReports.Close()
	}
}

// unwatching is the least time between two reports of an Envoy that watches no cluster. It must not be long, because an
// Envoy that begins to watch gets its shorter interval only after its next report.
const unwatching = 5 * time.Second

// reportInterval is the time between two load reports that an Envoy is asked for.
func (s *signals) reportInterval(e ledger.Envoy) time.Duration {
	all, withoutLog, watches := s.ledger.ReportersWith(e)
	interval, reportsOnly := s.reportIntervals(all)
	if withoutLog || s.accessLogs == nil {
		interval = reportsOnly
	}
	if !watches {
		return max(interval, unwatching)
	}
	return interval
}

// reportIntervals returns the intervals for Envoys that also send an access log, and for those that send only load
// reports.
func (s *signals) reportIntervals(all ledger.Reporters) (withLog, reportsOnly time.Duration) {
	fleet := loadstats.Fleet(all)
	if s.accessLogs == nil {
		fleet = loadstats.Fleet{ReportsOnly: all.WithAccessLog + all.ReportsOnly}
	}
	r := s.config.LoadReports
	return fleet.Intervals(r.Interval, float64(r.Budget), s.loadReports.ReportBytes())
}

// A membership is the ledger's part of a cluster's configuration.
type membership struct {
	endpoints []discovery.Endpoint
	alpha     float64 // weight of an answer in the averages
}

// setMembers gives the ledger the endpoints of each cluster.
func (s *signals) setMembers(members map[string]membership) {
	of := make(map[string][]string, len(members))
	for name, p := range members {
		of[name] = addresses(p.endpoints)
	}
	s.link.SetMembers(of)
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.clusters {
		if _, ok := members[name]; !ok {
			s.ledger.Forget(name)
			delete(s.clusters, name)
		}
	}
	for name, p := range members {
		s.ledger.SetMembers(name, addresses(p.endpoints))
		s.ledger.SetAlpha(name, p.alpha)
		if _, ok := s.clusters[name]; !ok {
			s.clusters[name] = 0
		}
	}
}

// tickInterval bounds how late the ledger knows which Envoys subscribe and which are silent, and Envoys how to report.
const tickInterval = 250 * time.Millisecond

// run ticks until ctx is done.
func (s *signals) run(ctx context.Context, activity *liveness.Activity) error {
	loops.Every(ctx, tickInterval, func(now time.Time) {
		activity.Begin()
		s.tick(now)
		activity.End()
	})
	return nil
}

// tick keeps the ledger's watchers of all clusters and the Envoys' modes up to date. The loops of the clusters only
// read: when a thousand Envoys reconnect to a hundred clusters, a few milliseconds apart, following them in every step
// is too much.
func (s *signals) tick(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// A generation of the streams is never 0, so a new set of clusters is followed too.
	watched := s.streams.WatchGeneration() + 1
	for cluster, known := range s.clusters {
		if known != watched {
			s.clusters[cluster] = watched
			s.ledger.SetWatchers(cluster, s.streams.Watchers(cluster))
		}
		s.ledger.Record(cluster, s.streams.Shadowed(cluster), now)
	}
	s.ledger.Tick(now)
	if s.accessLogs != nil && s.ledger.ModeGeneration() != s.modeGeneration {
		s.sendModes()
	}
}

// sendModes sets how Envoys whose mode changed send their access logs, and forgets Envoys that have left.
func (s *signals) sendModes() {
	generation, modes := s.ledger.Modes()
	for e, mode := range modes {
		if s.modes[e] != mode {
			s.streams.SetRuntime(e, runtimeOf(mode))
		}
	}
	for e := range s.modes {
		if _, ok := modes[e]; !ok {
			s.streams.SetRuntime(e, nil)
		}
	}
	s.modeGeneration, s.modes = generation, modes
}

// runtimeOf returns the runtime values that switch an Envoy's two access loggers on or off.
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

// normalRuntime is the layer of every Envoy that has none of its own. With the access log disabled it switches both
// loggers off: otherwise an Envoy would open a stream, and be refused, with every entry, which costs it half as much
// CPU again at 500 requests a second.
func normalRuntime(cfg config.XDS) map[string]float64 {
	if cfg.AccessLog.Disabled {
		return noLog()
	}
	return nil
}

// Counts returns the counts that the cluster's Envoys report, here and to other replicas, for its loop. It changes
// nothing.
func (s *signals) Counts(cluster string, now time.Time, previous []flight.Counts) controlplane.ProxyCounts {
	status := s.ledger.Cluster(cluster, now)
	c := controlplane.ProxyCounts{Subscribers: status.Subscribers}
	if s.loadReports != nil && status.Events+status.Reports > 0 {
		c.Dropped = weighting.Reading{Value: float64(status.Dropped), At: now}
	}
	var before time.Time
	if len(previous) > 0 {
		before = previous[0].InFlight.At
	}
	c.Endpoints = s.ledger.Read(cluster, now, previous)
	all := s.addOthers(cluster, now, status.Watchers, c.Endpoints, before)
	c.Watching, c.Reporting, c.Interval = all.Watching, all.Counted(), all.Interval
	switch {
	case all.Events > 0:
		c.Source = api.SourceAccessLog
	case all.Reports > 0:
		c.Source = api.SourceLoadReports
	}
	return c
}

// Sources returns the states of the cluster's access logs and load reports, for the admin API.
func (s *signals) Sources(cluster string, now time.Time) []api.SourceStatus {
	known := make(map[ledger.Envoy]ledger.EnvoyStatus)
	for _, e := range s.ledger.Envoys(now) {
		known[e.Envoy] = e
	}
	watchers := s.streams.Watchers(cluster)
	var out []api.SourceStatus
	if s.accessLogs != nil {
		out = append(out, source(api.SourceAccessLog, watchers, known, logState))
	}
	if s.loadReports != nil {
		out = append(out, source(api.SourceLoadReports, watchers, known, loadReportState))
	}
	return append(out, s.replicasSource()...)
}

// Served passes an endpoint's own report to the ledger, and to what is known of other replicas.
func (s *signals) Served(address string, r weighting.ServerReport, slots float64) {
	if r.Queue.Known() && r.Running.Known() {
		s.link.Served(time.Now(), address, r.Queue.Value+r.Running.Value)
	}
	s.ledger.Served(address, &r, slots, time.Now())
}

// Disputes returns the claims of single Envoys that no other Envoy confirms, by Envoy and kind.
func (s *signals) Disputes(cluster string, now time.Time) (out []api.Dispute) {
	for _, d := range s.ledger.Disputes(cluster, now) {
		last := len(out) - 1
		if last < 0 || out[last].NodeID != d.Envoy.NodeID || out[last].Host != d.Envoy.Host ||
			out[last].Kind != d.Kind {
			out = append(out, api.Dispute{Kind: d.Kind, NodeID: d.Envoy.NodeID, Host: d.Envoy.Host,
				Since: api.At(d.Since)})
			last++
		}
		to := &out[last]
		to.Endpoints = append(to.Endpoints, d.Address)
		if d.Kind != api.DisputeFailures {
			to.Requests = api.Num(to.Requests.Or(0) + float64(d.Requests))
		}
		if d.Since.Before(to.Since.Time) {
			to.Since = api.At(d.Since)
		}
	}
	return out
}
