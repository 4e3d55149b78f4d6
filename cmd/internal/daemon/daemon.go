package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"steelyard/collectors/inflight"
	"steelyard/collectors/scrape"
	"steelyard/controlplane"
	"steelyard/controlplane/admin"
	"steelyard/controlplane/config"
	"steelyard/controlplane/liveness"
	"steelyard/xds"
	"steelyard/xds/envoyspec"
	"steelyard/xds/port"
)

// Options are what a Daemon needs besides its configuration.
type Options struct {
	Version string
	Log     *slog.Logger
	// ConfigStatus is the state of the configuration file for the admin API; nil where there is no file.
	ConfigStatus func() config.Status
	// LogStatus is the state of the process log for the admin API; nil if no line of it can get lost.
	LogStatus func() admin.LogStatus
}

// A Daemon is a running control plane.
type Daemon struct {
	options Options
	started time.Time

	xdsListener, adminListener *port.Listener

	streams *xds.Server
	signals *signals
	grpc    *grpc.Server
	manager *controlplane.Manager
	beats   *liveness.Monitor
	scrapes *scrape.Pool
	metrics *admin.Metrics
	history *admin.History

	draining atomic.Bool
	stale    chan struct{}         // the targets of the collectors are out of date; capacity one
	pollers  chan *inflight.Poller // the poller to run from now on, nil for none; capacity one

	allowedHosts []string // of the admin listener; the section cannot change while running
	certificates certificates
	recheck      chan struct{}   // the certificates in use may have changed; capacity one
	handshakes   *xds.Handshakes // nil for plain text

	applying sync.Mutex // one Apply at a time

	mu         sync.Mutex // guards the following fields, which only Apply changes
	config     *config.Config
	generation uint64
	poller     *inflight.Poller // nil without Redis

	scraping, polling liveness.Beat
}

// New binds the listeners and applies the configuration: discovery and the loops begin. A caller that does not call Run
// calls Close.
func New(cfg *config.Config, o Options) (*Daemon, error) {
	d := &Daemon{options: o, started: time.Now(), stale: make(chan struct{}, 1),
		pollers: make(chan *inflight.Poller, 1),
		recheck: make(chan struct{}, 1), history: admin.NewHistory()}
	tls, err := serverTLS(cfg.XDS.TLS)
	if err != nil {
		return nil, err
	}
	if err := d.listen(cfg); err != nil {
		return nil, err
	}
	d.beats, d.allowedHosts = liveness.New(o.Log), cfg.Admin.AllowedHosts
	d.metrics = admin.NewMetrics(admin.MetricsOptions{Version: o.Version})
	d.streams = xds.NewServer(xds.Options{Log: o.Log, Observer: acks{d.metrics}, Runtime: normalRuntime(cfg.XDS),
		Names: cfg.XDS.Limits.Subscriptions})
	d.signals = newSignals(o, cfg.XDS, d.streams, d.poke)
	d.grpc = d.newGRPC(d.transport(tls))
	d.streams.Register(d.grpc)
	d.signals.register(d.grpc)
	d.scrapes = scrape.New(d.scraped, o.Log)
	d.scrapes.Progress = &d.scraping
	d.manager = controlplane.NewManager(publisher{d.streams, d.metrics, d.history}, envoyspec.PushCost, d.signals,
		observer{d.metrics, d.history}, d.outdated, d.beats, o.Log)
	if err := d.Apply(cfg); err != nil {
		d.Close()
		return nil, err
	}
	d.metrics.Reloaded(true)
	return d, nil
}

// XDSAddress is the address for Envoys, AdminAddress that of the dashboard and the API: host:port.
func (d *Daemon) XDSAddress() string   { return d.xdsListener.Addr().String() }
func (d *Daemon) AdminAddress() string { return d.adminListener.Addr().String() }

// Close stops a Daemon that is not run.
func (d *Daemon) Close() {
	d.manager.Close()
	d.streams.Close()
	d.signals.close()
	d.xdsListener.Close()
	d.adminListener.Close()
}

// Run serves until ctx is done, then stops everything that was started and waits for it.
func (d *Daemon) Run(ctx context.Context) error {
	// The parts outlive ctx for as long as an orderly stop takes.
	background, stop := context.WithCancel(context.Background())
	defer stop()
	group, failed := errgroup.WithContext(background)
	group.Go(func() error { return d.scrapes.Run(failed) })
	group.Go(func() error { return d.pollRedis(failed) })
	group.Go(func() error { return d.followEndpoints(failed) })
	group.Go(func() error { return d.followSignals(failed) })
	group.Go(func() error { return d.followCertificates(failed) })
	d.watchOver(failed, group)
	group.Go(func() error {
		return admin.Serve(failed, d.adminListener, d.adminHandler())
	})
	d.options.Log.Info("serving", "xds", d.XDSAddress(), "admin", "http://"+d.AdminAddress()+"/")
	envoys := make(chan error, 1)
	go func() {
		defer close(envoys)
		envoys <- d.serveEnvoys()
	}()
	var failure error
	select {
	case <-ctx.Done():
		d.options.Log.Info("stopping")
	case <-failed.Done():
	case failure = <-envoys:
	}
	err := d.stop(func() error {
		stop()
		return group.Wait()
	}, envoys)
	if err = cmp.Or(failure, err); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("serving: %w", err)
	}
	return nil
}

func (d *Daemon) adminHandler() http.Handler {
	return admin.New(admin.Options{
		Source: d, Metrics: d.metrics, History: d.history, Stuck: d.stuck, Version: d.options.Version,
		AllowedHosts: d.allowedHosts, Log: d.options.Log,
	})
}

// poke wakes the loop of a cluster.
func (d *Daemon) poke(cluster string) {
	if c := d.manager.Cluster(cluster); c != nil {
		c.Poke()
	}
}

// Apply makes cfg the running configuration, without a gap in any stream. A cfg that can only be applied by a restart
// is refused, and changes nothing.
func (d *Daemon) Apply(cfg *config.Config) error {
	change, generation, err := d.apply(cfg)
	if err != nil {
		return err
	}
	d.options.Log.Info("configuration applied", "generation", generation,
		"added", change.Added, "changed", change.Changed, "removed", change.Removed)
	return nil
}

func (d *Daemon) apply(cfg *config.Config) (change config.Change, generation uint64, err error) {
	d.applying.Lock()
	defer d.applying.Unlock()
	running := d.config // changed only here
	if running == nil {
		running = &config.Config{XDS: cfg.XDS, Admin: cfg.Admin}
	}
	change = config.Diff(running, cfg)
	if err := admissible(change); err != nil {
		return change, 0, err
	}
	poller := d.poller
	if change.Redis {
		if poller, err = d.newPoller(cfg.Redis); err != nil { // reads files, so not under the lock
			return change, 0, err
		}
		select {
		case <-d.pollers: // a poller that was never started
		default:
		}
		d.pollers <- poller
		d.certificates.forget(admin.UseRedisCA)
	}
	generation = d.swap(cfg, poller)
	poke(d.recheck)
	d.manager.Apply(cfg)
	return change, generation, nil
}

// swap makes cfg the configuration that retarget and the admin API use.
func (d *Daemon) swap(cfg *config.Config, poller *inflight.Poller) (generation uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.config, d.poller = cfg, poller
	d.generation++
	return d.generation
}

// admissible refuses changes that need a restart.
func admissible(c config.Change) error {
	switch {
	case c.XDS:
		return errors.New("the section xds cannot change while running: restart to change it")
	case c.Admin:
		return errors.New("the section admin cannot change while running: restart to change it")
	}
	return nil
}
