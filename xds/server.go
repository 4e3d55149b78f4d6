package xds

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	mathrand "math/rand/v2"
	"strconv"
	"sync"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpointservice "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	runtimev3 "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	cachev3 "github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/sotw/v3"
	serverv3 "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"

	"steelyard/weighting"
	"steelyard/xds/assignment"
	"steelyard/xds/port"
)

// A Server serves the assignments of any number of clusters. Its methods can be
// called from any goroutine.
type Server struct {
	log     *slog.Logger
	now     func() time.Time
	prefix  string
	cache   *holdingCache
	tracker *tracker
	handler serverv3.Server
	// runtimes serves runtime layers, on streams of their own.
	runtimes *runtimes
	close    context.CancelFunc

	// mu keeps pushes one at a time: the number of a version must be the
	// cache's own, which counts updates.
	mu       sync.Mutex
	dither   *mathrand.Rand
	seq      uint64 // of the last update of the cache
	clusters map[string]*cluster
	kept     map[string]decided // the newest of each cluster with variants, by base name
}

// A cluster is what the server remembers of one.
type cluster struct {
	last    *pushed // nil before the first push
	builder assignment.Builder
	failing bool // the last Publish could not be built
}

// NewServer makes a server that knows no cluster. It runs nothing of its own.
func NewServer(o Options) *Server {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Observer == nil {
		o.Observer = noObserver{}
	}
	if o.Seed == 0 {
		o.Seed = mathrand.Uint64()
	}
	s := &Server{
		log:      o.Log,
		now:      o.Now,
		prefix:   versionPrefix(o.Now()),
		dither:   mathrand.New(mathrand.NewPCG(o.Seed, 0)),
		clusters: make(map[string]*cluster),
		kept:     make(map[string]decided),
	}
	quiet := quietLog(o.Log)
	s.cache = &holdingCache{
		linear: cachev3.NewLinearCache(resource.EndpointType, cachev3.WithVersionPrefix(s.prefix), cachev3.WithLogger(quiet)),
		served: newNameSet(),
		prefix: s.prefix,
	}
	s.tracker = newTracker(s.prefix, o.Now, o.Log, o.Observer, port.NewQuota(cmp.Or(o.Names, DefaultNames)))
	s.tracker.wanted = s.wanted
	var ctx context.Context
	ctx, s.close = context.WithCancel(context.Background())
	s.runtimes = newRuntimes(ctx.Done(), s.prefix, o)
	s.handler = serverv3.NewServer(ctx, s.cache, callbacks{s.tracker}, sotw.WithLogger(quiet))
	return s
}

// Register adds EDS and ADS, each as state of the world and as delta, and RTDS as state of the
// world, to g.
func (s *Server) Register(g *grpc.Server) {
	streams := streamsOnly{g}
	endpointservice.RegisterEndpointDiscoveryServiceServer(streams, s.handler)
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(streams, s.handler)
	runtimev3.RegisterRuntimeDiscoveryServiceServer(streams, s.runtimes)
}

// streamsOnly registers the streams of a service without its unary methods, such as FetchEndpoints, which are
// answered with Unimplemented: weights that are polled are late, and a unary call that sends no request would keep
// the server from stopping.
type streamsOnly struct{ grpc.ServiceRegistrar }

func (r streamsOnly) RegisterService(d *grpc.ServiceDesc, implementation any) {
	streams := *d
	streams.Methods = nil
	r.ServiceRegistrar.RegisterService(&streams, implementation)
}

// Close ends all streams, with status OK, and those that are opened later. An xDS stream
// never ends by itself, so grpc.Server.GracefulStop returns only after this.
// Envoys keep their assignments and connect again, to whoever is there by then.
func (s *Server) Close() { s.close() }

// versionPrefix is unique to the process: two that start in the same second differ
// in the random part, and nobody's prefix is the beginning of another's.
func versionPrefix(start time.Time) string {
	var unique [4]byte
	rand.Read(unique[:]) // never fails
	return hex.EncodeToString(unique[:]) + "." + strconv.FormatInt(start.Unix(), 36) + "."
}

// Publish hands over the latest decision of a cluster and pushes it if it is worth it; see
// the package comment for when that is. The first call with endpoints makes the
// cluster served, and a later one without any empties it: its endpoints
// are gone. The loop calls Publish regularly, also when nothing changed, so that the
// heartbeat is sent.
//
// When the assignment cannot be built the push has ReasonError and an Err, and the Envoys keep
// the previous one.
func (s *Server) Publish(name string, d weighting.Decision, o ClusterOptions) Push {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.publish(name, d, o)
}

func (s *Server) publish(name string, d weighting.Decision, o ClusterOptions) Push {
	c := s.clusters[name]
	if c == nil {
		c = &cluster{}
		s.clusters[name] = c
	}
	now := s.now()
	reason, push := judge(c.last, &d, o, now)
	if !push {
		return Push{Reason: reason, Version: c.version()}
	}
	message, err := c.builder.Build(name, d, assignment.Options{EndpointStaleAfter: o.EndpointStaleAfter, Previous: c.message()}, s.dither)
	if err != nil {
		return s.failed(name, c, err)
	}
	next := newPushed(now, &d, o, message)
	if err := s.push(name, next); err != nil {
		return s.failed(name, c, err)
	}
	s.succeeded(name, c, next)
	return Push{Pushed: true, Reason: reason, Version: next.version}
}

// push updates the cache, which wakes the watches of the cluster.
func (s *Server) push(name string, p *pushed) error {
	s.seq++
	p.version = s.prefix + strconv.FormatUint(s.seq, 10)
	// First the tracker, for a stream may send the new version before set returns.
	s.tracker.published(name, s.seq, p.at)
	return s.cache.set(name, p.message)
}

func (s *Server) succeeded(name string, c *cluster, next *pushed) {
	switch {
	case c.last == nil:
		s.log.Info("cluster is served", "cluster", name, "endpoints", len(next.hosts), "version", next.version)
	case c.failing:
		s.log.Info("assignment can be built again", "cluster", name, "version", next.version)
	}
	c.last, c.failing = next, false
}

// failed logs an assignment that could not be pushed. Only the first in a row is loud.
func (s *Server) failed(name string, c *cluster, err error) Push {
	level := slog.LevelDebug
	if !c.failing {
		level = slog.LevelError
	}
	c.failing = true
	s.log.Log(context.Background(), level, "assignment not pushed, the previous one stays", "cluster", name, "error", err)
	return Push{Reason: ReasonError, Version: c.version(), Err: err}
}

func (c *cluster) version() string {
	if c.last == nil {
		return ""
	}
	return c.last.version
}

func (c *cluster) message() *endpointv3.ClusterLoadAssignment {
	if c.last == nil {
		return nil
	}
	return c.last.message
}

// Remove stops serving a cluster. The Envoys that have its assignment keep it: the
// cluster goes out of Envoy's configuration or it does not, and until then a last known
// assignment is better than none. Who subscribes afterwards waits. (With endpoint_stale_after,
// Envoy drops the endpoints when that time has passed.)
func (s *Server) Remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.clusters[name]
	if c == nil {
		return
	}
	delete(s.clusters, name)
	if c.last == nil {
		return
	}
	s.tracker.removed(name)
	s.seq++ // the cache counts removals too
	if err := s.cache.drop(name); err != nil {
		s.log.Error("removing a cluster from the cache", "cluster", name, "error", err)
	}
	s.log.Info("cluster is no longer served", "cluster", name)
}

// Clients returns the connected Envoys with what they were sent and what they answered, sorted
// by node id, peer and transport. The result is the caller's.
func (s *Server) Clients() []Client { return s.tracker.clients() }

// Names are the subscriptions of all streams together, to names of clusters and to other types.
func (s *Server) Names() port.Usage { return s.tracker.names.Usage() }

// AckDelay is the time from a push of the cluster until an Envoy's ACK, smoothed over about one
// round of all Envoys that subscribe to it. Zero is unknown: nobody has answered yet.
func (s *Server) AckDelay(cluster string) time.Duration { return s.tracker.ackDelay(cluster) }

type noObserver struct{}

func (noObserver) Acked(string, time.Duration)   {}
func (noObserver) Nacked(string, string, string) {}
