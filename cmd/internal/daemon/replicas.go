package daemon

import (
	"context"
	"crypto/rand"
	"net"
	"time"

	"steelyard/collectors/replicas"
	"steelyard/collectors/replicas/merge"
	"steelyard/collectors/scrape"
	"steelyard/controlplane"
	"steelyard/controlplane/config"
	"steelyard/internal/api"
	"steelyard/internal/files"
	"steelyard/weighting/flight"
)

// newLink makes the link to other replicas, which follows none before it is configured. They are reached and trusted as
// for the queues.
func (d *Daemon) newLink() *replicas.Link {
	return replicas.New(merge.ID(rand.Text()), replicas.Options{
		Dial: d.places.Dial, Trusted: d.places.Trusted, Log: d.options.Log, Own: d.signals.own,
		Envoys: d.connected, Kept: d.keptRoutes, Routes: d.takeRoutes,
		Changed: func(clusters []string) {
			for _, name := range clusters {
				d.pokeCluster(name)
			}
		},
	})
}

// replicas are the settings of a configuration; nil for the only replica.
func (d *Daemon) replicas(cfg *config.Config) *config.Replicas {
	switch r := cfg.Replicas; {
	case r != nil && r.Lease == config.LeaseNone:
		return nil
	case r == nil && d.options.Service != "":
		return &config.Replicas{Service: d.options.Service}
	default:
		return r
	}
}

// A finder finds the other replicas, until ctx is done.
type finder struct{ find func(ctx context.Context) }

// Run implements runner.
func (f *finder) Run(ctx context.Context) error {
	f.find(ctx)
	return nil
}

// findReplicas has the link follow the replicas that cfg names.
func (d *Daemon) findReplicas(cfg *config.Config) {
	r := d.replicas(cfg)
	if r == nil {
		d.link.Configure(replicas.Settings{})
		replace(d.finders, nil)
		return
	}
	d.link.Configure(replicas.Settings{Enabled: true, Name: replicaName(r)})
	f := &finder{func(ctx context.Context) { replicas.LookUp(ctx, r.Peers, d.link.SetPeers) }}
	if r.Service != "" {
		_, port, _ := net.SplitHostPort(d.XDSAddress())
		f.find = func(ctx context.Context) {
			d.kubernetes.client.Addresses(ctx, r.Service, port, d.link.SetPeers)
		}
	}
	replace(d.finders, f)
}

// checkReplicas complains of a certificate by which no replica would know another one.
func checkReplicas(ctx context.Context, cfg *config.Config, c *config.Checker) {
	t := cfg.XDS.TLS
	switch {
	case cfg.Replicas == nil || cfg.Replicas.Lease == config.LeaseNone || t == nil:
		return
	case t.ClientCAFile == "":
		c.Fail(&cfg.XDS.TLS, "replicas check each other's certificates by xds.tls.client_ca_file: write it, or "+
			"replicas: {lease: none} if this replica is the only one")
		return
	}
	pair, err := files.KeyPair(ctx, t.CertFile, t.KeyFile)
	if err == nil && len(namesOf(pair.Leaf)) == 0 {
		c.Fail(&t.CertFile, "%s has no DNS name, by which replicas know each other: write one with a name that no "+
			"Envoy has", t.CertFile)
	}
}

// poke wakes the loop of a cluster of which Envoys here reported, and the other replicas.
func (d *Daemon) poke(cluster string) {
	d.pokeCluster(cluster)
	d.link.CountsChanged(cluster)
}

func (d *Daemon) pokeCluster(cluster string) {
	if c := d.manager.Cluster(cluster); c != nil {
		c.Poke()
	}
}

// scraped passes the result of a scrape to its cluster.
func (d *Daemon) scraped(r scrape.Result) {
	c := d.manager.Cluster(r.Cluster)
	if c == nil {
		return
	}
	kind := scrape.Kind(r.Err)
	d.metrics.ScrapeDone(r.Cluster, kind, r.Duration, r.BodyBytes)
	s := controlplane.Scrape{At: r.At, Took: r.Duration, Err: r.Err, Refused: kind == scrape.KindRefused,
		Doubt: r.Doubt, WrongCounters: r.WrongCounters, FirstToken: r.FirstToken}
	c.Scraped(r.Address, r.Report, s)
}

// own is what the Envoys of this replica have of a cluster.
func (s *signals) own(cluster string, into []flight.Part) (flight.Watchers, []flight.Part) {
	return s.ledger.Cluster(cluster, time.Now()).Watchers, s.ledger.Parts(cluster, into)
}

// inFlight is how many requests the Envoys of this replica have at each endpoint of a cluster, without zeros.
func (s *signals) inFlight(cluster string) map[string]int64 {
	out := make(map[string]int64)
	for _, p := range s.ledger.Parts(cluster, nil) {
		if p.InFlight > 0 {
			out[p.Address] = p.InFlight
		}
	}
	return out
}

// addOthers adds the counts of other replicas to those of this one.
func (s *signals) addOthers(cluster string, now time.Time, own flight.Watchers, counts []flight.Counts,
	before time.Time) flight.Watchers {
	return s.link.Merge(now, cluster, own, s.ledger.Parts(cluster, nil), counts, before)
}

// replicasSource is the state of the other replicas as a source of counts, where there may be some.
func (s *signals) replicasSource() []api.SourceStatus {
	status := s.link.Status()
	if !status.Enabled {
		return nil
	}
	out := api.SourceStatus{Name: api.SourceReplicas, State: api.SourceOK, LastSuccess: api.At(time.Now())}
	if !status.Connected {
		out.State, out.LastSuccess = api.SourceDown, status.Since
		out.LastError = status.Error + "; what the Envoys there have in flight is not known"
	}
	return []api.SourceStatus{out}
}
