package daemon

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	grpccredentials "google.golang.org/grpc/credentials"

	"steelyard/cmd/internal/gateway"
	"steelyard/controlplane/config"
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
		Members: d.membersOf, Log: d.options.Log})
	e.grpc = grpc.NewServer(gatewayOptions(secured)...)
	e.Register(e.grpc)
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
