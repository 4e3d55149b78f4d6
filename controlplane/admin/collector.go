package admin

import (
	"log/slog"
	"net/http"
	"time"

	"steelyard/controlplane/view"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// handler serves the registry together with the state of a source.
func (m *Metrics) handler(
	source Source, refused func() (RefusedRequests, AdminAccess), latest func() *moment, now func() time.Time,
	log *slog.Logger,
) http.Handler {
	state := prometheus.NewRegistry()
	state.MustRegister(newCollector(source, refused, m.maxSeries, now),
		newRecordsCollector(source, latest, m.maxSeries))
	return promhttp.HandlerFor(prometheus.Gatherers{m.registry, state}, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(log.With("library", "client_golang").Handler(), slog.LevelWarn),
		// One series that cannot be written must not hide all the others.
		ErrorHandling:       promhttp.ContinueOnError,
		Registry:            m.registry,
		MaxRequestsInFlight: 4,
		Timeout:             10 * time.Second,
		EnableOpenMetrics:   true,
	})
}

// A series is one family of the collector. A value that only increases is a counter.
type series struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

// collector turns the current state of the Source into series. Unknown values give
// none.
type collector struct {
	source    Source
	refused   func() (RefusedRequests, AdminAccess)
	maxSeries int
	now       func() time.Time
	all       []series

	clusterReady, drop, expectedWait, arrivalRate, horizon, waterLevel, decisionAge,
	tokensPerRequest, tokensPerByte, prefillRate,
	lastPush, minInterval, sourceUp, sourceEnvoys, endpoints, inputs, reportAge, dropped, droppedRequests,
	disputed, queueWaiting series

	weight, share, overloaded, override, load, work, promptTokens, queue, endpointAge, latency, failed, errors,
	latencyAge, responseBytes, responseBytesAge, failedShare, failedShareAge, implausible series

	envoys, subscribed, inSync, nacking series

	portUsed, portLimit, portRefused, pacedRequests, silentStreams, acceptErrors series
	adminUsed, adminLimit, adminRefused, droppedLines                            series

	entries, reconciled, modes, silent, reports, reportInterval, signalStreams, signalStreamsEnded series

	expiry, handshakes, gone, requests, deniedRequests, deniedClients series

	traceSpans, pickers series

	replicaConnected, replicaCount, replicaAge, replicaScraping, replicaMessages series
}

func newCollector(source Source, refused func() (RefusedRequests, AdminAccess), maxSeries int,
	now func() time.Time) *collector {
	c := &collector{source: source, refused: refused, maxSeries: maxSeries, now: now}
	c.describeClusters()
	c.describeEndpoints()
	c.describeStreams()
	c.describePort()
	c.describeSignals()
	c.describeEdges()
	c.describeReplicas()
	c.describeTracing()
	c.describePickers()
	return c
}

func (c *collector) describeClusters() {
	c.clusterReady = c.gauge("steelyard_cluster_ready", "1 when the cluster has weights worth pushing, or has no "+
		"endpoints.", labelCluster)
	c.drop = c.gauge("steelyard_drop_ratio", "Share of the requests, 0 to 1, that the Envoys have to refuse.",
		labelCluster)
	c.expectedWait = c.gauge("steelyard_expected_wait_seconds", "Time that the next request is expected to wait for "+
		"a slot, in the mean over the pool.", labelCluster)
	c.arrivalRate = c.gauge("steelyard_arrival_requests_per_second", "Requests per second expected at the cluster.",
		labelCluster)
	c.horizon = c.gauge("steelyard_horizon_seconds", "Time that a decision looks ahead: age of the observations, "+
		"push delay and push period.", labelCluster)
	c.tokensPerRequest = c.gauge("steelyard_prompt_tokens_per_request", "Prompt tokens that a mean request makes an "+
		"engine compute.", labelCluster)
	c.tokensPerByte = c.gauge("steelyard_prompt_tokens_per_byte", "Prompt tokens for each byte of a request's body.",
		labelCluster)
	c.prefillRate = c.gauge("steelyard_prefill_tokens_per_second", "Prompt tokens that a typical engine computes in a "+
		"second.", labelCluster)
	c.waterLevel = c.gauge("steelyard_water_level", "Level up to which the endpoints are filled, in requests for "+
		"each slot.", labelCluster)
	c.decisionAge = c.gauge("steelyard_decision_age_seconds", "Time since the latest decision.", labelCluster)
	c.lastPush = c.gauge("steelyard_last_push_timestamp_seconds", "Unix time of the latest push.", labelCluster)
	c.minInterval = c.gauge("steelyard_min_push_interval_seconds", "Current time to the next push, by what sets it: "+
		"the configured floor, the budget of bytes or that of the Envoys' CPU. Only pushes that gain much come sooner.",
		labelCluster, labelReason)
	c.droppedRequests = c.counter("steelyard_dropped_requests_total", "Requests that Envoys refused because of the "+
		"drop fraction, according to their load reports.", labelCluster)
	c.disputed = c.gauge("steelyard_disputed_endpoints", "Endpoints about which a single Envoy reports what all "+
		"others contradict, so that its report does not count: in_flight (requests in progress) or failures.",
		labelCluster, "kind")
	c.queueWaiting = c.gauge("steelyard_queue_waiting", "Requests that wait in the queue, in their Envoys.",
		labelCluster, labelClass)
	c.sourceEnvoys = c.gauge("steelyard_source_envoys", "Envoys that watch the cluster, by whether they report over "+
		"the source: reporting, idle (they have no known request) or missing.", labelCluster, "source", "state")
	c.sourceUp = c.gauge("steelyard_source_up", "0 when the source is down: it never worked, or its latest values "+
		"are too old to be used. 1 otherwise, also while it fails in part, or Envoys have nothing to report or are "+
		"not configured for it.", labelCluster, "source")
	c.endpoints = c.gauge("steelyard_cluster_endpoints", "Endpoints, by the main cause of their share.", labelCluster,
		labelReason)
	c.inputs = c.gauge("steelyard_inputs", "Inputs of the endpoints, by field and by the state that follows from "+
		"their age.", labelCluster, "field", "state")
	c.reportAge = c.gauge("steelyard_report_age_seconds", "Age of the oldest value of a field among the endpoints "+
		"that ever reported it.", labelCluster, "field")
	c.dropped = c.gauge("steelyard_endpoint_series_dropped", "Endpoints without series of their own because there "+
		"are too many.", labelCluster)
}

func (c *collector) describeEndpoints() {
	c.weight = c.gauge("steelyard_endpoint_weight", "Load balancing weight last pushed.", labelCluster, labelEndpoint)
	c.share = c.gauge("steelyard_endpoint_share_ratio", "Share of the cluster's traffic, 0 to 1.", labelCluster,
		labelEndpoint)
	c.overloaded = c.gauge("steelyard_endpoint_overloaded", "1 when the proxies are asked to prefer other endpoints.",
		labelCluster, labelEndpoint)
	c.override = c.gauge("steelyard_endpoint_override_end_timestamp_seconds", "Unix time at which what an operator "+
		"decided about the endpoint ends: drain or pin. No series where nothing was decided.", labelCluster,
		labelEndpoint, "kind")
	c.load = c.gauge("steelyard_endpoint_load", "Estimated requests waiting and running.", labelCluster, labelEndpoint)
	c.work = c.gauge("steelyard_endpoint_work_seconds", "Time that the work outstanding at an engine that batches "+
		"continuously keeps it busy.", labelCluster, labelEndpoint)
	c.promptTokens = c.gauge("steelyard_endpoint_prompt_tokens",
		"Prompt tokens that the engine is guessed not to have "+
			"computed yet.", labelCluster, labelEndpoint)
	c.queue = c.gauge("steelyard_endpoint_queue", "Requests waiting, as last reported.", labelCluster, labelEndpoint)
	c.endpointAge = c.gauge("steelyard_endpoint_report_age_seconds", "Age of the endpoint's oldest input.",
		labelCluster, labelEndpoint)
	c.latency = c.gauge("steelyard_endpoint_latency_seconds", "Time to the last byte of a response, smoothed, as "+
		"measured by the Envoys.", labelCluster, labelEndpoint)
	c.latencyAge = c.gauge("steelyard_endpoint_latency_age_seconds", "Time since the newest response in "+
		"steelyard_endpoint_latency_seconds.", labelCluster, labelEndpoint)
	c.responseBytes = c.gauge("steelyard_endpoint_response_bytes", "Bytes of a response on the wire, smoothed, as "+
		"measured by the Envoys.", labelCluster, labelEndpoint)
	c.responseBytesAge = c.gauge("steelyard_endpoint_response_bytes_age_seconds",
		"Time since the newest response in steelyard_endpoint_response_bytes.", labelCluster, labelEndpoint)
	c.failedShare = c.gauge("steelyard_endpoint_failed_share_ratio",
		"Share, 0 to 1, of the requests that the endpoint "+
			"failed among those that it answered or failed, smoothed, as measured by the Envoys.", labelCluster,
		labelEndpoint)
	c.failedShareAge = c.gauge("steelyard_endpoint_failed_share_age_seconds",
		"Time since the newest request in steelyard_endpoint_failed_share_ratio.", labelCluster, labelEndpoint)
	c.failed = c.counter("steelyard_endpoint_failed_requests_total", "Requests that the endpoint failed, as counted "+
		"by the Envoys: no connection, reset, or a 5xx of its own.", labelCluster, labelEndpoint)
	c.errors = c.counter("steelyard_endpoint_error_requests_total", "Other requests that ended in an error, as "+
		"counted by the Envoys: a 4xx or a gRPC status; with load reports only, every error but a 4xx.", labelCluster,
		labelEndpoint)
	c.implausible = c.counter("steelyard_endpoint_implausible_readings_total", "Scrapes in which a counter rose by "+
		"more than any server can count, so that nothing of that interval counts.", labelCluster, labelEndpoint)
}

func (c *collector) describeStreams() {
	c.envoys = c.gauge("steelyard_connected_envoys", "Envoys with an open stream, identified by node id and peer "+
		"address.")
	c.subscribed = c.gauge("steelyard_envoy_subscriptions", "Envoys that ask for the cluster.", labelCluster)
	c.inSync = c.gauge("steelyard_envoy_subscriptions_in_sync", "Envoys that acknowledged the latest version sent to "+
		"them.", labelCluster)
	c.nacking = c.gauge("steelyard_envoy_subscriptions_refused", "Envoys that refused the latest version sent to them.",
		labelCluster)
	c.droppedLines = c.counter("steelyard_log_lines_dropped_total", "Lines of the process's log that were not "+
		"written, because their reader had stalled or gone.")
}

func (c *collector) describePort() {
	const label = "bound"
	c.portUsed = c.gauge("steelyard_xds_port_used", "What the peers of the xDS port have open, by what is bounded: "+
		"connections, connections of the address that has the most, streams, subscriptions, unread bytes.", label)
	c.portLimit = c.gauge("steelyard_xds_port_limit", "The limit of what is used. That of connections also depends "+
		"on the limit of open files.", label)
	c.portRefused = c.counter("steelyard_xds_port_refused_total", "How often the bound was reached: the new one was "+
		"refused, or a connection displaced to make room for it.", label, labelResult)
	c.adminUsed = c.gauge("steelyard_admin_port_used", "What the peers of the admin listener have open, by what is "+
		"bounded: connections, connections of the address that has the most.", label)
	c.adminLimit = c.gauge("steelyard_admin_port_limit", "The limit of what is used.", label)
	c.adminRefused = c.counter("steelyard_admin_port_refused_total", "How often the bound was reached: the new one "+
		"was refused, or an open one displaced to make room for it.", label, labelResult)
	c.pacedRequests = c.counter("steelyard_xds_port_paced_requests_total", "Requests that were handled later, "+
		"because their client sends too many or subscribes to more clusters than others.")
	c.silentStreams = c.counter("steelyard_xds_port_silent_streams_total",
		"Streams that the xDS port ended because their first message did not arrive in time.")
	c.acceptErrors = c.counter("steelyard_xds_port_accept_errors_total",
		"How often accepting a connection to the xDS port failed.")
}

func (c *collector) collectPort(ch chan<- prometheus.Metric, p Port, a AdminPort) {
	collectBounds(ch, p.bounds(), c.portUsed, c.portLimit, c.portRefused)
	collectBounds(ch, a.bounds(), c.adminUsed, c.adminLimit, c.adminRefused)
	c.pacedRequests.set(ch, view.Num(float64(p.PacedRequests)))
	c.silentStreams.set(ch, view.Num(float64(p.SilentStreams)))
	c.acceptErrors.set(ch, view.Num(float64(p.AcceptErrors)))
}

func collectBounds(ch chan<- prometheus.Metric, bounds []namedBound, used, limit, refused series) {
	for _, b := range bounds {
		used.set(ch, view.Num(float64(b.Used)), b.name)
		limit.set(ch, view.Num(float64(b.Limit)), b.name)
		refused.set(ch, view.Num(float64(b.Refused)), b.name, "refused")
		refused.set(ch, view.Num(float64(b.Displaced)), b.name, "displaced")
	}
}

func (c *collector) describeSignals() {
	c.entries = c.counter("steelyard_access_log_entries_total", "Access log entries received, by result: counted, "+
		"ignored (of an address or a cluster that the Envoy does not watch) or unpaired (the end of a request whose "+
		"beginning was not seen).", labelResult)
	c.reconciled = c.counter("steelyard_reconciled_requests_total", "Requests that load reports added to, or removed "+
		"from, the counts of the access logs.")
	c.modes = c.gauge("steelyard_access_log_envoys", "Envoys that ever reported, by how they report their requests: "+
		"events, batched, or reports (load reports only).", "mode")
	c.silent = c.gauge("steelyard_silent_envoys", "Envoys whose counts are not used because they have not reported "+
		"for too long.")
	c.reports = c.counter("steelyard_load_reports_total", "Load reports received.")
	c.reportInterval = c.gauge("steelyard_load_report_interval_seconds", "Time between two load reports that an "+
		"Envoy is asked for, by the source that counts its requests.", "counted_by")
	c.signalStreams = c.gauge("steelyard_signal_streams", "Open streams over which Envoys report their requests.",
		"source")
	c.signalStreamsEnded = c.counter("steelyard_signal_streams_ended_total", "Streams for Envoys' reports that "+
		"Steelyard ended: refused (no node id, or more streams than an Envoy may have) or broken (a message could "+
		"not be read).", "source", labelResult)
}

// describeEdges describes certificates, and connections and requests that were refused.
func (c *collector) describeEdges() {
	c.expiry = c.gauge("steelyard_certificate_expiry_timestamp_seconds", "Unix time at which a certificate expires, "+
		"by what Steelyard uses it for. Of a chain it is the first to expire.", "use", "file", "subject")
	c.handshakes = c.counter("steelyard_refused_handshakes_total", "TLS handshakes on the xDS port that failed, by "+
		"reason.", labelReason)
	c.gone = c.gauge("steelyard_gone_envoys", "Envoys that vanished in the last ten minutes without closing their "+
		"streams, and have not returned.")
	c.requests = c.counter("steelyard_admin_refused_requests_total", "Requests to the admin listener that were "+
		"refused because of their Host header.")
	c.deniedClients = c.counter("steelyard_xds_denied_total", "Streams of clients that the rules on clients do not "+
		"allow, by kind: no rule names the client (stream), or not for the cluster that it watches or "+
		"reports on.", "kind")
	c.deniedRequests = c.counter("steelyard_admin_denied_requests_total", "Requests to the admin listener that were "+
		"denied for lack of a token or role, or because a page of another origin sent them, by reason.", labelReason)
}

func (c *collector) gauge(name, help string, labels ...string) series {
	return c.describe(name, help, prometheus.GaugeValue, labels)
}

func (c *collector) counter(name, help string, labels ...string) series {
	return c.describe(name, help, prometheus.CounterValue, labels)
}

func (c *collector) describe(name, help string, kind prometheus.ValueType, labels []string) series {
	s := series{prometheus.NewDesc(name, help, labels, nil), kind}
	c.all = append(c.all, s)
	return s
}

// set sends one series; it sends none for a number that is unknown.
func (s series) set(ch chan<- prometheus.Metric, n view.Number, labels ...string) {
	v, known := n.Value()
	if !known {
		return
	}
	for i := range labels {
		labels[i] = label(labels[i])
	}
	ch <- prometheus.MustNewConstMetric(s.desc, s.kind, v, labels...)
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, s := range c.all {
		ch <- s.desc
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	now := c.now()
	room := c.maxSeries
	clusters := c.source.Clusters()
	for _, cluster := range clusters {
		c.collectCluster(ch, cluster, now)
		shown := cut(cluster.Endpoints, room)
		if room == 0 {
			shown = nil
		}
		room -= len(shown)
		for _, e := range shown {
			c.collectEndpoint(ch, cluster.Name, e)
		}
		c.dropped.set(ch, view.Num(float64(len(cluster.Endpoints)-len(shown))), cluster.Name)
	}
	c.collectClients(ch, clusters)
	status := c.source.Status()
	c.droppedLines.set(ch, view.Num(float64(status.Log.DroppedLines)))
	c.collectPort(ch, status.XDSPort, status.AdminPort)
	c.collectSignals(ch, status.Signals.complete())
	c.collectEdges(ch, status, now)
	c.collectReplicas(ch, status.Replicas.complete(now))
	c.collectTracing(ch, status.Tracing)
	c.collectPickers(ch, status.Pickers)
}

func (c *collector) collectCluster(ch chan<- prometheus.Metric, cluster view.Cluster, now time.Time) {
	name, d := cluster.Name, cluster.Decision
	c.clusterReady.set(ch, oneIf(cluster.Ready), name)
	c.drop.set(ch, d.DropFraction, name)
	c.expectedWait.set(ch, d.ExpectedWait, name)
	c.arrivalRate.set(ch, d.ArrivalRate, name)
	c.horizon.set(ch, d.HorizonSeconds, name)
	c.waterLevel.set(ch, d.WaterLevel, name)
	c.tokensPerRequest.set(ch, d.Work.PromptTokens, name)
	c.tokensPerByte.set(ch, d.Work.TokensPerByte, name)
	c.prefillRate.set(ch, d.Work.PrefillRate, name)
	c.decisionAge.set(ch, d.At.Age(now), name)
	if at := cluster.LastPush.At; !at.IsZero() {
		c.lastPush.set(ch, view.Num(float64(at.UnixNano())/1e9), name)
	}
	c.minInterval.set(ch, cluster.MinIntervalSeconds, name, cluster.MinIntervalReason)
	c.droppedRequests.set(ch, cluster.DroppedRequests, name)
	if q := cluster.Queue; q != nil {
		for _, class := range q.Classes {
			c.queueWaiting.set(ch, view.Num(float64(class.Waiting)), name, label(class.Name))
		}
	}
	for kind, n := range disputedEndpoints(cluster.Disputes) {
		c.disputed.set(ch, view.Num(float64(n)), name, string(kind))
	}
	for _, s := range cluster.Sources {
		c.sourceUp.set(ch, oneIf(s.State != view.SourceDown), name, s.Name)
		c.sourceEnvoys.set(ch, s.Envoys.Reporting, name, s.Name, "reporting")
		c.sourceEnvoys.set(ch, s.Envoys.Idle, name, s.Name, "idle")
		c.sourceEnvoys.set(ch, s.Envoys.NotReporting(), name, s.Name, "missing")
	}
	c.collectCounts(ch, cluster)
}

// disputedEndpoints counts them, by kind.
func disputedEndpoints(disputes []view.Dispute) map[view.DisputeKind]int {
	endpoints := map[view.DisputeKind]map[string]bool{view.DisputeInFlight: {}, view.DisputeFailures: {}}
	for _, d := range disputes {
		for _, e := range d.Endpoints {
			endpoints[d.Kind][e] = true
		}
	}
	return map[view.DisputeKind]int{view.DisputeInFlight: len(endpoints[view.DisputeInFlight]),
		view.DisputeFailures: len(endpoints[view.DisputeFailures])}
}

// collectCounts sums the endpoints up, so that a pool above the bound on series
// can still be watched.
func (c *collector) collectCounts(ch chan<- prometheus.Metric, cluster view.Cluster) {
	type fieldState struct{ field, state string }
	reasons := map[string]float64{}
	states := map[fieldState]float64{}
	oldest := map[string]view.Number{}
	for _, e := range cluster.Endpoints {
		reasons[e.Reason]++
		for _, in := range e.Inputs {
			states[fieldState{in.Field, in.State}]++
			if v, known := in.AgeSeconds.Value(); known && v >= oldest[in.Field].Or(0) {
				oldest[in.Field] = in.AgeSeconds
			}
		}
	}
	for reason, n := range reasons {
		c.endpoints.set(ch, view.Num(n), cluster.Name, reason)
	}
	for k, n := range states {
		c.inputs.set(ch, view.Num(n), cluster.Name, k.field, k.state)
	}
	for field, n := range oldest {
		c.reportAge.set(ch, n, cluster.Name, field)
	}
}

func (c *collector) collectEndpoint(ch chan<- prometheus.Metric, cluster string, e view.Endpoint) {
	c.weight.set(ch, e.Weight, cluster, e.Address)
	c.share.set(ch, e.Share, cluster, e.Address)
	c.overloaded.set(ch, oneIf(e.Overloaded), cluster, e.Address)
	if o := e.Override; o != nil {
		c.override.set(ch, view.Num(float64(o.Until.Unix())), cluster, e.Address, string(o.Kind))
	}
	c.load.set(ch, e.Load, cluster, e.Address)
	c.work.set(ch, e.Work.Seconds, cluster, e.Address)
	c.promptTokens.set(ch, e.Work.PromptTokens, cluster, e.Address)
	c.queue.set(ch, e.Input("queue").Value, cluster, e.Address)
	var oldest view.Number
	for _, in := range e.Inputs {
		if v, known := in.AgeSeconds.Value(); known && v >= oldest.Or(0) {
			oldest = in.AgeSeconds
		}
	}
	c.endpointAge.set(ch, oldest, cluster, e.Address)
	c.latency.set(ch, e.LatencySeconds, cluster, e.Address)
	c.latencyAge.set(ch, e.LatencyAgeSeconds, cluster, e.Address)
	c.responseBytes.set(ch, e.ResponseBytes, cluster, e.Address)
	c.responseBytesAge.set(ch, e.ResponseBytesAgeSeconds, cluster, e.Address)
	c.failedShare.set(ch, e.FailedShare, cluster, e.Address)
	c.failedShareAge.set(ch, e.FailedShareAgeSeconds, cluster, e.Address)
	c.failed.set(ch, e.FailedRequests, cluster, e.Address)
	c.errors.set(ch, e.ErrorRequests, cluster, e.Address)
	c.implausible.set(ch, e.ImplausibleReadings, cluster, e.Address)
}

// collectClients counts the Envoys of each configured cluster. Names that only
// Envoys know are not made labels: they would be a stranger's choice.
func (c *collector) collectClients(ch chan<- prometheus.Metric, clusters []view.Cluster) {
	type counts struct{ subscribed, inSync, nacking float64 }
	per := map[string]*counts{}
	for _, cluster := range clusters {
		per[cluster.Name] = &counts{}
	}
	// One Envoy may hold several streams on its connection, and two Envoys may
	// by mistake have one node id.
	envoys := map[[2]string]bool{}
	for _, client := range c.source.Clients() {
		envoys[[2]string{client.NodeID, client.Address}] = true
		for _, s := range client.Subscriptions {
			if n := per[s.Cluster]; n != nil {
				n.subscribed++
				n.inSync += float64(one(s.InSync))
				n.nacking += float64(one(s.Nack.Current))
			}
		}
	}
	c.envoys.set(ch, view.Num(float64(len(envoys))))
	for name, n := range per {
		c.subscribed.set(ch, view.Num(n.subscribed), name)
		c.inSync.set(ch, view.Num(n.inSync), name)
		c.nacking.set(ch, view.Num(n.nacking), name)
	}
}

// collectSignals leaves out what is not taken in.
func (c *collector) collectSignals(ch chan<- prometheus.Metric, t SignalTotals) {
	if t.AccessLog {
		e := t.Entries
		c.entries.set(ch, view.Num(float64(e.counted())), "counted")
		c.entries.set(ch, view.Num(float64(e.Ignored)), "ignored")
		c.entries.set(ch, view.Num(float64(e.Unpaired)), "unpaired")
	}
	if t.LoadReports {
		c.reports.set(ch, view.Num(float64(t.Reports)))
		for by, interval := range t.ReportIntervalsSeconds {
			c.reportInterval.set(ch, interval, by)
		}
	}
	if t.AccessLog && t.LoadReports {
		c.reconciled.set(ch, view.Num(float64(t.Entries.Reconciled)))
	}
	for source, s := range t.Streams {
		c.signalStreams.set(ch, view.Num(float64(s.Open)), source)
		c.signalStreamsEnded.set(ch, view.Num(float64(s.Refused)), source, "refused")
		c.signalStreamsEnded.set(ch, view.Num(float64(s.Broken)), source, "broken")
	}
	if !t.AccessLog && !t.LoadReports {
		return
	}
	for mode, n := range t.Envoys {
		c.modes.set(ch, view.Num(float64(n)), string(mode))
	}
	c.silent.set(ch, view.Num(float64(t.Silent)))
}

func oneIf(b bool) view.Number { return view.Num(float64(one(b))) }

// collectEdges has one series for authorities of one name, that of the last to expire.
func (c *collector) collectEdges(ch chan<- prometheus.Metric, s Status, now time.Time) {
	type labels struct{ use, file, subject string }
	last := map[labels]view.Time{}
	// in the order of their end
	for _, certificate := range cut(currentCertificates(s.Certificates, now), maxCertificates) {
		if !certificate.NotAfter.IsZero() {
			last[labels{label(certificate.Use), label(certificate.File),
				label(certificate.Subject)}] = certificate.NotAfter
		}
	}
	for l, at := range last {
		c.expiry.set(ch, view.Num(float64(at.Unix())), l.use, l.file, l.subject)
	}
	for _, h := range s.RefusedHandshakes {
		c.handshakes.set(ch, view.Num(float64(h.Count)), h.Reason)
	}
	c.gone.set(ch, view.Num(float64(len(s.GoneEnvoys))))
	for _, d := range s.XDSAccess.Denied {
		c.deniedClients.set(ch, view.Num(float64(d.Count)), d.Kind)
	}
	requests, access := c.refused()
	c.requests.set(ch, view.Num(float64(requests.Count)))
	for _, d := range access.Denied {
		c.deniedRequests.set(ch, view.Num(float64(d.Count)), d.Reason)
	}
}
