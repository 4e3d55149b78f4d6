package daemon

import (
	"net"
	"time"

	"steelyard/collectors/ledger"
	"steelyard/controlplane"
	"steelyard/controlplane/admin"
	"steelyard/controlplane/view"
	"steelyard/weighting"
	"steelyard/xds"
)

// publisher publishes the loops' decisions through the xDS server. When a cluster is removed, it also removes its
// series and its history.
type publisher struct {
	*xds.Server
	metrics *admin.Metrics
	history *admin.History
}

func (p publisher) Remove(cluster string) {
	p.Server.Remove(cluster)
	p.metrics.Forget(cluster)
	p.history.Forget(cluster)
}

// acks keeps the metrics in step with the streams, by cluster and not by variant.
type acks struct{ metrics *admin.Metrics }

func (a acks) Acked(name string, delay time.Duration) { a.metrics.Acked(xds.BaseName(name), delay) }
func (a acks) Nacked(name, _, _ string)               { a.metrics.Nacked(xds.BaseName(name)) }

// observer keeps the metrics and the history in step with the loops.
type observer struct {
	metrics *admin.Metrics
	history *admin.History
}

func (o observer) Stepped(cluster string, before, d weighting.Decision, p controlplane.Push, took time.Duration) {
	o.metrics.Stepped(cluster, took)
	if p.Pushed {
		o.metrics.Pushed(cluster, p.Reason)
	} else {
		o.metrics.Suppressed(cluster, p.Reason)
	}
	addresses := make([]string, len(d.Endpoints))
	shares := make([]float64, len(d.Endpoints))
	was := before.Endpoints // sorted by address, like the current ones
	for i := range d.Endpoints {
		e := &d.Endpoints[i]
		addresses[i], shares[i] = e.Address, e.Share
		for len(was) > 0 && was[0].Address < e.Address {
			was = was[1:]
		}
		if flagged := len(was) > 0 && was[0].Address == e.Address && was[0].Overloaded; flagged != e.Overloaded {
			o.metrics.OverloadChanged(cluster, e.Overloaded)
		}
	}
	o.history.Add(cluster, d.At, addresses, shares)
}

// Clusters, Cluster, Clients and Status are the daemon's side of the admin API.
func (d *Daemon) Clusters() []view.Cluster { return d.manager.Clusters() }

// Cluster returns the view of one cluster.
func (d *Daemon) Cluster(name string) (view.Cluster, bool) {
	c := d.manager.Cluster(name)
	if c == nil {
		return view.Cluster{}, false
	}
	return c.View(time.Now()), true
}

// Status returns the state of the process.
func (d *Daemon) Status() admin.Status {
	d.mu.Lock()
	generation := d.generation
	d.mu.Unlock()
	s := admin.Status{
		Signals: d.signals.totals(time.Now()), XDSPort: d.viewPort(), AdminPort: d.viewAdminPort(),
		StartedAt:        view.At(d.started),
		ConfigGeneration: generation, Draining: d.draining.Load(), BeenReady: d.manager.BeenReady(),
	}
	s.Certificates, s.RefusedHandshakes = d.certificates.all(), d.refusedHandshakes()
	for _, g := range d.streams.Gone() {
		s.GoneEnvoys = append(s.GoneEnvoys,
			admin.GoneEnvoy{NodeID: g.NodeID, Address: g.Peer, Since: view.At(g.Since), Cause: g.Cause})
	}
	if d.options.LogStatus != nil {
		s.Log = d.options.LogStatus()
	}
	s.LastReload.OK = true
	if d.options.ConfigStatus == nil {
		return s
	}
	c := d.options.ConfigStatus()
	s.ConfigFile, s.ConfigWatchError = c.Path, c.WatchError
	s.LastReload = admin.Reload{At: view.At(c.LoadedAt), OK: c.Error == ""}
	if c.Error != "" {
		s.LastReload.At, s.LastReload.Error = view.At(c.ErrorAt), c.Error
	}
	return s
}

// Clients returns the connected Envoys.
func (d *Daemon) Clients() []admin.Client {
	clients := d.streams.Clients()
	signals := d.signals.clientSignals(time.Now())
	out := make([]admin.Client, len(clients))
	for i, c := range clients {
		out[i] = admin.Client{
			NodeID: c.NodeID, NodeCluster: c.NodeCluster, Version: c.Version, Locality: c.Locality,
			Address: c.Peer, ConnectedAt: view.At(c.ConnectedAt), Transport: c.Transport,
			Signals:    signals[envoyOf(c)],
			Duplicates: c.Duplicates, Subscriptions: make([]admin.Subscription, len(c.Subscriptions)),
		}
		for j, s := range c.Subscriptions {
			out[i].Subscriptions[j] = subscription(s)
		}
	}
	return out
}

// envoyOf returns the identity that the ledger has for a client.
func envoyOf(c xds.Client) ledger.Envoy {
	host, _, err := net.SplitHostPort(c.Peer)
	if err != nil {
		host = c.Peer
	}
	return ledger.Envoy{NodeID: c.NodeID, Host: host}
}

func subscription(s xds.Subscription) admin.Subscription {
	out := admin.Subscription{
		Resource: s.Cluster, Cluster: xds.BaseName(s.Cluster), Known: s.Known,
		VersionSent: s.VersionSent, VersionAcked: s.VersionAcked, InSync: s.InSync,
		LastSent: view.At(s.SentAt), LastAck: view.At(s.AckedAt),
		Acks: s.Acks, Nacks: s.Nacks,
		Nack: admin.Nack{Message: s.NackMessage, At: view.At(s.NackedAt), Current: s.Nacked},
	}
	if s.Acks > 0 {
		out.AckDelaySeconds = view.Seconds(s.AckDelaySmoothed)
	}
	return out
}

// Reloaded counts how a reload of the configuration ended.
func (d *Daemon) Reloaded(err error) { d.metrics.Reloaded(err == nil) }
