package picker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	grpccredentials "google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"

	"steelyard/internal/credentials"
	"steelyard/picking"
	"steelyard/xds/loads/follow"
)

const (
	// maxMessage bounds a message of a proxy: a piece of a body, as large as its buffer.
	maxMessage = 4 << 20
	// maxStreams is the number of requests that one connection may have in progress.
	maxStreams = 65_536
	// healthInterval is how often the health is renewed.
	healthInterval = 250 * time.Millisecond
	// pingMinimum is how often a proxy may ping: half the interval of the bootstrap, as pings may be late.
	pingMinimum  = 500 * time.Millisecond
	adminTimeout = 10 * time.Second
)

// The services of gRPC health checking, besides that of the external processor itself.
const (
	serviceLiveness  = "liveness"
	serviceReadiness = "readiness"
)

// Options of a Picker.
type Options struct {
	Steelyard string // its xDS listener, host:port
	Listen    string // where proxies connect, host:port
	Admin     string // of /metrics, /healthz and /readyz, host:port
	Name      string // that Steelyard shows for it
	Clusters  []string
	// Strict answers 503 where there is no choice; otherwise the proxy balances on its own.
	Strict bool
	// Single names one endpoint, and none for retries, as some proxies read no list.
	Single bool
	// Prefix has choices wait for the body, if the proxy buffers and sends it, and prefer endpoints that have a
	// part of the prompt in their prefix cache, by the answers that the proxy got.
	Prefix bool
	// ServerTLS and ClientTLS are the files towards proxies and towards Steelyard; nil for plain text.
	ServerTLS *credentials.Server
	ClientTLS *credentials.Client
	Log       *slog.Logger
}

// A Picker is an external processor with its listeners.
type Picker struct {
	options         Options
	listener, admin net.Listener
	conn            *follow.Conn
	loads           *follow.Follower
	waiters         map[string]*follow.Waiter // by cluster
	health          *health.Server
	server          *grpc.Server
	registry        *prometheus.Registry
	credentials     *credentials.Store
}

// New binds the listeners. A caller that does not call Run calls Close.
func New(o Options) (*Picker, error) {
	if len(o.Clusters) == 0 {
		return nil, errors.New("no cluster: name at least one cluster of Steelyard's configuration")
	}
	p := &Picker{options: o, health: health.NewServer(), registry: prometheus.NewRegistry(),
		credentials: credentials.New(o.Log)}
	toProxies, toSteelyard, err := p.transports()
	if err != nil {
		return nil, err
	}
	if err := p.listen(); err != nil {
		return nil, err
	}
	if p.conn, err = follow.Dial(o.Steelyard, toSteelyard); err != nil {
		p.Close()
		return nil, err
	}
	p.loads = follow.New(p.conn, o.Name, o.Clusters, o.Log)
	if o.Prefix {
		p.loads.LearnRoutes()
	}
	p.waiters = make(map[string]*follow.Waiter)
	for _, c := range o.Clusters {
		w := p.loads.NewWaiter(c)
		w.Shared = true
		p.waiters[c] = w
	}
	p.serve(toProxies)
	return p, nil
}

// transports are the credentials of both sides; nil for plain text.
func (p *Picker) transports() (toProxies, toSteelyard grpccredentials.TransportCredentials, err error) {
	if f := p.options.ServerTLS; f != nil {
		config, err := p.credentials.Server(context.Background(), *f)
		if err != nil {
			return nil, nil, fmt.Errorf("the listener for proxies: %w", err)
		}
		toProxies = grpccredentials.NewTLS(config)
	}
	if f := p.options.ClientTLS; f != nil {
		if toSteelyard, err = follow.TLS(context.Background(), p.credentials, *f); err != nil {
			return nil, nil, fmt.Errorf("the connection to Steelyard: %w", err)
		}
	}
	return toProxies, toSteelyard, nil
}

func (p *Picker) listen() (err error) {
	if p.listener, err = net.Listen("tcp", p.options.Listen); err != nil {
		return fmt.Errorf("listening for proxies: %w", err)
	}
	if p.admin, err = net.Listen("tcp", p.options.Admin); err != nil {
		p.listener.Close()
		return fmt.Errorf("listening for metrics: %w", err)
	}
	return nil
}

// serve makes the gRPC server; nil credentials are plain text.
func (p *Picker) serve(c grpccredentials.TransportCredentials) {
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxConcurrentStreams(maxStreams),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingMinimum, PermitWithoutStream: true}),
	}
	if c != nil {
		options = append(options, grpc.Creds(c))
	}
	p.server = grpc.NewServer(options...)
	choices := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "steelyard_picker_choices_total",
		Help: "Requests by the reason of the choice; all but fill, prefix, queue and queue_prefix were left to " +
			"the proxy, or refused."}, []string{"envoy_cluster_name", "reason"})
	unknown := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "steelyard_picker_unknown_endpoints_total",
		Help: "Requests for which the proxy named an endpoint that is not in the loads: in a subset, or as the one " +
			"that answered."}, []string{"envoy_cluster_name", "reason"})
	unqueued := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "steelyard_picker_unqueued_total",
		Help: "Requests of a cluster with a queue that did not wait in it: Steelyard is away, or too many others " +
			"wait."}, []string{"envoy_cluster_name"})
	p.registry.MustRegister(choices, unknown, unqueued, &states{p.loads, p.options.Clusters})
	s := &processor{loads: p.loads, waiters: p.waiters, strict: p.options.Strict, single: p.options.Single,
		prefix:   p.options.Prefix,
		choices:  func(cluster, reason string) { choices.WithLabelValues(cluster, reason).Inc() },
		unknown:  func(cluster, reason string) { unknown.WithLabelValues(cluster, reason).Inc() },
		unqueued: func(cluster string) { unqueued.WithLabelValues(cluster).Inc() }}
	if len(p.options.Clusters) == 1 {
		s.fallback = p.options.Clusters[0]
	}
	extprocv3.RegisterExternalProcessorServer(p.server, s)
	healthv1.RegisterHealthServer(p.server, p.health)
	p.renewHealth()
}

// Address is where proxies connect, AdminAddress that of the metrics: host:port.
func (p *Picker) Address() string      { return p.listener.Addr().String() }
func (p *Picker) AdminAddress() string { return p.admin.Addr().String() }

// Close releases the listeners and the connection.
func (p *Picker) Close() {
	p.listener.Close()
	p.admin.Close()
	if p.conn != nil {
		p.conn.Close()
	}
}

// Run serves until ctx is done. Proxies whose streams end then balance on their own.
func (p *Picker) Run(ctx context.Context) error {
	defer p.Close()
	admin := &http.Server{Handler: p.handler(), ReadHeaderTimeout: adminTimeout, ReadTimeout: adminTimeout,
		WriteTimeout: adminTimeout, IdleTimeout: adminTimeout, MaxHeaderBytes: 16 << 10}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return p.loads.Run(ctx) })
	for _, w := range p.waiters {
		group.Go(func() error { return w.Run(ctx) })
	}
	group.Go(func() error { return p.renew(ctx) })
	group.Go(func() error { return p.credentials.Run(ctx) })
	group.Go(func() error { return ignore(p.server.Serve(p.listener), grpc.ErrServerStopped) })
	group.Go(func() error { return ignore(admin.Serve(p.admin), http.ErrServerClosed) })
	group.Go(func() error {
		<-ctx.Done()
		p.server.Stop()
		return admin.Close()
	})
	p.options.Log.Info("serving", "proxies", p.Address(), "admin", "http://"+p.AdminAddress()+"/",
		"steelyard", p.options.Steelyard, "clusters", strings.Join(p.options.Clusters, ","))
	return group.Wait()
}

func ignore(err, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}

// renew keeps the health up to date until ctx is done.
func (p *Picker) renew(ctx context.Context) error {
	tick := time.NewTicker(healthInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			p.health.Shutdown()
			return nil
		case <-tick.C:
			p.renewHealth()
		}
	}
}

func (p *Picker) renewHealth() {
	status := healthv1.HealthCheckResponse_SERVING
	if p.notReady(time.Now()) != nil {
		status = healthv1.HealthCheckResponse_NOT_SERVING
	}
	p.health.SetServingStatus("", healthv1.HealthCheckResponse_SERVING)
	p.health.SetServingStatus(serviceLiveness, healthv1.HealthCheckResponse_SERVING)
	p.health.SetServingStatus(serviceReadiness, status)
	p.health.SetServingStatus(extprocv3.ExternalProcessor_ServiceDesc.ServiceName, status)
}

// notReady returns why the picker cannot choose for some cluster; nil if it can for all.
func (p *Picker) notReady(now time.Time) error {
	for _, c := range p.options.Clusters {
		endpoints, age, known := p.loads.Pool(c).State(now)
		switch {
		case !known:
			return fmt.Errorf("cluster %q: no loads yet (%w)", c, orFollowing(p.loads.Status()))
		case age > picking.Stale:
			return fmt.Errorf("cluster %q: loads are %v old (%w)", c, age.Round(time.Millisecond),
				orFollowing(p.loads.Status()))
		case endpoints == 0:
			return fmt.Errorf("cluster %q: it has no endpoints", c)
		}
	}
	return nil
}

// orFollowing returns err; without one the stream is open, and the configuration is the likely cause.
func orFollowing(err error) error {
	if err == nil {
		return errors.New("the stream is open: is the cluster in Steelyard's configuration?")
	}
	return err
}

func (p *Picker) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(p.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := p.notReady(time.Now()); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return mux
}
