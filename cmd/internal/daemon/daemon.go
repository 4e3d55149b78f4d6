package daemon

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/types"

	"steelyard/collectors/inflight"
	"steelyard/collectors/replicas"
	"steelyard/collectors/scrape"
	"steelyard/controlplane"
	"steelyard/controlplane/admin"
	"steelyard/controlplane/admin/conditions"
	"steelyard/controlplane/admin/history"
	"steelyard/controlplane/admin/metrics"
	"steelyard/controlplane/config"
	"steelyard/controlplane/liveness"
	"steelyard/internal/api"
	"steelyard/internal/credentials"
	"steelyard/internal/loops"
	"steelyard/picking/queue"
	"steelyard/xds"
	"steelyard/xds/access"
	"steelyard/xds/envoyspec"
	"steelyard/xds/loads"
	"steelyard/xds/places"
	"steelyard/xds/port"
)

// Options are what a Daemon needs besides its configuration.
type Options struct {
	Version string
	Log     *slog.Logger
	// Service is the Kubernetes Service by which the replicas find each other where the configuration does not say how;
	// empty for none.
	Service string
	// ConfigStatus is the state of the configuration file for the admin API; nil where there is no file.
	ConfigStatus func() config.Status
	// LogStatus is the state of the process log for the admin API; nil if no line of it can get lost.
	LogStatus func() api.LogStatus
	// LogLevel is the least level that is logged, which the admin API can change; nil if it is none of this process's.
	LogLevel *slog.LevelVar
}

// A Daemon is a running control plane.
type Daemon struct {
	options Options
	started time.Time
	replica string // identifies this process among the replicas
	// replicaNames are the names by which certificates show other replicas; none without certificates of clients
	replicaNames []string

	xdsListener, adminListener *port.Listener

	streams *xds.Server
	signals *signals
	link    *replicas.Link
	loads   *loads.Server
	places  *places.Server
	grpc    *grpc.Server
	manager *controlplane.Manager
	operate *operator
	monitor *liveness.Monitor
	scrapes *scrape.Pool
	metrics *metrics.Metrics
	// recorder samples all state every second, for the admin API
	recorder *history.Recorder

	draining atomic.Bool
	stale    loops.Signal          // the targets of the collectors are out of date
	pollers  chan *inflight.Poller // the poller to run from now on, nil for none; capacity one
	finders  chan *finder          // the same of what finds the other replicas
	keepers  chan *keeper          // the same of what keeps the lease on the queues

	poolsChanged loops.Signal     // which pools become clusters
	gateway      *extensionServer // nil if Envoy Gateway does not ask
	patience     patience         // of its calls
	parents      parents          // of pools

	allowedHosts []string // of the admin listener; the section cannot change while running
	access       *admin.Access
	adminTLS     *tls.Config     // nil for plain text
	handshakes   *xds.Handshakes // nil for plain text
	credentials  *credentials.Store
	guard        *access.Guard

	applying sync.Mutex // one Apply at a time
	epoch    uint64     // the highest that a keeper before has seen; guarded by applying

	leading sync.Mutex             // what a keeper that was replaced says does not count
	keeper  atomic.Pointer[keeper] // of the lease on the queues; nil for the only replica

	mu         sync.Mutex // guards the following fields; only Apply changes them, but for pools
	config     *config.Config
	written    *config.Config // without the clusters of InferencePools
	pools      pools
	generation uint64
	poller     *inflight.Poller // nil without Redis

	scraping, polling liveness.Activity

	kubernetes kubernetesAPI
	podActions podActions
}

// New binds the listeners and applies the configuration: discovery and the loops begin. A caller that does not call Run
// calls Close.
func New(cfg *config.Config, o Options) (*Daemon, error) {
	d := &Daemon{options: o, started: time.Now(), replica: rand.Text(), stale: loops.NewSignal(),
		pollers: make(chan *inflight.Poller, 1), finders: make(chan *finder, 1), keepers: make(chan *keeper, 1),
		poolsChanged: loops.NewSignal(), parents: newParents(),
		credentials: credentials.New(o.Log),
		guard:       access.NewGuard(o.Log)}
	d.kubernetes = newKubernetesAPI(cfg)
	xdsTLS, err := d.serverTLS(cfg.XDS.TLS, "xds.tls")
	if err != nil {
		return nil, err
	}
	if err := d.openAdmin(cfg.Admin); err != nil {
		return nil, err
	}
	if err := d.listen(cfg); err != nil {
		return nil, err
	}
	d.guard.Disconnect = d.xdsListener.Disconnect
	d.monitor, d.allowedHosts = liveness.New(o.Log), cfg.Admin.AllowedHosts
	d.metrics = metrics.NewMetrics(o.Version)
	d.recorder = history.NewRecorder(history.RecorderOptions{Source: d, Stuck: d.stuck, Log: o.Log})
	d.streams = xds.NewServer(xds.Options{Log: o.Log, Observer: acks{d.metrics},
		Runtime: normalRuntime(cfg.XDS), Names: cfg.XDS.Limits.Subscriptions})
	d.signals = newSignals(o, cfg.XDS, d.streams, d.guard.Reporter, d.poke)
	d.grpc = d.newGRPC(d.transport(xdsTLS))
	d.streams.Register(d.grpc)
	d.signals.register(d.grpc)
	d.loads = loads.New(o.Log)
	d.loads.Visible, d.loads.Learned = d.guard.Visible, d.learned
	d.loads.Register(d.grpc)
	d.places = places.New(d.metrics, o.Log, time.Now().Add(queue.Grace))
	d.connectReplicas(cfg.XDS.TLS)
	d.places.Register(d.grpc)
	d.link = d.newLink()
	d.link.Register(d.grpc)
	d.signals.link = d.link
	d.scrapes = scrape.New(d.scraped, o.Log)
	d.scrapes.Progress, d.scrapes.Credentials = &d.scraping, d.credentials
	d.manager = controlplane.NewManager(d.publisher(), envoyspec.PushCost, d.signals, d.observer(), d.outdated,
		d.monitor, o.Log)
	d.manager.UseKubernetes(d.kubernetes.source)
	d.operate = &operator{d: d}
	if d.gateway, err = d.openGateway(cfg.EnvoyGateway); err != nil {
		d.Close()
		return nil, err
	}
	if d.options.LogLevel == nil {
		d.options.LogLevel = new(slog.LevelVar)
	}
	if err := d.Apply(cfg); err != nil {
		d.Close()
		return nil, err
	}
	d.metrics.Reloaded(true)
	d.warnOfExposure(cfg)
	return d, nil
}

// XDSAddress is the address for Envoys, AdminAddress that of the dashboard and the API: host:port.
func (d *Daemon) XDSAddress() string   { return d.xdsListener.Addr().String() }
func (d *Daemon) AdminAddress() string { return d.adminListener.Addr().String() }

// Close stops a Daemon that is not run.
func (d *Daemon) Close() {
	d.manager.Close()
	d.operate.close()
	d.streams.Close()
	d.signals.close()
	d.loads.Close()
	d.places.Close()
	d.gateway.close()
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
	group.Go(func() error { return runLatest(failed, d.pollers) })
	group.Go(func() error { return d.link.Run(failed) })
	group.Go(func() error { return runLatest(failed, d.finders) })
	group.Go(func() error { return runLatest(failed, d.keepers) })
	group.Go(func() error { return d.followEndpoints(failed) })
	group.Go(func() error { return d.followSignals(failed) })
	group.Go(func() error { return d.places.Run(failed) })
	group.Go(func() error { return d.recorder.Run(failed) })
	group.Go(func() error { return d.credentials.Run(failed) })
	group.Go(func() error { return d.followTokens(failed) })
	group.Go(func() error { return d.kubernetes.run(failed) })
	group.Go(func() error { return d.operate.run(failed) })
	group.Go(func() error { return d.followPools(failed) })
	group.Go(func() error { return d.gateway.run(failed) })
	group.Go(func() error { return d.followParents(failed) })
	group.Go(func() error { return d.runPodActions(failed) })
	d.watchOver(failed, group)
	group.Go(func() error {
		return admin.Serve(failed, d.adminSocket(), d.adminHandler())
	})
	d.options.Log.Info("serving", "xds", d.XDSAddress(), "admin", d.adminScheme()+"://"+d.AdminAddress()+"/")
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
		Source: d, Metrics: d.metrics, Recorder: d.recorder, Operator: d.operate, Stuck: d.stuck,
		Version: d.options.Version, AllowedHosts: d.allowedHosts, Access: d.access, Log: d.options.Log,
	})
}

// Apply makes cfg the running configuration, without a gap in any stream. A cfg that can only be applied by a restart
// is refused, and changes nothing.
func (d *Daemon) Apply(cfg *config.Config) error {
	d.applying.Lock()
	defer d.applying.Unlock()
	return d.applyWritten(cfg)
}

// applyAgain takes in the InferencePools that have come or gone.
func (d *Daemon) applyAgain() error {
	d.applying.Lock()
	defer d.applying.Unlock()
	before := d.config
	next, unserved := d.withPools(d.written)
	d.mu.Lock()
	d.pools.unserved = unserved
	d.mu.Unlock()
	if c := config.Diff(before, next); len(c.Added)+len(c.Removed) == 0 {
		return nil
	}
	change, _, err := d.apply(d.written)
	if err != nil {
		return err
	}
	d.recorder.PoolsChanged(time.Now(), poolNames(d.config, change.Added), poolNames(before, change.Removed))
	d.options.Log.Info("clusters of InferencePools applied", "added", change.Added, "removed", change.Removed)
	return nil
}

// poolNames are the InferencePools of clusters.
func poolNames(cfg *config.Config, clusters []string) (pools []string) {
	for _, name := range clusters {
		if c := cfg.Cluster(name); c != nil && c.Endpoints.InferencePool != nil {
			pools = append(pools, c.Endpoints.InferencePool.Namespace+"/"+c.Endpoints.InferencePool.Name)
		}
	}
	return pools
}

func (d *Daemon) applyWritten(cfg *config.Config) error {
	change, generation, err := d.apply(cfg)
	if err != nil {
		return err
	}
	d.recorder.Configured(conditions.Configured{At: time.Now(), Generation: generation,
		Clusters: slices.Sorted(slices.Values(slices.Concat(change.Added, change.Changed)))})
	d.options.Log.Info("configuration applied", "generation", generation,
		"added", change.Added, "changed", change.Changed, "removed", change.Removed)
	return nil
}

// apply makes written the configuration, with the clusters of InferencePools.
func (d *Daemon) apply(written *config.Config) (change config.Change, generation uint64, err error) {
	running, first := d.config, d.config == nil // changed only here
	if first {
		running = &config.Config{XDS: written.XDS, Admin: written.Admin, Kubernetes: written.Kubernetes,
			EnvoyGateway: written.EnvoyGateway}
	}
	if err := admissible(config.Diff(running, written)); err != nil {
		return change, 0, err
	}
	if err := d.connectKubernetes(written); err != nil {
		return change, 0, err
	}
	cfg, unserved := d.withPools(written)
	change = config.Diff(running, cfg)
	poller := d.poller
	if change.Redis { // reads files, so not under the lock
		if poller, err = d.newPoller(cfg.Redis); err != nil {
			return change, 0, err
		}
	}
	keeper, err := d.nextKeeper(running, cfg, change)
	if err != nil {
		return change, 0, err
	}
	if change.Redis {
		if err := d.operate.connect(cfg.Redis); err != nil {
			return change, 0, err
		}
		replace(d.pollers, poller)
	}
	generation = d.swap(written, cfg, poller, unserved)
	if change.Replicas || first {
		d.findReplicas(cfg)
	}
	if client := d.kubernetes.known(); !slices.Equal(poolNamespaces(running, client), poolNamespaces(cfg, client)) {
		d.poolsChanged.Set()
	}
	d.followCredentials(cfg)
	d.followLease(keeper)
	d.configurePickers(cfg)
	if change.Clients || first {
		d.guard.SetRules(rulesOf(cfg.XDS, d.replicaNames))
	}
	d.manager.Apply(cfg)
	return change, generation, nil
}

// replace has what runs replaced by the next, also by one that never began.
func replace[T any](c chan T, next T) {
	select {
	case <-c:
	default:
	}
	c <- next
}

// swap makes cfg the configuration that retarget and the admin API use. The same one with other pools is no new one.
func (d *Daemon) swap(written, cfg *config.Config, poller *inflight.Poller, unserved map[types.NamespacedName]string) (
	generation uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if written != d.written {
		d.generation++
	}
	d.written, d.config, d.poller, d.pools.unserved = written, cfg, poller, unserved
	return d.generation
}

// configuration returns the one in force.
func (d *Daemon) configuration() *config.Config {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.config
}

// admissible refuses changes that need a restart.
func admissible(c config.Change) error {
	section := ""
	switch {
	case c.XDS:
		section = "xds"
	case c.Admin:
		section = "admin"
	case c.Kubernetes:
		section = "kubernetes"
	case c.EnvoyGateway:
		section = "envoy_gateway"
	default:
		return nil
	}
	return fmt.Errorf("the section %s cannot change while running: %s", section, api.RestartToChange)
}
