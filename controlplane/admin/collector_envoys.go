package admin

import (
	"steelyard/controlplane/view"

	"github.com/prometheus/client_golang/prometheus"
)

// maxEnvoySeries bounds the Envoys with series of their own: their names are their own choice.
const maxEnvoySeries = 1000

// envoySeries is what there is a series of for each Envoy, over all its connections.
type envoySeries struct {
	node, host         string
	connected          bool
	lag                view.Number
	inSync             bool
	rate, open         view.Number
	received, unpaired view.Number
}

func (c *collector) describeEnvoys() {
	c.envoy = families[envoySeries]{c: c, labels: []string{"envoy", "host"}}
	add := &c.envoy
	add.gauge("steelyard_envoy_connected", "1 while it has an open stream; 0 for an hour after it left.",
		func(e *envoySeries) view.Number { return oneIf(e.connected) })
	add.gauge("steelyard_envoy_in_sync", "1 when it accepted the current version of all clusters that it asks for.",
		func(e *envoySeries) view.Number {
			if !e.connected {
				return view.Number{}
			}
			return oneIf(e.inSync)
		})
	add.gauge("steelyard_envoy_ack_delay_seconds", "Time from a push to its ACK, smoothed, of the slowest of its "+
		"clusters.", func(e *envoySeries) view.Number { return e.lag })
	add.gauge("steelyard_envoy_requests_per_second", "Requests that it begins.",
		func(e *envoySeries) view.Number { return e.rate })
	add.gauge("steelyard_envoy_open_requests", "Requests that it has in flight.",
		func(e *envoySeries) view.Number { return e.open })
	add.counter("steelyard_envoy_entries_total", "Entries of its access log.",
		func(e *envoySeries) view.Number { return e.received })
	add.counter("steelyard_envoy_unpaired_entries_total", "Entries about the end of a request whose beginning was "+
		"not seen.", func(e *envoySeries) view.Number { return e.unpaired })
	c.envoysDropped = c.gauge("steelyard_envoy_series_dropped", "Envoys without series of their own because there are "+
		"too many.")
}

func (c *collector) collectIncidents(ch chan<- prometheus.Metric, clusters []view.Cluster, m *moment) {
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
func (c *collector) collectEnvoys(ch chan<- prometheus.Metric, clients []Client, m *moment) {
	all := map[envoyID]*envoySeries{}
	var order []envoyID
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
		c.envoy.set(ch, all[id], id.node, id.host)
	}
	c.envoysDropped.set(ch, view.Num(float64(len(order)-len(shown))))
}
