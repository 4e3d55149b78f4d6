package daemon

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	grpccredentials "google.golang.org/grpc/credentials"
	"k8s.io/apimachinery/pkg/types"

	"steelyard/cmd/internal/gateway"
	"steelyard/controlplane/config"
	"steelyard/controlplane/discovery/kubernetes"
	"steelyard/internal/loops"
	"steelyard/xds/port"
)

const (
	// gatewayConnections is far more than the replicas of a gateway's control plane have open.
	gatewayConnections = 64
	// gatewayMessage bounds what a call has, in bytes: all listeners, routes and clusters of a Gateway.
	gatewayMessage = 64 << 20
	// membersPatience is how long calls wait, all together, for the members of clusters that have just come about. What
	// they have waited comes back in membersRest.
	membersPatience = 2 * time.Second
	membersRest     = 30 * time.Second
)

// An extensionServer is the listener that Envoy Gateway asks.
type extensionServer struct {
	*gateway.Server
	listener *port.Listener
	grpc     *grpc.Server
}

// openGateway binds the listener; nil where there is none.
func (d *Daemon) openGateway(cfg *config.EnvoyGateway) (*extensionServer, error) {
	if cfg == nil {
		return nil, nil
	}
	secured, err := d.serverTLS(cfg.TLS, "envoy_gateway.tls")
	if err != nil {
		return nil, err
	}
	e := &extensionServer{}
	e.listener, err = port.Listen(cfg.Listen, port.Options{Connections: gatewayConnections,
		PerAddress: gatewayConnections, DisplaceBusy: true, Log: d.options.Log.With("listener", "envoy_gateway")})
	if err != nil {
		return nil, fmt.Errorf("listening for Envoy Gateway (envoy_gateway.listen): %w", err)
	}
	e.Server = gateway.New(gateway.Options{Backends: d.kubernetes.backends, Cluster: d.clusterOfPool,
		Members: d.membersOf, Named: d.parents.named, ModuleXDS: cfg.ModuleXDS, ModuleGateways: cfg.ModuleGateways,
		Log: d.options.Log})
	e.grpc = e.GRPC(gatewayOptions(secured)...)
	return e, nil
}

func gatewayOptions(secured *tls.Config) []grpc.ServerOption {
	options := []grpc.ServerOption{grpc.MaxRecvMsgSize(gatewayMessage), grpc.MaxSendMsgSize(gatewayMessage)}
	if secured != nil {
		options = append(options, grpc.Creds(grpccredentials.NewTLS(secured)))
	}
	return options
}

// run serves until ctx is done.
func (e *extensionServer) run(ctx context.Context) error {
	if e == nil {
		return nil
	}
	stopped := loops.Start(ctx, func(ctx context.Context) {
		<-ctx.Done()
		e.grpc.Stop()
	})
	defer stopped.Stop()
	if err := e.grpc.Serve(e.listener); !errors.Is(err, grpc.ErrServerStopped) && ctx.Err() == nil {
		return fmt.Errorf("serving Envoy Gateway: %w", err)
	}
	return nil
}

func (e *extensionServer) close() {
	if e != nil {
		e.grpc.Stop()
		e.listener.Close()
	}
}

// followParents writes the parents of pools until ctx is done.
func (d *Daemon) followParents(ctx context.Context) error {
	select {
	case <-ctx.Done():
	case <-d.kubernetes.connected:
		d.parents.run(ctx, d.parentsView, d.options.Log)
	}
	return nil
}

// parentsView returns what is known for the parents of pools.
func (d *Daemon) parentsView() *parentsView {
	cfg, client, others := d.configuration(), d.kubernetes.client, d.link.Status()
	service := d.options.Service
	if r := d.replicas(cfg); r != nil {
		service = cmp.Or(r.Service, service)
	}
	v := &parentsView{client: client, controller: kubernetes.ControllerName(client.Namespace(), service),
		service:  kubernetes.ParentRef{Kind: kubernetes.ServiceKind, Namespace: client.Namespace(), Name: service},
		clusters: map[types.NamespacedName]string{}, follow: d.envoysFollow,
		certain: !others.Enabled || others.Connected}
	if d.gateway != nil {
		v.gateway = d.gateway.Server
	}
	for i := range cfg.Clusters {
		if p := cfg.Clusters[i].Endpoints.InferencePool; p != nil {
			name := types.NamespacedName{Namespace: cmp.Or(p.Namespace, client.Namespace()), Name: p.Name}
			v.clusters[name] = cfg.Clusters[i].Name
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	v.namespaces = slices.Sorted(maps.Keys(d.pools.found))
	for _, namespace := range v.namespaces {
		v.pools = append(v.pools, d.pools.found[namespace]...)
	}
	return v
}

// envoysFollow reports whether an Envoy of any replica follows a cluster.
func (d *Daemon) envoysFollow(cluster string) bool {
	return len(d.streams.Watchers(cluster)) > 0 || d.link.Watching(cluster) > 0
}

// membersOf returns the members of a cluster, as far as they are known within a moment: Envoy Gateway may ask in the
// second in which a pool is made.
func (d *Daemon) membersOf(ctx context.Context, cluster string) (addresses []string) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, d.patience.left(began))
	defer cancel()
	defer func() { d.patience.spend(time.Now(), time.Since(began)) }()
	for {
		endpoints, answered := d.manager.Endpoints(cluster)
		if answered || ctx.Err() != nil {
			for _, e := range endpoints {
				if !e.Terminating {
					addresses = append(addresses, e.Address)
				}
			}
			return addresses
		}
		loops.Pause(ctx, 10*time.Millisecond)
	}
}

// A patience is the time that calls may still wait, all together: one translation asks for the members of each of its
// clusters, one after the other, and the gateway's control plane holds all other changes meanwhile.
type patience struct {
	mu    sync.Mutex
	spent time.Duration
	at    time.Time // as of then
}

// left is how long a call may wait.
func (p *patience) left(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(0, membersPatience-p.since(now))
}

func (p *patience) spend(now time.Time, waited time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spent, p.at = min(membersPatience, p.since(now)+waited), now
}

// since is what is spent of it now.
func (p *patience) since(now time.Time) time.Duration {
	back := now.Sub(p.at) / time.Duration(membersRest/membersPatience)
	return max(0, p.spent-back)
}
