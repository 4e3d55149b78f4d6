package daemon

import (
	"crypto/rand"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"steelyard/collectors/inflight"
	"steelyard/collectors/replicas"
	"steelyard/collectors/replicas/merge"
	"steelyard/collectors/scrape"
	"steelyard/controlplane"
	"steelyard/controlplane/config"
	"steelyard/internal/api"
	"steelyard/weighting/flight"
)

// newLink makes the link to other replicas that cfg configures; nil for none.
func (d *Daemon) newLink(cfg *config.Config) (*replicas.Link, error) {
	if cfg.Replicas == nil || cfg.Replicas.Lease == config.LeaseNone || cfg.Redis == nil {
		return nil, nil
	}
	connect, err := inflight.Connector(d.redisOptions(cfg.Redis))
	if err != nil {
		return nil, fmt.Errorf("connecting the replicas: %w", err)
	}
	link := replicas.New(merge.ID(rand.Text()), replicas.Options{
		Connect: clientOf(connect),
		Prefix:  cfg.Replicas.Prefix, Name: replicaName(cfg.Replicas), Log: d.options.Log,
		Own: d.signals.own,
		Changed: func(clusters []string) {
			for _, name := range clusters {
				d.pokeCluster(name)
			}
		},
	})
	return link, nil
}

func clientOf(connect func() (redis.UniversalClient, func())) func() replicas.Client {
	return func() replicas.Client {
		client, stop := connect()
		return replicas.Client{UniversalClient: client, Stop: stop}
	}
}

// poke wakes the loop of a cluster of which Envoys here reported, and the other replicas.
func (d *Daemon) poke(cluster string) {
	d.pokeCluster(cluster)
	if link := d.signals.link.Load(); link != nil {
		link.CountsChanged(cluster)
	}
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
	link := s.link.Load()
	if link == nil {
		return own
	}
	return link.Merge(now, cluster, own, s.ledger.Parts(cluster, nil), counts, before)
}

// replicasSource is the state of the other replicas as a source of counts, where they are configured.
func (s *signals) replicasSource() []api.SourceStatus {
	link := s.link.Load()
	if link == nil {
		return nil
	}
	status := link.Status()
	out := api.SourceStatus{Name: api.SourceReplicas, State: api.SourceOK, LastSuccess: api.At(time.Now())}
	if !status.Connected {
		out.State, out.LastSuccess = api.SourceDown, status.Since
		out.LastError = "Redis: " + status.Error +
			"; this replica uses only the counts of its own Envoys"
	}
	return []api.SourceStatus{out}
}

// replicasStatus is the state of the replicas, for the admin API.
func (d *Daemon) replicasStatus() api.Replicas {
	link := d.signals.link.Load()
	if link == nil {
		return api.Replicas{}
	}
	return link.Status()
}
