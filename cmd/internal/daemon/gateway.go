package daemon

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
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
	// membersPatience is how long a call waits for the members of clusters that have just come about.
	membersPatience = 2 * time.Second
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
		Members: d.membersOf, Changed: d.poolsNamed.Set, ModuleXDS: cfg.ModuleXDS, ModuleGateways: cfg.ModuleGateways,
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

// clusterOfPool returns the cluster that serves a pool.
func (d *Daemon) clusterOfPool(namespace, name string) (string, error) {
	return d.configuration().ServesPool(namespace, name, d.kubernetes.client.Namespace())
}

// parentsRetry is the wait before the statuses of pools are written again that could not be.
const parentsRetry = 10 * time.Second

// followParents keeps the statuses of pools in line with the Gateways whose routes name them, until ctx is done. Those
// of a previous process stay until Envoy Gateway asks.
func (d *Daemon) followParents(ctx context.Context) error {
	if d.gateway == nil {
		return nil
	}
	written := map[types.NamespacedName]bool{}
	failing := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-d.poolsNamed:
		}
		err := d.writeParents(ctx, written)
		if err != nil && err.Error() != failing && ctx.Err() == nil {
			d.options.Log.Warn("the status of InferencePools is not written", "error", err)
		}
		if failing = ""; err != nil {
			failing = err.Error()
			loops.Pause(ctx, parentsRetry)
			d.poolsNamed.Set()
		}
	}
}

// writeParents writes those of the pools that Gateways name, and of those that they named before.
func (d *Daemon) writeParents(ctx context.Context, written map[types.NamespacedName]bool) (err error) {
	parents := map[types.NamespacedName][]kubernetes.Parent{}
	for pool := range written {
		parents[pool] = nil
	}
	for _, p := range d.gateway.State().Pools {
		pool := types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
		if p.Picker == "" { // the status of others is their controller's
			namespace, name, _ := strings.Cut(p.Gateway, "/")
			parents[pool] = append(parents[pool], kubernetes.Parent{
				Gateway: types.NamespacedName{Namespace: namespace, Name: name}, Refused: p.Reason})
		}
	}
	for pool, of := range parents {
		failed := d.kubernetes.client.SetParents(ctx, pool.Namespace, pool.Name, of)
		err = errors.Join(err, failed)
		written[pool] = true
		if failed == nil && len(of) == 0 {
			delete(written, pool)
		}
	}
	return err
}

// membersOf returns the members of a cluster, as far as they are known within a moment: Envoy Gateway may ask in the
// second in which a pool is made.
func (d *Daemon) membersOf(ctx context.Context, cluster string) (addresses []string) {
	ctx, cancel := context.WithTimeout(ctx, membersPatience)
	defer cancel()
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
