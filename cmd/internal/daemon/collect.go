package daemon

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"strconv"

	"steelyard/collectors/inflight"
	"steelyard/collectors/modelserver"
	"steelyard/collectors/scrape"
	"steelyard/controlplane/config"
	"steelyard/controlplane/discovery"
	"steelyard/controlplane/liveness"
	"steelyard/internal/credentials"
	"steelyard/internal/loops"
)

// outdated is called when the endpoints or the configuration have changed.
func (d *Daemon) outdated() { d.stale.Set() }

// followEndpoints gives the collectors their targets whenever those change, until ctx is done.
func (d *Daemon) followEndpoints(ctx context.Context) error {
	var activity liveness.Activity
	defer d.monitor.Watch("endpoints for the collectors", &activity)()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-d.stale:
			activity.Begin()
			d.retarget()
			activity.End()
		}
	}
}

// followSignals keeps the ledger in step with the Envoys that subscribe, until ctx is done.
func (d *Daemon) followSignals(ctx context.Context) error {
	var activity liveness.Activity
	defer d.monitor.Watch("what Envoys report", &activity)()
	return d.signals.run(ctx, &activity)
}

// retarget gives the collectors the current targets.
func (d *Daemon) retarget() {
	var targets []scrape.Target
	var keys []inflight.Key
	members, synced := make(map[string]membership), make(map[inflight.Key][]string)
	adding := make(map[inflight.Key]bool)
	clusters := make(map[string][]string) // by address
	d.manager.Each(func(c config.Cluster, endpoints []discovery.Endpoint) {
		members[c.Name] = membership{endpoints, c.Latency.Alpha}
		for _, e := range endpoints {
			clusters[e.Address] = append(clusters[e.Address], c.Name)
		}
		if key := c.Inflight.Key(c.Name); key != "" {
			k := inflight.Key{Cluster: c.Name, Key: key}
			keys = append(keys, k)
			if c.Inflight.SyncMembers {
				synced[k] = addresses(endpoints)
			}
			if c.Inflight.AddCounts {
				adding[k] = true
			}
		}
		if c.Scrape.Disabled {
			return
		}
		for _, e := range endpoints {
			targets = append(targets, Target(c, e))
		}
	})
	d.keepFiles(len(targets))
	d.signals.setMembers(members)
	d.guard.SetMembers(clusters)
	d.scrapes.SetTargets(targets)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.poller != nil {
		d.poller.SetKeys(keys)
		d.poller.SetMembers(synced)
		d.poller.SetAdding(adding)
	}
}

func addresses(endpoints []discovery.Endpoint) []string {
	out := make([]string, len(endpoints))
	for i, e := range endpoints {
		out[i] = e.Address
	}
	return out
}

// Target returns the metrics page of an endpoint: by the endpoint's own settings, else by those of its cluster, else at
// the serving port.
func Target(c config.Cluster, e discovery.Endpoint) scrape.Target {
	host, port, _ := net.SplitHostPort(e.Address) // checked by discovery
	if n := cmp.Or(e.MetricsPort, c.Scrape.Port); n != 0 {
		port = strconv.Itoa(n)
	}
	t := scrape.Target{
		Cluster: c.Name, Address: e.Address, ID: e.ID,
		URL:       c.Scrape.Scheme + "://" + net.JoinHostPort(host, port) + cmp.Or(e.MetricsPath, c.Scrape.Path),
		Engine:    modelserver.Engine(cmp.Or(e.Engine, c.Engine)),
		Interval:  c.Scrape.Interval,
		Timeout:   c.Scrape.Timeout,
		BodyLimit: int64(c.Scrape.BodyLimit),

		BearerTokenFile: c.Scrape.BearerTokenFile,
	}
	if c.Custom != nil {
		t.Custom = modelserver.Custom(*c.Custom)
	}
	if s := c.Scrape.TLS; s != nil {
		t.TLS = clientTLS(&s.ClientTLS)
		t.TLS.InsecureSkipVerify = s.InsecureSkipVerify
	}
	return t
}

// clientTLS is how to connect to a server with TLS, as configured.
func clientTLS(c *config.ClientTLS) credentials.Client {
	return credentials.Client{CAFile: c.CAFile, CertFile: c.CertFile, KeyFile: c.KeyFile, ServerName: c.ServerName}
}

// newPoller makes the poller of in-flight counts that cfg configures; nil for none.
func (d *Daemon) newPoller(cfg *config.Redis) (*inflight.Poller, error) {
	if cfg == nil {
		return nil, nil
	}
	o := d.redisOptions(cfg)
	o.Progress = &d.polling // of one poller after the other
	o.Own = d.signals.inFlight
	p, err := inflight.New(o, d.polled, d.options.Log)
	if err != nil {
		return nil, fmt.Errorf("reading in-flight counts: %w", err)
	}
	return p, nil
}

// redisOptions are how Redis is reached.
func (d *Daemon) redisOptions(cfg *config.Redis) inflight.Options {
	o := inflight.Options{
		Addresses: cfg.Addresses, Cluster: cfg.Mode == config.RedisCluster, MasterName: cfg.MasterName,
		Username: cfg.Username, PasswordFile: cfg.PasswordFile, DB: cfg.DB,
		SentinelUsername: cfg.SentinelUsername, SentinelPasswordFile: cfg.SentinelPasswordFile,
		Interval: cfg.Interval, Timeout: cfg.Timeout, Replica: d.replica,
	}
	if cfg.TLS != nil {
		files := clientTLS(cfg.TLS)
		o.TLS, o.Credentials = &files, d.credentials
	}
	return o
}

// polled passes the results of a poll to the clusters. The poll as a whole succeeded if Redis answered for any key.
func (d *Daemon) polled(results []inflight.Result) {
	answered := false
	for _, r := range results {
		answered = answered || r.Err == nil || r.Requests != nil
		if c := d.manager.Cluster(r.Cluster); c != nil {
			d.metrics.Ignored(r.Cluster, c.Counted(r.Requests, r.At, r.Err))
		}
	}
	d.metrics.Polled(answered, results[0].Took)
}

// A runner blocks until ctx is done; a pointer, which is nil for none.
type runner interface {
	comparable
	Run(ctx context.Context) error
}

// runLatest runs the latest of what it is sent, until ctx is done.
func runLatest[T runner](ctx context.Context, latest <-chan T) error {
	var none T
	for stop := func() {}; ; {
		select {
		case <-ctx.Done():
			stop()
			return nil
		case next := <-latest:
			stop()
			if stop = func() {}; next != none {
				stop = loops.Start(ctx, func(ctx context.Context) { _ = next.Run(ctx) }).Stop // it only ends with ctx
			}
		}
	}
}
