package admin

import (
	"steelyard/controlplane/view"

	"github.com/prometheus/client_golang/prometheus"
)

// maxEnvoySeries bounds the Envoys with series of their own: their names are their own choice.
const maxEnvoySeries = 1000

// recordsCollector turns what the Recorder measures, and each Envoy's state, into series. Unknown values give none.
type recordsCollector struct {
	collector
	latest func() *moment

	cluster  []namedSeries[view.Cluster]
	endpoint []namedSeries[view.Endpoint]
	envoy    []namedSeries[envoySeries]

	incidents, envoysDropped series
}

// A namedSeries is a series and where its value comes from.
type namedSeries[T any] struct {
	series
	value func(*T) view.Number
}

// envoySeries is what there is a series of for each Envoy, over all its connections.
type envoySeries struct {
	node, host         string
	connected          bool
	lag                view.Number
	inSync             bool
	rate, open         view.Number
	received, unpaired view.Number
}

func newRecordsCollector(source Source, latest func() *moment, maxSeries int) *recordsCollector {
	c := &recordsCollector{collector: collector{source: source, maxSeries: maxSeries}, latest: latest}
	c.describeClusterRecords()
	c.describeEndpointRecords()
	c.describeEnvoys()
	return c
}

func (c *recordsCollector) describeClusterRecords() {
	add := func(s series, value func(*view.Cluster) view.Number) {
		c.cluster = append(c.cluster, namedSeries[view.Cluster]{s, value})
	}
	add(c.gauge("steelyard_capacity_used_ratio", "Work that arrives, for each work that the pool can do.",
		labelCluster), func(v *view.Cluster) view.Number { return v.Use.CapacityUsed })
	add(c.gauge("steelyard_endpoints_to_spare", "Endpoints, the largest first, that can be lost until more is asked "+
		"of the others than they can do.", labelCluster), func(v *view.Cluster) view.Number { return v.Use.ToSpare })
	add(c.gauge("steelyard_served_vs_decided_ratio", "Part of the requests of the last minute, 0 to 1, that went "+
		"elsewhere than decided.", labelCluster), func(v *view.Cluster) view.Number { return v.Served.VsDecided })
	add(c.gauge("steelyard_served_noise_ratio", "What steelyard_served_vs_decided_ratio would be by chance.",
		labelCluster), func(v *view.Cluster) view.Number { return v.Served.Noise })
	add(c.gauge("steelyard_first_token_mean_seconds", "Mean time to the first token of the requests of about the last "+
		"minute.", labelCluster), func(v *view.Cluster) view.Number { return v.FirstTokenMean })
	add(c.gauge("steelyard_answer_p99_seconds", "Time to the last byte that 99 % of the answers of about the last "+
		"minute took at most.", labelCluster), func(v *view.Cluster) view.Number { return v.AnswerP99Seconds })
	c.incidents = c.gauge("steelyard_incidents", "Incidents of the cluster, by severity; those of the process have an "+
		"empty cluster.", labelCluster, "severity")
}

func (c *recordsCollector) describeEndpointRecords() {
	add := func(s series, value func(*view.Endpoint) view.Number) {
		c.endpoint = append(c.endpoint, namedSeries[view.Endpoint]{s, value})
	}
	labels := []string{labelCluster, labelEndpoint}
	add(c.counter("steelyard_endpoint_requests_total", "Requests that the Envoys began here.", labels...),
		func(e *view.Endpoint) view.Number { return e.Requests })
	add(c.counter("steelyard_endpoint_completed_requests_total", "Requests that it completed, by its own counter.",
		labels...), func(e *view.Endpoint) view.Number { return e.CompletedRequests })
	add(c.gauge("steelyard_endpoint_in_flight", "Requests in flight, by the Envoys' counts, or else waiting and "+
		"running.", labels...), func(e *view.Endpoint) view.Number { return view.Num(inFlight(e)) })
	add(c.gauge("steelyard_endpoint_load_per_slot", "Load for each slot: above 1, requests wait.", labels...),
		loadPerSlot)
	add(c.gauge("steelyard_endpoint_served_share_ratio", "Part of the cluster's requests of the last minute, 0 to 1, "+
		"that it really got.", labels...), func(e *view.Endpoint) view.Number { return e.ServedShare1m })
	add(c.gauge("steelyard_endpoint_capacity", "Slots x relative speed x ramp.", labels...),
		func(e *view.Endpoint) view.Number { return e.Capacity })
	add(c.gauge("steelyard_endpoint_capacity_ratio", "Its part of the capacity of the pool, 0 to 1.", labels...),
		func(e *view.Endpoint) view.Number { return e.CapacityShare })
	add(c.gauge("steelyard_endpoint_relative_speed_ratio", "Its speed as a ratio to the pool's median.", labels...),
		func(e *view.Endpoint) view.Number { return e.RelativeSpeed })
	add(c.gauge("steelyard_endpoint_outlier", "1 when it stalls or fails its requests.", labels...),
		func(e *view.Endpoint) view.Number { return oneIf(e.Outlier) })
}

func (c *recordsCollector) describeEnvoys() {
	add := func(s series, value func(*envoySeries) view.Number) {
		c.envoy = append(c.envoy, namedSeries[envoySeries]{s, value})
	}
	labels := []string{"envoy", "host"}
	add(c.gauge("steelyard_envoy_connected", "1 while it has an open stream; 0 for an hour after it left.", labels...),
		func(e *envoySeries) view.Number { return oneIf(e.connected) })
	add(c.gauge("steelyard_envoy_in_sync", "1 when it accepted the current version of all clusters that it asks for.",
		labels...), func(e *envoySeries) view.Number {
		if !e.connected {
			return view.Number{}
		}
		return oneIf(e.inSync)
	})
	add(c.gauge("steelyard_envoy_ack_delay_seconds", "Time from a push to its ACK, smoothed, of the slowest of its "+
		"clusters.", labels...), func(e *envoySeries) view.Number { return e.lag })
	add(c.gauge("steelyard_envoy_requests_per_second", "Requests that it begins.", labels...),
		func(e *envoySeries) view.Number { return e.rate })
	add(c.gauge("steelyard_envoy_open_requests", "Requests that it has in flight.", labels...),
		func(e *envoySeries) view.Number { return e.open })
	add(c.counter("steelyard_envoy_entries_total", "Entries of its access log.", labels...),
		func(e *envoySeries) view.Number { return e.received })
	add(c.counter("steelyard_envoy_unpaired_entries_total", "Entries about the end of a request whose beginning was "+
		"not seen.", labels...), func(e *envoySeries) view.Number { return e.unpaired })
	c.envoysDropped = c.gauge("steelyard_envoy_series_dropped", "Envoys without series of their own because there are "+
		"too many.")
}

// Collect implements prometheus.Collector.
func (c *recordsCollector) Collect(ch chan<- prometheus.Metric) {
	m, room := c.latest(), c.maxSeries
	clusters := c.source.Clusters()
	for _, cluster := range clusters {
		found := m.measureOf(cluster.Name)
		if found != nil {
			cluster.Served, cluster.Use = found.served, found.use
		}
		for _, s := range c.cluster {
			s.set(ch, s.value(&cluster), cluster.Name)
		}
		capacity := capacityOf(cluster.Endpoints)
		shown := cluster.Endpoints[:min(room, len(cluster.Endpoints))]
		room -= len(shown)
		for _, e := range shown {
			of := found.of(e.Address)
			e.ServedShare1m, e.CapacityShare = of.served1m, capacityShare(&e, capacity)
			for _, s := range c.endpoint {
				s.set(ch, s.value(&e), cluster.Name, e.Address)
			}
		}
	}
	c.collectIncidents(ch, clusters, m)
	c.collectEnvoys(ch, m)
}

func (c *recordsCollector) collectIncidents(ch chan<- prometheus.Metric, clusters []view.Cluster, m *moment) {
	if m == nil {
		return
	}
	type labels struct {
		cluster  string
		severity view.Severity
	}
	counts := map[labels]float64{}
	for _, name := range append([]string{""}, names(clusters)...) {
		counts[labels{name, view.SeverityError}], counts[labels{name, view.SeverityWarning}] = 0, 0
	}
	for _, i := range m.incidents {
		counts[labels{i.Subject.Cluster, i.Severity}]++
	}
	for l, n := range counts {
		c.incidents.set(ch, view.Num(n), l.cluster, string(l.severity))
	}
}

func names(clusters []view.Cluster) (out []string) {
	for i := range clusters {
		out = append(out, clusters[i].Name)
	}
	return out
}

// collectEnvoys has a series for each Envoy that asks for something, and for those that left.
func (c *recordsCollector) collectEnvoys(ch chan<- prometheus.Metric, m *moment) {
	all := map[envoyID]*envoySeries{}
	var order []envoyID
	clients := c.source.Clients()
	for i := range clients {
		client := &clients[i]
		id := idOf(client)
		e := all[id]
		if e == nil {
			s := client.Signals
			e = &envoySeries{node: id.node, host: id.host, connected: true, inSync: true, rate: s.RequestRate,
				open: s.OpenRequests, received: view.Num(float64(s.Entries.Received)),
				unpaired: view.Num(float64(s.Entries.Unpaired))}
			all[id], order = e, append(order, id)
		}
		for _, s := range client.Subscriptions {
			e.inSync = e.inSync && s.InSync
			if d, known := s.AckDelaySeconds.Value(); known && d >= e.lag.Or(0) {
				e.lag = s.AckDelaySeconds
			}
		}
	}
	var left []LeftEnvoy
	if m != nil {
		left = m.left
	}
	for _, l := range left {
		id := idOf(&Client{NodeID: l.NodeID, Address: l.Address})
		if all[id] == nil {
			all[id], order = &envoySeries{node: id.node, host: id.host}, append(order, id)
		}
	}
	shown := order[:min(maxEnvoySeries, len(order))]
	for _, id := range shown {
		for _, s := range c.envoy {
			s.set(ch, s.value(all[id]), id.node, id.host)
		}
	}
	c.envoysDropped.set(ch, view.Num(float64(len(order)-len(shown))))
}
