package daemon

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"steelyard/collectors/inflight"
	"steelyard/collectors/replicas"
	"steelyard/collectors/replicas/merge"
	"steelyard/collectors/scrape"
	"steelyard/controlplane"
	"steelyard/controlplane/config"
	"steelyard/internal/api"
	"steelyard/weighting"
	"steelyard/weighting/flight"
)

// newLink makes the link to other replicas that cfg configures; nil for none.
func (d *Daemon) newLink(cfg *config.Config) (*replicas.Link, error) {
	if cfg.Replicas == nil {
		return nil, nil
	}
	connect, err := inflight.Connector(d.redisOptions(cfg.Redis))
	if err != nil {
		return nil, fmt.Errorf("connecting the replicas: %w", err)
	}
	name := cfg.Replicas.Name
	if name == "" {
		host, _ := os.Hostname() // it is for people only
		name = cmp.Or(host, "unknown")
	}
	link := replicas.New(merge.ID(rand.Text()), replicas.Options{
		Connect: func() replicas.Client {
			client, stop := connect()
			return replicas.Client{UniversalClient: client, Stop: stop}
		},
		Prefix: cfg.Replicas.Prefix, Name: name, Log: d.options.Log,
		Own: d.signals.own, Scraped: d.scrapedElsewhere, Looked: d.divide,
		Changed: func(clusters []string) {
			for _, name := range clusters {
				d.pokeCluster(name)
			}
		},
	})
	return link, nil
}

// poke wakes the loop of a cluster of which Envoys here reported, and the other replicas.
func (d *Daemon) poke(cluster string) {
	d.pokeCluster(cluster)
	if link := d.signals.link.Load(); link != nil {
		link.Note(cluster)
	}
}

func (d *Daemon) pokeCluster(cluster string) {
	if c := d.manager.Cluster(cluster); c != nil {
		c.Poke()
	}
}

// A division is which endpoints this replica scrapes, and what all of them report.
type division struct {
	mu      sync.Mutex
	all     []scrape.Target
	mine    []scrape.Target // as the pool has them
	servers map[[2]string]*merge.Server
}

// setTargets replaces the targets of all replicas.
func (d *Daemon) setTargets(all []scrape.Target) {
	d.division.mu.Lock()
	servers := make(map[[2]string]*merge.Server, len(all))
	for _, t := range all {
		key := [2]string{t.Cluster, t.Address}
		if servers[key] = d.division.servers[key]; servers[key] == nil {
			servers[key] = &merge.Server{}
		}
	}
	d.division.all, d.division.servers = all, servers
	d.division.mine = d.division.part(d.signals.link.Load())
	d.scrapes.SetTargets(d.division.mine)
	d.division.mu.Unlock()
}

// divide gives the pool what has become this replica's, because others went or came.
func (d *Daemon) divide() {
	v := &d.division
	v.mu.Lock()
	defer v.mu.Unlock()
	if mine := v.part(d.signals.link.Load()); !slices.Equal(mine, v.mine) {
		v.mine = mine
		d.scrapes.TakeOver(mine)
	}
}

// part is the targets that are this replica's: all, where it is the only one.
func (v *division) part(link *replicas.Link) []scrape.Target {
	if link == nil {
		return v.all
	}
	mine, now := make([]scrape.Target, 0, len(v.all)), time.Now()
	for _, t := range v.all {
		if link.Mine(now, t.Cluster, t.Address, t.Interval) {
			mine = append(mine, t)
		}
	}
	return mine
}

// scrapedHere is how many endpoints this replica scrapes.
func (d *Daemon) scrapedHere() int {
	d.division.mu.Lock()
	defer d.division.mu.Unlock()
	return len(d.division.mine)
}

// scraped passes the result of a scrape to its cluster, and to the other replicas.
func (d *Daemon) scraped(r scrape.Result) {
	c := d.manager.Cluster(r.Cluster)
	if c == nil {
		return
	}
	kind := scrape.Kind(r.Err)
	d.metrics.ScrapeDone(r.Cluster, kind, r.Duration, r.BodyBytes)
	s := controlplane.Scrape{At: r.At, Took: r.Duration, Err: r.Err, Refused: kind == scrape.KindRefused,
		Doubt: r.Doubt, WrongCounters: r.WrongCounters, FirstToken: r.FirstToken}
	link := d.signals.link.Load()
	if link == nil {
		c.Scraped(r.Address, r.Report, s)
		return
	}
	shared := merge.Scrape{Cluster: r.Cluster, Address: r.Address, At: r.At, Took: r.Duration, Refused: s.Refused,
		Doubt: r.Doubt, Report: r.Report, WrongCounters: r.WrongCounters}
	if r.Err != nil {
		shared.Error = r.Err.Error()
	}
	link.Share(shared)
	d.join(c, link.ID(), r.Address, r.Report, s)
}

// scrapedElsewhere passes the result of another replica's scrape to its cluster.
func (d *Daemon) scrapedElsewhere(from merge.ID, name string, s merge.Scrape) {
	c := d.manager.Cluster(s.Cluster)
	if c == nil {
		return
	}
	took := controlplane.Scrape{At: s.At, Took: s.Took, Refused: s.Refused, Replica: name, Doubt: s.Doubt,
		WrongCounters: s.WrongCounters}
	if s.Error != "" {
		took.Err = errors.New(s.Error)
	}
	d.join(c, from, s.Address, s.Report, took)
}

// join passes a result on with sums that go on where those of another replica were.
func (d *Daemon) join(c *controlplane.Cluster, from merge.ID, address string, r weighting.ServerReport,
	s controlplane.Scrape) {
	if s.Err == nil {
		d.division.mu.Lock()
		server, ok := d.division.servers[[2]string{c.Name(), address}], false
		if server != nil {
			r, ok = server.Take(from, s.At, r)
		}
		d.division.mu.Unlock()
		if !ok {
			return // of an endpoint that is gone, or older than another
		}
	}
	c.Scraped(address, r, s)
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
			"; this replica uses only the counts of its own Envoys, and scrapes every endpoint"
	}
	return []api.SourceStatus{out}
}

// replicasStatus is the state of the replicas, for the admin API.
func (d *Daemon) replicasStatus() api.Replicas {
	link := d.signals.link.Load()
	if link == nil {
		return api.Replicas{}
	}
	s := link.Status()
	s.Scraping = api.Num(float64(d.scrapedHere()))
	return s
}
