package daemon

import (
	"slices"
	"time"

	"steelyard/controlplane"
	"steelyard/controlplane/admin/history"
	"steelyard/controlplane/admin/metrics"
	"steelyard/internal/api"
	"steelyard/weighting"
	"steelyard/xds"
	"steelyard/xds/loads"
	"steelyard/xds/places"
)

// publisher is where the loops' decisions go.
func (d *Daemon) publisher() publisher { return publisher{d.streams, d.metrics, d.loads} }

// observer is what watches every step of the loops.
func (d *Daemon) observer() observer { return observer{d.metrics, d.recorder, d.loads, d.places} }

// publisher publishes the loops' decisions through the xDS server. When a cluster is removed, it also removes its
// series.
type publisher struct {
	*xds.Server
	metrics *metrics.Metrics
	loads   *loads.Server
}

func (p publisher) Remove(cluster string) {
	p.Server.Remove(cluster)
	p.loads.Remove(cluster)
	p.metrics.Forget(cluster)
}

// acks keeps the metrics in step with the streams, by cluster and not by variant.
type acks struct {
	metrics *metrics.Metrics
}

// Acked records an ACK.
func (a acks) Acked(name string, delay time.Duration) {
	a.metrics.Acked(xds.BaseName(name), delay)
}

// Nacked records a NACK.
func (a acks) Nacked(name string) {
	a.metrics.Nacked(xds.BaseName(name))
}

// observer keeps the metrics, and the records in step with the loops.
type observer struct {
	metrics  *metrics.Metrics
	recorder *history.Recorder
	loads    *loads.Server
	places   *places.Server
}

func (o observer) Stepped(cluster string, before, d weighting.Decision, p controlplane.Push, took time.Duration) {
	o.loads.Publish(cluster, d)
	o.places.Publish(cluster, d)
	o.metrics.Stepped(cluster, took)
	was := before.Endpoints // sorted by address, like the current ones
	for i := range d.Endpoints {
		e := &d.Endpoints[i]
		for len(was) > 0 && was[0].Address < e.Address {
			was = was[1:]
		}
		if flagged := len(was) > 0 && was[0].Address == e.Address && was[0].Overloaded; flagged != e.Overloaded {
			o.metrics.OverloadChanged(cluster, e.Overloaded)
		}
	}
	if !p.Pushed {
		o.metrics.Suppressed(cluster, p.Reason)
		return
	}
	o.metrics.Pushed(cluster, p.Reason)
	decided := history.Decided{ArrivalRate: d.ArrivalRate, Addresses: make([]string, len(d.Endpoints)),
		Shares: make([]float64, len(d.Endpoints)), Flagged: make([]bool, len(d.Endpoints)),
		Unused: make([]bool, len(d.Endpoints))}
	for i := range d.Endpoints {
		e := &d.Endpoints[i]
		decided.Addresses[i], decided.Shares[i], decided.Flagged[i] = e.Address, e.Share, e.Overloaded
		decided.Unused[i] = e.Reason == weighting.ReasonUnused
	}
	o.recorder.Pushed(cluster, d.At, decided)
}

// Matrix returns the requests in flight of a cluster by Envoy and endpoint.
func (d *Daemon) Matrix(cluster string) (api.Matrix, bool) {
	if d.manager.Cluster(cluster) == nil {
		return api.Matrix{}, false
	}
	counts, _ := d.signals.ledger.Matrix(cluster)
	m := api.Matrix{Cluster: cluster, Endpoints: counts.Addresses}
	for _, r := range counts.Rows {
		source := api.SourceLoadReports
		if r.ByLog {
			source = api.SourceAccessLog
		}
		m.Envoys = append(m.Envoys, api.MatrixRow{NodeID: r.Envoy.NodeID, Host: r.Envoy.Host, Source: source,
			InFlight: r.InFlight})
	}
	return m, true
}

// Shadow returns what was recorded of a cluster while nobody followed its weights.
func (d *Daemon) Shadow(cluster string) (api.Shadow, bool) {
	v := api.Shadow{Cluster: cluster}
	if d.manager.Cluster(cluster) == nil {
		return v, false
	}
	v.Recording = d.streams.Shadowed(cluster)
	r, ok := d.signals.ledger.Recorded(cluster, time.Now())
	if !ok {
		return v, true
	}
	v.Began, v.Seconds, v.Requests, v.Arrivals = api.At(r.Began), api.Seconds(r.Length), r.Requests, r.Arrivals
	v.AnswerP50, v.AnswerP99 = api.Num(r.P50), api.Num(r.P99)
	for _, e := range r.Envoys {
		v.Envoys = append(v.Envoys, api.ShadowEnvoy{NodeID: e.NodeID, Requests: e.Requests})
	}
	for _, e := range r.Endpoints {
		v.Endpoints = append(v.Endpoints, api.ShadowEndpoint{Address: e.Address, Requests: e.Requests,
			InFlight: api.Num(e.InFlight), AnswerP99: api.Num(e.P99), Slots: api.Num(e.Slots),
			ServiceSeconds: api.Num(e.ServiceSeconds)})
	}
	for _, q := range r.Service {
		v.Service = append(v.Service, api.Num(q))
	}
	return v, true
}

// Clusters, Cluster, Clients and Status are the daemon's side of the admin API.
func (d *Daemon) Clusters() []api.Cluster {
	clusters, pickers := d.manager.Clusters(), d.loads.Followers()
	for i := range clusters {
		d.hideDrops(&clusters[i], pickers)
		d.addAnswerTimes(&clusters[i])
		d.addQueue(&clusters[i])
		d.addRoutes(&clusters[i])
	}
	return clusters
}

// hideDrops makes the part of the requests to refuse unknown where no Envoy or picker gets it.
func (d *Daemon) hideDrops(c *api.Cluster, pickers []api.Picker) {
	if !d.streams.Followed(c.Name) && !slices.ContainsFunc(pickers,
		func(p api.Picker) bool { return p.Follows(c.Name) }) {
		c.Decision.DropFraction = api.Number{}
	}
}

// addAnswerTimes fills in the times of answers that the ledger has.
func (d *Daemon) addAnswerTimes(c *api.Cluster) {
	times, all := d.signals.ledger.AnswerTimes(c.Name)
	c.AnswerP99Seconds = api.Num(all)
	for i := range c.Endpoints { // both are sorted by address
		e := &c.Endpoints[i]
		for len(times) > 0 && times[0].Address < e.Address {
			times = times[1:]
		}
		if len(times) > 0 && times[0].Address == e.Address {
			e.AnswerP99Seconds = api.Num(times[0].P99)
		}
	}
}

// Cluster returns the view of one cluster.
func (d *Daemon) Cluster(name string) (api.Cluster, bool) {
	c := d.manager.Cluster(name)
	if c == nil {
		return api.Cluster{}, false
	}
	v := c.View(time.Now())
	d.hideDrops(&v, d.loads.Followers())
	d.addAnswerTimes(&v)
	d.addQueue(&v)
	d.addRoutes(&v)
	return v, true
}

// Status returns the state of the process.
func (d *Daemon) Status() api.Status {
	d.mu.Lock()
	generation := d.generation
	d.mu.Unlock()
	s := api.Status{
		Signals: d.signals.totals(time.Now()), XDSPort: d.xdsPort(), AdminPort: d.adminListener.Stats().AdminPort,
		StartedAt:        api.At(d.started),
		ConfigGeneration: generation, Draining: d.draining.Load(),
		Program: d.kubernetes.pod.Program(), OwnPod: d.kubernetes.pod, BeenReady: d.manager.EverReady(),
	}
	s.Replicas = d.link.Status()
	s.Overrides = d.operate.status()
	s.Pickers = api.Pickers{List: d.loads.Followers(), SharedPrompts: d.loads.SharedPrompts()}
	s.GoneEnvoys, s.XDSAccess = d.streams.Gone(), d.viewAccess()
	s.Certificates, s.Pools, s.Pods = d.certificates(), d.poolsStatus(), d.podActions.state()
	s.Pools.StatusError = d.parents.failing()
	if d.gateway != nil {
		s.EnvoyGateway = d.gateway.State()
	}
	if d.handshakes != nil {
		s.RefusedHandshakes = d.handshakes.Refused()
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
	s.LastReload = api.Reload{At: api.At(c.LoadedAt), OK: c.Error == ""}
	if c.Error != "" {
		s.LastReload.At, s.LastReload.Error = api.At(c.ErrorAt), c.Error
	}
	return s
}

// Clients returns the connected Envoys.
func (d *Daemon) Clients() []api.Client {
	clients := d.streams.Clients()
	signals := d.signals.clientSignals(time.Now())
	out := make([]api.Client, len(clients))
	for i, c := range clients {
		out[i] = api.Client{Connection: c, Signals: signals[xds.EnvoyOf(&c)]}
	}
	return out
}

// Reloaded counts how a reload of the configuration ended.
func (d *Daemon) Reloaded(err error) {
	d.metrics.Reloaded(err == nil)
	if err != nil {
		d.recorder.ConfigRefused(time.Now(), err.Error())
	}
}
