package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"reflect"
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
	"steelyard/xds"
)

// Options are what a Daemon needs besides its configuration.
type Options struct {
	Version string
	Log     *slog.Logger
	// ConfigStatus tells the admin API where the configuration comes from; nil
	// where it comes from no file.
	ConfigStatus func() config.Status
}

// A Daemon is a running control plane.
type Daemon struct {
	options Options
	started time.Time

	xdsListener, adminListener net.Listener

	streams *xds.Server
	grpc    *grpc.Server
	manager *controlplane.Manager
	scrapes *scrape.Pool
	metrics *admin.Metrics
	history *admin.History

	draining atomic.Bool
	pollers  chan *inflight.Poller // the one to run from now on, nil for none; capacity one

	applying sync.Mutex // one Apply at a time

	mu         sync.Mutex // what follows, and one retarget at a time
	config     *config.Config
	generation uint64
	poller     *inflight.Poller // nil without Redis
}

// New binds the listeners and applies the configuration: discovery and the loops
// begin. Whoever does not call Run calls Close.
func New(cfg *config.Config, o Options) (*Daemon, error) {
	d := &Daemon{options: o, started: time.Now(), pollers: make(chan *inflight.Poller, 1), history: admin.NewHistory()}
	tls, err := serverTLS(cfg.XDS.TLS)
	if err != nil {
		return nil, err
	}
	if d.xdsListener, err = net.Listen("tcp", cfg.XDS.Listen); err != nil {
		return nil, fmt.Errorf("listening for Envoys (xds.listen): %w", err)
	}
	if d.adminListener, err = net.Listen("tcp", cfg.Admin.Listen); err != nil {
		d.xdsListener.Close()
		return nil, fmt.Errorf("listening for the admin API (admin.listen): %w", err)
	}
	d.metrics = admin.NewMetrics(admin.MetricsOptions{Version: o.Version})
	d.streams = xds.NewServer(xds.Options{Log: o.Log, Observer: acks{d.metrics}})
	d.grpc = grpc.NewServer(xds.GRPCOptions(tls)...)
	d.streams.Register(d.grpc)
	d.scrapes = scrape.New(d.scraped, o.Log)
	d.manager = controlplane.NewManager(publisher{d.streams, d.metrics, d.history}, observer{d.metrics, d.history}, d.retarget, o.Log)
	if err := d.Apply(cfg); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// XDSAddress is where Envoys connect, AdminAddress where people do: host:port.
func (d *Daemon) XDSAddress() string   { return d.xdsListener.Addr().String() }
func (d *Daemon) AdminAddress() string { return d.adminListener.Addr().String() }

// Close ends a Daemon that is not run.
func (d *Daemon) Close() {
	d.manager.Close()
	d.streams.Close()
	d.xdsListener.Close()
	d.adminListener.Close()
}

// Run serves until ctx is done, then stops everything that was started and waits
// for it.
func (d *Daemon) Run(ctx context.Context) error {
	// The parts outlive ctx for as long as it takes to stop them in order.
	background, stop := context.WithCancel(context.Background())
	defer stop()
	group, failed := errgroup.WithContext(background)
	group.Go(func() error { return d.scrapes.Run(failed) })
	group.Go(func() error { return d.pollRedis(failed) })
	group.Go(func() error { return d.grpc.Serve(d.xdsListener) })
	group.Go(func() error {
		handler := admin.New(admin.Options{Source: d, Metrics: d.metrics, History: d.history, Version: d.options.Version, Log: d.options.Log})
		return admin.Serve(failed, d.adminListener, handler)
	})
	d.options.Log.Info("serving", "xds", d.XDSAddress(), "admin", "http://"+d.AdminAddress()+"/")
	select {
	case <-ctx.Done():
		d.options.Log.Info("stopping")
	case <-failed.Done():
	}
	d.draining.Store(true)
	d.streams.Close()
	d.grpc.GracefulStop()
	d.manager.Close()
	stop()
	if err := group.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("serving: %w", err)
	}
	return nil
}

// Apply makes cfg the running configuration, without a gap in any stream. What
// can only change with a restart is refused, and nothing is changed then.
func (d *Daemon) Apply(cfg *config.Config) error {
	d.applying.Lock()
	defer d.applying.Unlock()
	if err := d.swap(cfg); err != nil {
		return err
	}
	d.manager.Apply(cfg.Clusters)
	return nil
}

// swap checks cfg and makes it the one that retarget and the admin API see.
func (d *Daemon) swap(cfg *config.Config) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.admissible(cfg); err != nil {
		return err
	}
	if d.config == nil || !reflect.DeepEqual(d.config.Redis, cfg.Redis) {
		poller, err := d.newPoller(cfg.Redis)
		if err != nil {
			return err
		}
		d.poller = poller
		select {
		case <-d.pollers: // one that was never started
		default:
		}
		d.pollers <- poller
	}
	d.config = cfg
	d.generation++
	return nil
}

// admissible refuses what a running process cannot change.
func (d *Daemon) admissible(cfg *config.Config) error {
	if d.config == nil {
		return nil
	}
	if !reflect.DeepEqual(d.config.XDS, cfg.XDS) {
		return errors.New("the section xds cannot change while Envoys are connected: restart to change it")
	}
	if d.config.Admin != cfg.Admin {
		return errors.New("the section admin cannot change while running: restart to change it")
	}
	return nil
}
