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
	state.MustRegister(newCollector(source, refused, latest, m.maxSeries, now))
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

// families are the series that there is one of for each T, and where their values come from.
type families[T any] struct {
	c      *collector
	labels []string
	series []series
	values []func(*T) view.Number
}

func (f *families[T]) gauge(name, help string, value func(*T) view.Number) {
	f.series, f.values = append(f.series, f.c.gauge(name, help, f.labels...)), append(f.values, value)
}

func (f *families[T]) counter(name, help string, value func(*T) view.Number) {
	f.series, f.values = append(f.series, f.c.counter(name, help, f.labels...)), append(f.values, value)
}

func (f *families[T]) set(ch chan<- prometheus.Metric, of *T, labels ...string) {
	for i, s := range f.series {
		s.set(ch, f.values[i](of), labels...)
	}
}

// collector turns the current state of the Source, and what the Recorder measures, into series. Unknown values give
// none.
type collector struct {
	source    Source
	refused   func() (RefusedRequests, AdminAccess)
	latest    func() *moment
	maxSeries int
	now       func() time.Time
	all       []series

	cluster  families[view.Cluster]
	endpoint families[view.Endpoint]
	envoy    families[envoySeries]

	minInterval, sourceUp, sourceEnvoys, endpoints, inputs, reportAge, dropped, disputed, queueWaiting, override,
	incidents, envoysDropped series

	envoys, subscribed, inSync, nacking series

	portUsed, portLimit, portRefused, pacedRequests, silentStreams, acceptErrors series
	adminUsed, adminLimit, adminRefused, droppedLines                            series

	entries, reconciled, modes, silent, reports, reportInterval, signalStreams, signalStreamsEnded series

	expiry, handshakes, gone, requests, deniedRequests, deniedClients series

	traceSpans, pickers series

	replicaConnected, replicaCount, replicaAge, replicaScraping, replicaMessages series
}

func newCollector(source Source, refused func() (RefusedRequests, AdminAccess), latest func() *moment, maxSeries int,
	now func() time.Time) *collector {
	c := &collector{source: source, refused: refused, latest: latest, maxSeries: maxSeries, now: now}
	c.describeClusters()
	c.describeClusterLists()
	c.describeEndpoints()
	c.describeEnvoys()
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
	c.cluster = families[view.Cluster]{c: c, labels: []string{labelCluster}}
	add := &c.cluster
	add.gauge("steelyard_cluster_ready", "1 when the cluster has weights worth pushing, or has no endpoints.",
		func(v *view.Cluster) view.Number { return oneIf(v.Ready) })
	add.gauge("steelyard_drop_ratio", "Share of the requests, 0 to 1, that the Envoys have to refuse.",
		func(v *view.Cluster) view.Number { return v.Decision.DropFraction })
	add.gauge("steelyard_expected_wait_seconds", "Time that the next request is expected to wait for a slot, in "+
		"the mean over the pool.", func(v *view.Cluster) view.Number { return v.Decision.ExpectedWait })
	add.gauge("steelyard_arrival_requests_per_second", "Requests per second expected at the cluster.",
		func(v *view.Cluster) view.Number { return v.Decision.ArrivalRate })
	add.gauge("steelyard_horizon_seconds", "Time that a decision looks ahead: age of the observations, push delay "+
		"and push period.", func(v *view.Cluster) view.Number { return v.Decision.HorizonSeconds })
	add.gauge("steelyard_prompt_tokens_per_request", "Prompt tokens that a mean request makes an engine compute.",
		func(v *view.Cluster) view.Number { return v.Decision.Work.PromptTokens })
	add.gauge("steelyard_prompt_tokens_per_byte", "Prompt tokens for each byte of a request's body.",
		func(v *view.Cluster) view.Number { return v.Decision.Work.TokensPerByte })
	add.gauge("steelyard_prefill_tokens_per_second", "Prompt tokens that a typical engine computes in a second.",
		func(v *view.Cluster) view.Number { return v.Decision.Work.PrefillRate })
	add.gauge("steelyard_water_level", "Level up to which the endpoints are filled, in requests for each slot.",
		func(v *view.Cluster) view.Number { return v.Decision.WaterLevel })
	add.gauge("steelyard_decision_age_seconds", "Time since the latest decision.",
		func(v *view.Cluster) view.Number { return v.Decision.At.Age(c.now()) })
	add.gauge("steelyard_last_push_timestamp_seconds", "Unix time of the latest push.",
		func(v *view.Cluster) view.Number { return unixTime(v.LastPush.At) })
	add.counter("steelyard_dropped_requests_total", "Requests that Envoys refused because of the drop fraction, "+
		"according to their load reports.", func(v *view.Cluster) view.Number { return v.DroppedRequests })
	add.gauge("steelyard_capacity_used_ratio", "Work that arrives, for each work that the pool can do.",
		func(v *view.Cluster) view.Number { return v.Use.CapacityUsed })
	add.gauge("steelyard_endpoints_to_spare", "Endpoints, the largest first, that can be lost until more is asked "+
		"of the others than they can do.", func(v *view.Cluster) view.Number { return v.Use.ToSpare })
	add.gauge("steelyard_served_vs_decided_ratio", "Part of the requests of the last minute, 0 to 1, that went "+
		"elsewhere than decided.", func(v *view.Cluster) view.Number { return v.Served.VsDecided })
	add.gauge("steelyard_served_noise_ratio", "What steelyard_served_vs_decided_ratio would be by chance.",
		func(v *view.Cluster) view.Number { return v.Served.Noise })
	add.gauge("steelyard_first_token_mean_seconds", "Mean time to the first token of the requests of about the "+
		"last minute.", func(v *view.Cluster) view.Number { return v.FirstTokenMean })
	add.gauge("steelyard_answer_p99_seconds", "Time to the last byte that 99 % of the answers of about the last "+
		"minute took at most.", func(v *view.Cluster) view.Number { return v.AnswerP99Seconds })
}

// describeClusterLists describes what has further labels.
func (c *collector) describeClusterLists() {
	c.minInterval = c.gauge("steelyard_min_push_interval_seconds", "Current time to the next push, by what sets it: "+
		"the configured floor, the budget of bytes or that of the Envoys' CPU. Only pushes that gain much come sooner.",
		labelCluster, labelReason)
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
	c.incidents = c.gauge("steelyard_incidents", "Incidents of the cluster, by severity; those of the process have an "+
		"empty cluster.", labelCluster, "severity")
}

func (c *collector) describeEndpoints() {
	c.endpoint = families[view.Endpoint]{c: c, labels: []string{labelCluster, labelEndpoint}}
	add := &c.endpoint
	add.gauge("steelyard_endpoint_weight", "Load balancing weight last pushed.",
		func(e *view.Endpoint) view.Number { return e.Weight })
	add.gauge("steelyard_endpoint_share_ratio", "Share of the cluster's traffic, 0 to 1.",
		func(e *view.Endpoint) view.Number { return e.Share })
	add.gauge("steelyard_endpoint_overloaded", "1 when the proxies are asked to prefer other endpoints.",
		func(e *view.Endpoint) view.Number { return oneIf(e.Overloaded) })
	add.gauge("steelyard_endpoint_load", "Estimated requests waiting and running.",
		func(e *view.Endpoint) view.Number { return e.Load })
	add.gauge("steelyard_endpoint_work_seconds", "Time that the work outstanding at an engine that batches "+
		"continuously keeps it busy.", func(e *view.Endpoint) view.Number { return e.Work.Seconds })
	add.gauge("steelyard_endpoint_prompt_tokens", "Prompt tokens that the engine is guessed not to have computed "+
		"yet.", func(e *view.Endpoint) view.Number { return e.Work.PromptTokens })
	add.gauge("steelyard_endpoint_queue", "Requests waiting, as last reported.",
		func(e *view.Endpoint) view.Number { return e.Input("queue").Value })
	add.gauge("steelyard_endpoint_report_age_seconds", "Age of the endpoint's oldest input.",
		oldestInput)
	add.gauge("steelyard_endpoint_latency_seconds", "Time to the last byte of a response, smoothed, as measured "+
		"by the Envoys.", func(e *view.Endpoint) view.Number { return e.LatencySeconds })
	add.gauge("steelyard_endpoint_latency_age_seconds", "Time since the newest response in "+
		"steelyard_endpoint_latency_seconds.", func(e *view.Endpoint) view.Number { return e.LatencyAgeSeconds })
	add.gauge("steelyard_endpoint_response_bytes", "Bytes of a response on the wire, smoothed, as measured by the "+
		"Envoys.", func(e *view.Endpoint) view.Number { return e.ResponseBytes })
	add.gauge("steelyard_endpoint_response_bytes_age_seconds", "Time since the newest response in "+
		"steelyard_endpoint_response_bytes.", func(e *view.Endpoint) view.Number { return e.ResponseBytesAgeSeconds })
	add.gauge("steelyard_endpoint_failed_share_ratio", "Share, 0 to 1, of the requests that the endpoint failed "+
		"among those that it answered or failed, smoothed, as measured by the Envoys.",
		func(e *view.Endpoint) view.Number { return e.FailedShare })
	add.gauge("steelyard_endpoint_failed_share_age_seconds", "Time since the newest request in "+
		"steelyard_endpoint_failed_share_ratio.", func(e *view.Endpoint) view.Number { return e.FailedShareAgeSeconds })
	add.counter("steelyard_endpoint_failed_requests_total", "Requests that the endpoint failed, as counted by the "+
		"Envoys: no connection, reset, or a 5xx of its own.",
		func(e *view.Endpoint) view.Number { return e.FailedRequests })
	add.counter("steelyard_endpoint_error_requests_total", "Other requests that ended in an error, as counted by "+
		"the Envoys: a 4xx or a gRPC status; with load reports only, every error but a 4xx.",
		func(e *view.Endpoint) view.Number { return e.ErrorRequests })
	add.counter("steelyard_endpoint_implausible_readings_total", "Scrapes in which a counter rose by more than "+
		"any server can count, so that nothing of that interval counts.",
		func(e *view.Endpoint) view.Number { return e.ImplausibleReadings })
	add.counter("steelyard_endpoint_requests_total", "Requests that the Envoys began here.",
		func(e *view.Endpoint) view.Number { return e.Requests })
	add.counter("steelyard_endpoint_completed_requests_total", "Requests that it completed, by its own counter.",
		func(e *view.Endpoint) view.Number { return e.CompletedRequests })
	add.gauge("steelyard_endpoint_in_flight", "Requests in flight, by the Envoys' counts, or else waiting and "+
		"running.", func(e *view.Endpoint) view.Number { return view.Num(inFlight(e)) })
	add.gauge("steelyard_endpoint_load_per_slot", "Load for each slot: above 1, requests wait.", loadPerSlot)
	add.gauge("steelyard_endpoint_served_share_ratio", "Part of the cluster's requests of the last minute, 0 to "+
		"1, that it really got.", func(e *view.Endpoint) view.Number { return e.ServedShare1m })
	add.gauge("steelyard_endpoint_capacity", "Slots x relative speed x ramp.",
		func(e *view.Endpoint) view.Number { return e.Capacity })
	add.gauge("steelyard_endpoint_capacity_ratio", "Its part of the capacity of the pool, 0 to 1.",
		func(e *view.Endpoint) view.Number { return e.CapacityShare })
	add.gauge("steelyard_endpoint_relative_speed_ratio", "Its speed as a ratio to the pool's median.",
		func(e *view.Endpoint) view.Number { return e.RelativeSpeed })
	add.gauge("steelyard_endpoint_outlier", "1 when it stalls or fails its requests.",
		func(e *view.Endpoint) view.Number { return oneIf(e.Outlier) })
	c.override = c.gauge("steelyard_endpoint_override_end_timestamp_seconds", "Unix time at which what an operator "+
		"decided about the endpoint ends: drain or pin. No series where nothing was decided.", labelCluster,
		labelEndpoint, "kind")
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

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, s := range c.all {
		ch <- s.desc
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	m, now := c.latest(), c.now()
	clusters := c.source.Clusters()
	c.collectClusters(ch, clusters, m)
	c.collectIncidents(ch, clusters, m)
	clients := c.source.Clients()
	c.collectSubscriptions(ch, clusters, clients)
	c.collectEnvoys(ch, clients, m)
	status := c.source.Status()
	c.droppedLines.set(ch, view.Num(float64(status.Log.DroppedLines)))
	c.collectPort(ch, status.XDSPort, status.AdminPort)
	c.collectSignals(ch, status.Signals.complete())
	c.collectEdges(ch, status, now)
	c.collectReplicas(ch, status.Replicas.complete(now))
	c.collectTracing(ch, status.Tracing)
	c.collectPickers(ch, status.Pickers)
}

// collectClusters has series of as many endpoints as there is room for.
func (c *collector) collectClusters(ch chan<- prometheus.Metric, clusters []view.Cluster, m *moment) {
	room := c.maxSeries
	for _, cluster := range clusters {
		found := m.measureOf(cluster.Name)
		if found != nil {
			cluster.Served, cluster.Use = found.served, found.use
		}
		c.cluster.set(ch, &cluster, cluster.Name)
		c.collectLists(ch, &cluster)
		c.collectCounts(ch, &cluster)
		capacity := capacityOf(cluster.Endpoints)
		shown := cluster.Endpoints[:min(room, len(cluster.Endpoints))]
		room -= len(shown)
		for _, e := range shown {
			of := found.of(e.Address)
			e.ServedShare1m, e.CapacityShare = of.served1m, capacityShare(&e, capacity)
			c.endpoint.set(ch, &e, cluster.Name, e.Address)
			if o := e.Override; o != nil {
				c.override.set(ch, view.Num(float64(o.Until.Unix())), cluster.Name, e.Address, string(o.Kind))
			}
		}
		c.dropped.set(ch, view.Num(float64(len(cluster.Endpoints)-len(shown))), cluster.Name)
	}
}

// collectLists has the series of a cluster with further labels.
func (c *collector) collectLists(ch chan<- prometheus.Metric, cluster *view.Cluster) {
	name := cluster.Name
	c.minInterval.set(ch, cluster.MinIntervalSeconds, name, cluster.MinIntervalReason)
	if q := cluster.Queue; q != nil {
		for _, class := range q.Classes {
			c.queueWaiting.set(ch, view.Num(float64(class.Waiting)), name, class.Name)
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
func (c *collector) collectCounts(ch chan<- prometheus.Metric, cluster *view.Cluster) {
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

// oldestInput is the age of the endpoint's oldest input.
func oldestInput(e *view.Endpoint) (oldest view.Number) {
	for _, in := range e.Inputs {
		if v, known := in.AgeSeconds.Value(); known && v >= oldest.Or(0) {
			oldest = in.AgeSeconds
		}
	}
	return oldest
}

// collectSubscriptions counts the Envoys of each configured cluster. Names that only
// Envoys know are not made labels: they would be a stranger's choice.
func (c *collector) collectSubscriptions(ch chan<- prometheus.Metric, clusters []view.Cluster, clients []Client) {
	type counts struct{ subscribed, inSync, nacking float64 }
	per := map[string]*counts{}
	for _, cluster := range clusters {
		per[cluster.Name] = &counts{}
	}
	// One Envoy may hold several streams on its connection, and two Envoys may
	// by mistake have one node id.
	envoys := map[[2]string]bool{}
	for _, client := range clients {
		envoys[[2]string{client.NodeID, client.Address}] = true
		for _, s := range client.Subscriptions {
			if n := per[s.Cluster]; n != nil {
				n.subscribed++
				n.inSync += float64(boolToInt(s.InSync))
				n.nacking += float64(boolToInt(s.Nack.Current))
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

// unixTime is in seconds; unknown for no time.
func unixTime(t view.Time) view.Number {
	if t.IsZero() {
		return view.Number{}
	}
	return view.Num(float64(t.UnixNano()) / 1e9)
}

func oneIf(b bool) view.Number { return view.Num(float64(boolToInt(b))) }

// collectEdges has one series for authorities of one name, that of the last to expire.
func (c *collector) collectEdges(ch chan<- prometheus.Metric, s Status, now time.Time) {
	type labels struct{ use, file, subject string }
	last := map[labels]view.Time{}
	// in the order of their end
	for _, certificate := range limit(currentCertificates(s.Certificates, now), maxCertificates) {
		if !certificate.NotAfter.IsZero() {
			last[labels{label(certificate.Use), label(certificate.File),
				label(certificate.Subject)}] = certificate.NotAfter
		}
	}
	for l, at := range last {
		c.expiry.set(ch, unixTime(at), l.use, l.file, l.subject)
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
