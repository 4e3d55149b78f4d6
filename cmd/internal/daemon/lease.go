package daemon

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/x509"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	grpccredentials "google.golang.org/grpc/credentials"

	"steelyard/collectors/inflight"
	"steelyard/collectors/replicas"
	"steelyard/controlplane/config"
	"steelyard/internal/api"
	"steelyard/internal/credentials"
	"steelyard/internal/lease"
	"steelyard/internal/loops"
	"steelyard/xds/loads/follow"
)

// A keeper keeps the lease on the queues, and then closes where it is.
type keeper struct {
	*lease.Keeper
	where string // config.LeaseRedis or config.LeaseKubernetes
	ready func() bool
	close func()
}

// Run implements runner. It asks for the lease once this replica has decisions: an owner without them would release
// what waits in the whole fleet.
func (k *keeper) Run(ctx context.Context) error {
	defer k.close()
	waiting, stop := context.WithCancel(ctx)
	loops.Every(waiting, lease.Every, func(time.Time) {
		if k.ready() {
			stop()
		}
	})
	stop()
	return k.Keeper.Run(ctx)
}

// newKeeper makes the keeper that cfg asks for; nil where this replica is the only one, or there is no queue.
func (d *Daemon) newKeeper(cfg *config.Config) (*keeper, error) {
	where := cfg.Lease(d.inCluster())
	if where == "" {
		return nil, nil
	}
	self := lease.Record{ID: rand.Text(), Name: replicaName(cfg.Replicas)}
	r := cmp.Or(cfg.Replicas, &config.Replicas{Prefix: "steelyard"})
	var store interface {
		lease.Store
		Close()
	}
	towards := ""
	if where == config.LeaseKubernetes {
		store, towards = d.kubernetes.client.Lease(r.Prefix+"-queue"), d.kubernetes.client.Server()
	} else {
		connect, err := inflight.Connector(d.redisOptions(cfg.Redis))
		if err != nil {
			return nil, fmt.Errorf("keeping the lease on the queues: %w", err)
		}
		store, towards = replicas.NewLease(clientOf(connect), r.Prefix), cfg.Redis.Addresses[0]
	}
	if self.Address = r.Address; self.Address == "" {
		var err error
		if self.Address, err = reachable(d.XDSAddress(), towards); err != nil {
			store.Close()
			return nil, err
		}
	}
	k := &keeper{where: where, ready: d.manager.EverReady, close: store.Close}
	k.Keeper = lease.NewKeeper(self, store, func(s lease.State) {
		d.leading.Lock()
		defer d.leading.Unlock()
		if d.keeper.Load() == k {
			d.places.Lead(s)
		}
	}, d.options.Log)
	k.Blind = d.blind
	return k, nil
}

// nextKeeper is the keeper of a configuration, which is the one that runs unless it has to be another.
func (d *Daemon) nextKeeper(running, next *config.Config, c config.Change) (*keeper, error) {
	where := next.Lease(d.inCluster())
	same := where == running.Lease(d.inCluster()) && named(running.Replicas) == named(next.Replicas)
	if same && (where == "" || !c.Redis) {
		return d.keeper.Load(), nil
	}
	return d.newKeeper(next)
}

// named is what a lease depends on in the section replicas. Who the others are does not matter.
func named(r *config.Replicas) [3]string {
	if r == nil {
		return [3]string{}
	}
	return [3]string{r.Prefix, r.Name, r.Address}
}

// blind says why another replica may grant places better than this one; empty where this one has all that it needs.
func (d *Daemon) blind() string {
	for _, c := range d.configuration().Clusters {
		if running := d.manager.Cluster(c.Name); c.Queue != nil && running != nil {
			if why := running.Blind(time.Now()); why != "" {
				return fmt.Sprintf("cluster %s: %s", c.Name, why)
			}
		}
	}
	return ""
}

// followLease has the places be granted by the replica that the keeper finds; by this one without a keeper. Epochs go
// on rising from one keeper to the next, because proxies refuse lower ones.
func (d *Daemon) followLease(k *keeper) {
	before := d.keeper.Load()
	if before == k {
		return
	}
	if before != nil {
		d.epoch = before.Floor()
	}
	state := lease.State{Mine: true, Owner: lease.Record{Epoch: d.epoch}}
	if k != nil {
		k.Rise(d.epoch)
		state = lease.State{}
	}
	d.leading.Lock()
	defer d.leading.Unlock()
	d.keeper.Store(k)
	d.places.Lead(state)
	replace(d.keepers, k)
}

// replicaName is the name of this replica for people.
func replicaName(r *config.Replicas) string {
	if r != nil && r.Name != "" {
		return r.Name
	}
	host, _ := os.Hostname()
	return cmp.Or(host, "unknown")
}

// reachable is a listener's address as other machines use it: where it listens on all addresses, the one from which
// this machine reaches another host:port, unless that is on this machine, too.
func reachable(listener, towards string) (string, error) {
	host, port, err := net.SplitHostPort(listener)
	address, failed := netip.ParseAddr(host)
	switch {
	case config.Loopback(listener):
		return "", unreachable("other machines cannot connect to " + listener)
	case err != nil || failed != nil || !address.IsUnspecified():
		return listener, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	var dialer net.Dialer
	if conn, err := dialer.DialContext(ctx, "udp", towards); err == nil { // which sends nothing
		defer conn.Close()
		host, _, _ = net.SplitHostPort(conn.LocalAddr().String())
		if from := net.JoinHostPort(host, port); !config.Loopback(from) {
			return from, nil
		}
	}
	addresses, _ := net.InterfaceAddrs()
	for _, a := range addresses {
		if network, ok := a.(*net.IPNet); ok && network.IP.IsGlobalUnicast() {
			return net.JoinHostPort(network.IP.String(), port), nil
		}
	}
	return "", unreachable("this machine has no address for other machines")
}

// unreachable is why no other replica can connect to this one.
func unreachable(why string) error {
	return fmt.Errorf("the replica that grants places is reached by the others on its xDS port, and %s: let "+
		"xds.listen be an address of the network; or write address: HOST:PORT below replicas, by which the others "+
		"reach it, or replicas: {lease: none} if this replica is the only one", why)
}

// connectReplicas has the queues reach other replicas: with the certificate of the xDS listener, and the authorities of
// its clients. Replicas have the same names in their certificates, and no Envoy has them.
func (d *Daemon) connectReplicas(cfg *config.ServerTLS) {
	mutual := cfg != nil && cfg.ClientCAFile != ""
	if mutual {
		d.replicaNames = d.namesIn(cfg)
	}
	d.places.Dial = func(address string) (*grpc.ClientConn, error) { return d.dialReplica(cfg, address) }
	d.places.Trusted = func(ctx context.Context) bool {
		return !mutual || slices.ContainsFunc(credentials.PeerIdentity(ctx).DNS,
			func(name string) bool { return slices.Contains(d.replicaNames, name) })
	}
	d.places.Told = func(r lease.Record) {
		if k := d.keeper.Load(); k != nil {
			k.Told(r)
		}
	}
	d.places.Offer = func() (self lease.Record, able bool) {
		if k := d.keeper.Load(); k != nil {
			return k.Offer()
		}
		return self, false
	}
}

// dialReplica connects to the xDS listener of another replica.
func (d *Daemon) dialReplica(cfg *config.ServerTLS, address string) (*grpc.ClientConn, error) {
	var transport grpccredentials.TransportCredentials
	if cfg != nil {
		files := credentials.Client{CAFile: cfg.ClientCAFile, CertFile: cfg.CertFile, KeyFile: cfg.KeyFile}
		if len(d.replicaNames) > 0 {
			files.ServerName = d.replicaNames[0]
		}
		var err error
		if transport, err = follow.TLS(context.Background(), d.credentials, files); err != nil {
			return nil, err
		}
	}
	conn, err := follow.Dial(address, transport)
	if err != nil {
		return nil, err
	}
	return conn.ClientConn, nil
}

// namesIn are the DNS names by which replicas know each other.
func (d *Daemon) namesIn(cfg *config.ServerTLS) []string {
	pair, err := d.credentials.Get(context.Background(), credentials.File{Cert: cfg.CertFile, Key: cfg.KeyFile})
	if err != nil {
		return nil // it was usable a moment ago
	}
	return namesOf(pair.Certificates[0])
}

// namesOf are the DNS names of a certificate, without patterns.
func namesOf(c *x509.Certificate) (names []string) {
	for _, name := range c.DNSNames {
		if !strings.Contains(name, "*") {
			names = append(names, strings.ToLower(name))
		}
	}
	return names
}

// addQueue fills in the queue of a cluster.
func (d *Daemon) addQueue(c *api.Cluster) {
	state, on := d.places.State(c.Name)
	if !on {
		return
	}
	state.Owner.Lease = "none"
	if k := d.keeper.Load(); k != nil {
		state.Owner.Lease = k.where
		if err := k.Err(); err != nil {
			state.Owner.Error = err.Error()
		}
	}
	c.Queue = &state
}

func clientOf(connect func() (redis.UniversalClient, func())) func() replicas.Client {
	return func() replicas.Client {
		client, stop := connect()
		return replicas.Client{UniversalClient: client, Stop: stop}
	}
}
