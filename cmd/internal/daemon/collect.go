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
	"steelyard/controlplane"
	"steelyard/controlplane/config"
	"steelyard/controlplane/discovery"
	"steelyard/controlplane/liveness"
)

// outdated is called when the endpoints or the configuration have changed.
func (d *Daemon) outdated() { poke(d.stale) }

func poke(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default: // a signal is already pending
	}
}

// followEndpoints gives the collectors their targets whenever those change, until ctx is done.
func (d *Daemon) followEndpoints(ctx context.Context) error {
	var beat liveness.Beat
	defer d.beats.Watch("endpoints for the collectors", &beat)()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-d.stale:
			beat.Begin()
			d.retarget()
			beat.End()
		}
	}
}

// followSignals keeps the ledger in step with the Envoys that subscribe, until ctx is done.
func (d *Daemon) followSignals(ctx context.Context) error {
	var beat liveness.Beat
	defer d.beats.Watch("what Envoys report", &beat)()
	return d.signals.run(ctx, &beat)
}

// retarget gives the collectors the current targets.
func (d *Daemon) retarget() {
	var targets []scrape.Target
	var keys []inflight.Key
	members := make(map[string]membership)
	d.manager.Each(func(c config.Cluster, endpoints []discovery.Endpoint) {
		members[c.Name] = membership{endpoints, c.Latency.Alpha}
		if key := c.Inflight.Key(c.Name); key != "" {
			keys = append(keys, inflight.Key{Cluster: c.Name, Key: key})
		}
		if c.Scrape.Disabled {
			return
		}
		for _, e := range endpoints {
			targets = append(targets, target(c, e))
		}
	})
	d.keepFiles(len(targets))
	d.scrapes.SetTargets(targets)
	d.signals.setMembers(members)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.poller != nil {
		d.poller.SetKeys(keys)
	}
}

// target returns the metrics page of an endpoint: by the endpoint's own settings, else by those of its cluster, else at
// the serving port.
func target(c config.Cluster, e discovery.Endpoint) scrape.Target {
	host, port, _ := net.SplitHostPort(e.Address) // checked by discovery
	if n := cmp.Or(e.MetricsPort, c.Scrape.Port); n != 0 {
		port = strconv.Itoa(n)
	}
	t := scrape.Target{
		Cluster: c.Name, Address: e.Address,
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
		t.TLS = scrape.TLS{
			CAFile: s.CAFile, CertFile: s.CertFile, KeyFile: s.KeyFile,
			ServerName: s.ServerName, InsecureSkipVerify: s.InsecureSkipVerify,
		}
	}
	return t
}

// scraped passes the result of a scrape to its cluster.
func (d *Daemon) scraped(r scrape.Result) {
	if c := d.manager.Cluster(r.Cluster); c != nil {
		kind := scrape.Kind(r.Err)
		d.metrics.ScrapeDone(r.Cluster, kind, r.Duration, r.BodyBytes)
		c.Scraped(r.Address, r.Report, controlplane.Scrape{
			At: r.At, Took: r.Duration, Err: r.Err, Refused: kind == scrape.KindRefused,
		})
	}
}

// newPoller makes the poller of in-flight counts that cfg configures; nil for none.
func (d *Daemon) newPoller(cfg *config.Redis) (*inflight.Poller, error) {
	if cfg == nil {
		return nil, nil
	}
	o := inflight.Options{
		Addresses: cfg.Addresses, Mode: cfg.Mode, MasterName: cfg.MasterName,
		Username: cfg.Username, PasswordFile: cfg.PasswordFile, DB: cfg.DB,
		Interval: cfg.Interval, Timeout: cfg.Timeout,
		Progress: &d.polling, // of one poller after the other
	}
	if cfg.TLS != nil {
		o.TLS = (*inflight.TLS)(cfg.TLS)
	}
	p, err := inflight.New(o, d.counted, d.options.Log)
	if err != nil {
		return nil, fmt.Errorf("reading in-flight counts: %w", err)
	}
	return p, nil
}

// counted passes the results of a poll to the clusters. The poll as a whole succeeded if Redis answered for any key.
func (d *Daemon) counted(results []inflight.Result) {
	answered := false
	for _, r := range results {
		answered = answered || r.Err == nil || r.Requests != nil
		if c := d.manager.Cluster(r.Cluster); c != nil {
			d.metrics.Ignored(r.Cluster, c.Counted(r.Requests, r.At, r.Err))
		}
	}
	d.metrics.Polled(answered, results[0].Took)
}

// pollRedis runs the latest poller, until ctx is done.
func (d *Daemon) pollRedis(ctx context.Context) error {
	for stop := func() {}; ; {
		select {
		case <-ctx.Done():
			stop()
			return nil
		case p := <-d.pollers:
			stop()
			stop = run(ctx, p)
		}
	}
}

// run starts a poller and returns what stops it and waits for it.
func run(ctx context.Context, p *inflight.Poller) (stop func()) {
	if p == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = p.Run(ctx) // it only ends with ctx
	}()
	return func() {
		cancel()
		<-done
	}
}
