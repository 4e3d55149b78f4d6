package daemon

import (
	"errors"
	"fmt"
	"math"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"steelyard/collectors/wire"
	"steelyard/controlplane/config"
	"steelyard/internal/api"
	"steelyard/xds"
	"steelyard/xds/port"
)

const (
	// adminConnections is far more than people, probes and Prometheus have open at a time.
	adminConnections = 128
	// adminPerAddress leaves some for other addresses.
	adminPerAddress = adminConnections * 3 / 4
	// spareFiles are file descriptors for Redis, discovery, files and the log.
	spareFiles = 128
)

// listen binds both ports.
func (d *Daemon) listen(cfg *config.Config) (err error) {
	limits := cfg.XDS.Limits
	d.xdsListener, err = port.Listen(cfg.XDS.Listen, port.Options{
		Connections: limits.Connections, PerAddress: limits.ConnectionsPerAddress, Streams: limits.Streams,
		Log: d.options.Log.With("listener", "xds"),
	})
	if err != nil {
		return fmt.Errorf("listening for Envoys (xds.listen): %w", err)
	}
	d.adminListener, err = port.Listen(cfg.Admin.Listen, port.Options{
		Connections: adminConnections, PerAddress: adminPerAddress, DisplaceBusy: true,
		Log: d.options.Log.With("listener", "admin"),
	})
	if err != nil {
		d.xdsListener.Close()
		return fmt.Errorf("listening for the admin API (admin.listen): %w", err)
	}
	d.keepFiles(0)
	bounds := d.xdsListener.Stats()
	d.options.Log.Info("connections to the xDS port are bounded", "open_files_limit", openFilesLimit(),
		"connections", bounds.Connections.Limit, "per_address", bounds.ConnectionsPerAddress.Limit)
	return nil
}

// keepFiles reserves file descriptors for everything but the connections to the xDS port.
func (d *Daemon) keepFiles(targets int) {
	if files := openFilesLimit(); files > 0 {
		d.xdsListener.SetRoom(roomFor(files, targets))
	}
}

// roomFor is the number of connections to the xDS port that a limit of open files leaves room for, after one for each
// scrape target, the admin listener's and the spare ones; at least a quarter of the limit.
func roomFor(files, targets int) int {
	return max(files/4, files-targets-adminConnections-spareFiles)
}

// openFilesLimit is how many files and connections the process may have open at once, 0 if that is unknown. The Go
// runtime has raised it at the start, to one below the hard limit.
func openFilesLimit() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return int(min(limit.Cur, math.MaxInt32))
}

// newGRPC makes the server of the xDS port.
func (d *Daemon) newGRPC(c credentials.TransportCredentials) *grpc.Server {
	return grpc.NewServer(append(xds.GRPCOptions(d.xdsListener.Credentials(c)),
		grpc.ForceServerCodecV2(wire.Codec()),
		grpc.StatsHandler(d.xdsListener.Deliveries()),
		grpc.ChainStreamInterceptor(d.xdsListener.Intercept, d.guard.Intercept))...)
}

// serveEnvoys serves the xDS port until the server is stopped.
func (d *Daemon) serveEnvoys() error {
	// stopped before it began
	if err := d.grpc.Serve(d.streams.Listener(d.xdsListener)); !errors.Is(err, grpc.ErrServerStopped) {
		return err
	}
	return nil
}

// xdsPort returns how much of the limits of the xDS port its peers use.
func (d *Daemon) xdsPort() api.Port {
	p := d.xdsListener.Stats()
	p.Subscriptions, p.PacedRequests = d.streams.Names(), d.streams.Paced()
	if files := openFilesLimit(); files > 0 {
		p.OpenFilesLimit = api.Num(float64(files))
	}
	return p
}
