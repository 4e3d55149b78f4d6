package metrics

import (
	"steelyard/controlplane/admin/conditions"
	"steelyard/controlplane/admin/history"
	"steelyard/internal/api"
	"steelyard/internal/envoyid"
)

// maxEnvoySeries bounds the Envoys with series of their own: clients choose their names.
const maxEnvoySeries = 1000

func collectIncidents(s sink, clusters []api.Cluster, m *history.Moment) {
	if m == nil {
		return
	}
	type labels struct {
		cluster  string
		severity api.Severity
	}
	counts := map[labels]int{}
	for _, name := range append([]string{""}, conditions.Names(clusters)...) {
		counts[labels{name, api.SeverityError}], counts[labels{name, api.SeverityWarning}] = 0, 0
	}
	for _, i := range m.Incidents {
		counts[labels{i.Subject.Cluster, i.Severity}]++
	}
	for l, n := range counts {
		s.with(labelCluster, l.cluster, "severity", string(l.severity)).set("steelyard_incidents",
			"Incidents; incidents of the process have an empty cluster.", num(n))
	}
}

// collectSubscriptions counts the Envoys of each configured cluster. Names that only Envoys know are not made labels:
// clients could create arbitrary label values.
func collectSubscriptions(s sink, clusters []api.Cluster, clients []api.Client) {
	type counts struct{ subscribed, inSync, nacking int }
	per := map[string]*counts{}
	for _, cluster := range clusters {
		per[cluster.Name] = &counts{}
	}
	// One Envoy may hold several streams on its connection, and two Envoys may by mistake have one node id.
	envoys := map[[2]string]bool{}
	for _, client := range clients {
		envoys[[2]string{client.NodeID, client.Address}] = true
		for _, sub := range client.Subscriptions {
			if n := per[sub.Cluster]; n != nil {
				n.subscribed++
				n.inSync += conditions.BoolToInt(sub.InSync)
				n.nacking += conditions.BoolToInt(sub.Nack.Current)
			}
		}
	}
	s.set("steelyard_connected_envoys", "Envoys with an open stream.",
		num(len(envoys)))
	for name, n := range per {
		of := s.with(labelCluster, name)
		of.set("steelyard_envoy_subscriptions", "Envoys that subscribe to the cluster.", num(n.subscribed))
		of.set("steelyard_envoy_subscriptions_in_sync", "Envoys that accepted the latest version.",
			num(n.inSync))
		of.set("steelyard_envoy_subscriptions_refused", "Envoys that refused the latest version.",
			num(n.nacking))
	}
}

// collectEnvoys has series for each connected Envoy, over all its connections, and for those that left.
func collectEnvoys(s sink, clients []api.Client, left []api.LeftEnvoy) {
	all := map[envoyid.ID][]*api.Client{}
	var order []envoyid.ID
	for i := range clients {
		id := history.IDOf(clients[i].NodeID, clients[i].Address)
		if all[id] == nil {
			order = append(order, id)
		}
		all[id] = append(all[id], &clients[i])
	}
	for _, l := range left {
		id := history.IDOf(l.NodeID, l.Address)
		if _, known := all[id]; !known {
			all[id], order = nil, append(order, id)
		}
	}
	for _, id := range api.Limit(order, maxEnvoySeries) {
		collectEnvoy(s.with("envoy", id.NodeID, "host", id.Host), all[id])
	}
	s.set("steelyard_envoy_series_dropped", "Envoys without series, because there are too many.",
		num(max(0, len(order)-maxEnvoySeries)))
}

// collectEnvoy has the series of one Envoy with these connections; none: it left.
func collectEnvoy(s sink, connections []*api.Client) {
	s.set("steelyard_envoy_connected", "1 while it has an open stream; 0 for an hour after it left.",
		oneIf(len(connections) > 0))
	if len(connections) == 0 {
		return
	}
	inSync, lag := true, api.Number{}
	for _, c := range connections {
		for _, sub := range c.Subscriptions {
			inSync = inSync && sub.InSync
			if d, known := sub.AckDelaySeconds.Value(); known && d >= lag.Or(0) {
				lag = sub.AckDelaySeconds
			}
		}
	}
	signals := &connections[0].Signals
	s.set("steelyard_envoy_in_sync", "1 when it accepted the current version of all its clusters.",
		oneIf(inSync))
	s.set("steelyard_envoy_ack_delay_seconds", "Time from a push to its ACK, smoothed, of its slowest cluster.",
		lag)
	s.set("steelyard_envoy_requests_per_second", "Requests that it begins.", signals.RequestRate)
	s.set("steelyard_envoy_open_requests", "Requests that it has in flight.", signals.OpenRequests)
	s.set("steelyard_envoy_entries_total", "Entries of its access log.", num(signals.Entries.Received))
	s.set("steelyard_envoy_unpaired_entries_total", "Ends of requests whose beginning was not seen.",
		num(signals.Entries.Unpaired))
}
