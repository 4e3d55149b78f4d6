package metrics

import (
	"cmp"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"steelyard/controlplane/admin/conditions"
	"steelyard/controlplane/admin/current"
	"steelyard/internal/api"
)

// Collector turns the current state of the process, and what the Recorder measures, into series. Unknown values give
// none.
type Collector struct {
	State     func() *current.Snapshot
	MaxSeries int
}

// Describe implements prometheus.Collector. It describes nothing, because each scrape does, and checks what it has.
func (c *Collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	s := sink{ch: ch, descs: map[string]*prometheus.Desc{}}
	state := c.State()
	now, clusters, clients, status := state.Seen.Now, state.Source.Clusters(), state.Seen.Clients, state.Source.Status()
	c.collectClusters(s, clusters, state)
	collectIncidents(s, clusters, state.Moment)
	collectSubscriptions(s, clusters, clients)
	collectEnvoys(s, clients, state.Seen.Left)
	collectFleet(s, &state.Seen, status.Replicas)
	s.set("steelyard_log_lines_dropped_total", "Lines of the log that were not written.", num(status.Log.DroppedLines))
	collectPorts(s, &status.XDSPort, &status.AdminPort)
	collectSignals(s, status.Signals.Complete())
	collectCertificates(s, status.Certificates, now)
	collectRefusals(s, &status, state)
	collectReplicas(s, current.CompleteReplicas(status.Replicas, now))
	collectPickers(s, &status.Pickers)
}

func collectPickers(s sink, p *api.Pickers) {
	s.set("steelyard_pickers", "Pickers that follow the loads.", num(len(p.List)))
	each(s, labelResult, "steelyard_picker_shared_prompts_total",
		"Learned prompts that pickers send each other: sent or left_out.",
		map[string]uint64{"sent": p.SharedPrompts.Sent, "left_out": p.SharedPrompts.LeftOut})
}

// collectClusters has series of as many endpoints as there is room for. The smallest clusters are first, so that a
// large one leaves no other without any.
func (c *Collector) collectClusters(s sink, clusters []api.Cluster, state *current.Snapshot) {
	room, now := c.MaxSeries, state.Seen.Now
	smallest := slices.Clone(clusters)
	slices.SortStableFunc(smallest, func(a, b api.Cluster) int {
		return cmp.Compare(len(a.Endpoints), len(b.Endpoints))
	})
	for _, cluster := range smallest {
		found := state.Moment.MeasureOf(cluster.Name)
		if found != nil {
			cluster.Served, cluster.Use = found.Served, found.Use
		}
		of := s.with(labelCluster, cluster.Name)
		collectCluster(of, &cluster, now)
		collectSources(of, &cluster)
		collectCounts(of, &cluster)
		capacity := conditions.CapacityOf(cluster.Endpoints)
		shown := cluster.Endpoints[:min(room, len(cluster.Endpoints))]
		room -= len(shown)
		for _, e := range shown {
			e.ServedShare1m, e.CapacityShare = found.Of(e.Address).Served1m, conditions.CapacityShare(&e, capacity)
			collectEndpoint(of.with(labelEndpoint, e.Address), &e)
		}
		of.set("steelyard_endpoint_series_dropped", "Endpoints without series, because there are too many.",
			num(len(cluster.Endpoints)-len(shown)))
	}
}

func collectCluster(s sink, c *api.Cluster, now time.Time) {
	d := &c.Decision
	s.set("steelyard_cluster_ready", "1 when the cluster has weights to push, or no endpoints.", oneIf(c.Ready))
	s.set("steelyard_drop_ratio", "Part of the requests that Envoys have to refuse.", d.DropFraction)
	s.set("steelyard_expected_wait_seconds", "Mean time that the next request waits for a slot.", d.ExpectedWait)
	s.set("steelyard_arrival_requests_per_second", "Requests per second expected at the cluster.", d.ArrivalRate)
	s.set("steelyard_horizon_seconds", "Time that a decision looks ahead.", d.HorizonSeconds)
	s.set("steelyard_prompt_tokens_per_request", "Prompt tokens that a mean request makes an engine compute.",
		d.Work.PromptTokens)
	s.set("steelyard_prompt_cached_ratio", "Part of the prompt tokens found in prefix caches.",
		d.Work.CachedShare)
	s.set("steelyard_prompt_tokens_per_byte", "Prompt tokens for each byte of a request's body.", d.Work.TokensPerByte)
	s.set("steelyard_prefill_tokens_per_second", "Prompt tokens that a typical engine computes in a second.",
		d.Work.PrefillRate)
	s.set("steelyard_water_level", "Level up to which endpoints are filled.",
		d.WaterLevel)
	s.set("steelyard_decision_age_seconds", "Time since the latest decision.", d.At.Age(now))
	s.set("steelyard_last_push_timestamp_seconds", "Unix time of the latest push.", unixTime(c.LastPush.At))
	s.set("steelyard_dropped_requests_total", "Requests refused because of the drop ratio.",
		c.DroppedRequests)
	s.set("steelyard_capacity_used_ratio", "Utilization: offered load over capacity.", c.Use.CapacityUsed)
	s.set("steelyard_endpoints_to_spare", "Largest endpoints that can fail before the rest is full.",
		c.Use.ToSpare)
	s.set("steelyard_served_vs_decided_ratio", "Part of the requests that went elsewhere than decided.",
		c.Served.VsDecided)
	s.set("steelyard_served_noise_ratio", "What steelyard_served_vs_decided_ratio would be by chance.", c.Served.Noise)
	s.set("steelyard_first_token_mean_seconds", "Mean time to the first token.",
		c.FirstTokenMean)
	s.set("steelyard_answer_p99_seconds", "99th percentile of the time to the last byte.", c.AnswerP99Seconds)
	s.with(labelReason, c.MinIntervalReason).set("steelyard_min_push_interval_seconds",
		"Time between two pushes, by what sets it: floor, bytes or cpu.", c.MinIntervalSeconds)
	if r := c.Routes; r != nil {
		collectRoutes(s, r)
	}
	if q := c.Queue; q != nil {
		s.with("owner", q.Owner.Name).set("steelyard_queue_owner",
			"1 for the replica that grants the queue's places, by its name.",
			oneIf(q.Owner.State == api.QueueGrants || q.Owner.State == api.QueueFollows))
		s.set("steelyard_queue_granting", "1 while this replica grants the queue's places.",
			oneIf(q.Owner.State == api.QueueGrants))
		s.set("steelyard_queue_epoch", "Rises with each change of the replica that grants places.", q.Owner.Epoch)
		s.set("steelyard_queue_owner_since_timestamp_seconds", "When this replica learned of that owner.",
			unixTime(q.Owner.Since))
		for _, class := range q.Classes {
			s.with(labelClass, class.Name).set("steelyard_queue_waiting", "Requests that wait in their Envoys.",
				num(class.Waiting))
		}
	}
}

func collectSources(s sink, c *api.Cluster) {
	each(s, "kind", "steelyard_disputed_endpoints",
		"Endpoints about which the reports of one Envoy contradict all others.",
		disputedEndpoints(c.Disputes))
	for _, source := range c.Sources {
		of := s.with("source", source.Name)
		of.set("steelyard_source_up", "0 when the source is down, else 1.",
			oneIf(source.State != api.SourceDown))
		for state, n := range map[string]api.Number{"reporting": source.Envoys.Reporting, "idle": source.Envoys.Idle,
			"missing": source.Envoys.NotReporting()} {
			of.with("state", state).set("steelyard_source_envoys",
				"Envoys that watch the cluster: reporting, idle or missing.", n)
		}
	}
}

// disputedEndpoints counts them, by kind.
func disputedEndpoints(disputes []api.Dispute) map[api.DisputeKind]int {
	endpoints := map[api.DisputeKind]map[string]bool{api.DisputeInFlight: {}, api.DisputeIssued: {},
		api.DisputeFailures: {}}
	for _, d := range disputes {
		for _, e := range d.Endpoints {
			endpoints[d.Kind][e] = true
		}
	}
	counts := map[api.DisputeKind]int{}
	for kind, of := range endpoints {
		counts[kind] = len(of)
	}
	return counts
}

// collectCounts sums the endpoints up, so that a pool above the bound on series can still be watched.
func collectCounts(s sink, c *api.Cluster) {
	type fieldState struct{ field, state string }
	reasons := map[string]int{}
	states := map[fieldState]int{}
	oldest := map[string]api.Number{}
	for i := range c.Endpoints {
		reasons[c.Endpoints[i].Reason]++
		for _, in := range c.Endpoints[i].Inputs {
			states[fieldState{in.Field, in.State}]++
			if v, known := in.AgeSeconds.Value(); known && v >= oldest[in.Field].Or(0) {
				oldest[in.Field] = in.AgeSeconds
			}
		}
	}
	each(s, labelReason, "steelyard_cluster_endpoints", "Endpoints, by the main cause of their share.", reasons)
	for k, n := range states {
		s.with("field", k.field, "state", k.state).set("steelyard_inputs",
			"Inputs of the endpoints.", num(n))
	}
	for field, age := range oldest {
		s.with("field", field).set("steelyard_report_age_seconds", "Age of the oldest value of a field.", age)
	}
}

func collectEndpoint(s sink, e *api.Endpoint) {
	if e.Pod != "" {
		s.with("namespace", e.Namespace, "pod", e.Pod, "node", e.Node, "role", e.Role, "model", e.Model).
			set("steelyard_endpoint_info", "1: where the endpoint runs, and what its Pod's labels say it does.", num(1))
	}
	s.set("steelyard_endpoint_weight", "Load balancing weight last pushed.", e.Weight)
	s.set("steelyard_endpoint_share_ratio", "Share of the cluster's traffic.", e.Share)
	s.set("steelyard_endpoint_overloaded", "1 when the proxies are asked to prefer other endpoints.",
		oneIf(e.Overloaded))
	s.set("steelyard_endpoint_load", "Requests waiting and running, estimated.", e.Load)
	s.set("steelyard_endpoint_work_seconds", "Time that its work keeps the engine busy.", e.Work.Seconds)
	s.set("steelyard_endpoint_prompt_tokens", "Prompt tokens that are still to be computed, estimated.",
		e.Work.PromptTokens)
	s.set("steelyard_endpoint_queue", "Requests waiting, as last reported.", e.Input("queue").Value)
	s.set("steelyard_endpoint_report_age_seconds", "Age of the endpoint's oldest input.", conditions.OldestInput(e))
	s.set("steelyard_endpoint_latency_seconds", "Time to the last byte, smoothed.", e.LatencySeconds)
	s.set("steelyard_endpoint_latency_age_seconds", "Age of the newest answer in it.", e.LatencyAgeSeconds)
	s.set("steelyard_endpoint_response_bytes", "Size of an answer, smoothed.",
		e.ResponseBytes)
	s.set("steelyard_endpoint_response_bytes_age_seconds", "Age of the newest answer in it.", e.ResponseBytesAgeSeconds)
	s.set("steelyard_endpoint_failed_share_ratio", "Part of its requests that it failed, smoothed.",
		e.FailedShare)
	s.set("steelyard_endpoint_failed_share_age_seconds", "Age of the newest request in it.", e.FailedShareAgeSeconds)
	s.set("steelyard_endpoint_failed_requests_total", "No connection, a reset or a 5xx.",
		e.FailedRequests)
	s.set("steelyard_endpoint_error_requests_total", "Other errors, such as a 4xx.",
		e.ErrorRequests)
	s.set("steelyard_endpoint_implausible_readings_total", "Scrapes with a counter that was impossibly high.",
		e.ImplausibleReadings)
	s.set("steelyard_endpoint_requests_total", "Requests that the Envoys began here.", e.Requests)
	s.set("steelyard_endpoint_hashed_requests_total", "Requests begun here by a hash (affinity).", e.HashedRequests)
	s.set("steelyard_endpoint_completed_requests_total", "Requests completed, by its own counter.",
		e.CompletedRequests)
	s.set("steelyard_endpoint_in_flight", "Requests in flight, by the Envoys' counts, or else waiting and running.",
		api.Num(conditions.InFlight(e)))
	s.set("steelyard_endpoint_load_per_slot", "Load for each slot: above 1, requests wait.", conditions.LoadPerSlot(e))
	s.set("steelyard_endpoint_served_share_ratio", "Part of the requests of the last minute that it really got.",
		e.ServedShare1m)
	s.set("steelyard_endpoint_capacity", "Slots x relative speed x ramp.", e.Capacity)
	s.set("steelyard_endpoint_capacity_ratio", "Its part of the pool's capacity.", e.CapacityShare)
	s.set("steelyard_endpoint_relative_speed_ratio", "Its speed, divided by the pool's median.", e.RelativeSpeed)
	drained := conditions.EndpointState(e) == api.EndpointDrained // what it was before concerns nobody until that ends
	s.set("steelyard_endpoint_outlier", "1 when it stalls or fails its requests, and is not drained.",
		oneIf(e.Outlier && !drained))
	s.set("steelyard_endpoint_probed", "1 when it was an outlier and is tried with few requests.",
		oneIf(e.Probed != "" && !drained))
	if o := e.Override; o != nil {
		s.with("kind", string(o.Kind)).set("steelyard_endpoint_override_end_timestamp_seconds",
			"Unix time at which a drain or pin ends.",
			num(int(o.Until.Unix())))
	}
}
