package xds

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"

	"steelyard/internal/api"

	mathrand "math/rand/v2"
	"strconv"
	"strings"
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

	"steelyard/weighting/push"
	"steelyard/xds/assignment"
	"steelyard/xds/port"
)

// A Server serves the assignments of any number of clusters. Its methods can be called from any goroutine.
type Server struct {
	now     func() time.Time
	prefix  string
	cache   *holdingCache
	tracker *tracker
	handler serverv3.Server
	// runtimes serves runtime layers, on streams of their own.
	runtimes *runtimes
	close    context.CancelFunc

	// mu serializes pushes: the number of a version has to be that of the cache, which counts updates.
	mu       loggingMutex
	dither   *mathrand.Rand
	seq      uint64 // of the latest update of the cache
	clusters map[string]*cluster
	kept     map[string]kept // the latest call of Publish, by cluster
}

// A cluster is the state of one name.
type cluster struct {
	last    *pushed // nil before the first push
	builder assignment.Builder
	failing bool // the last assignment could not be built
}

// A pushed is the latest assignment pushed under a name.
type pushed struct {
	at        time.Time
	number    uint64 // of the Publish that it came from
	version   string
	endpoints int
	message   *endpointv3.ClusterLoadAssignment
}

// NewServer makes a server without clusters. It starts no goroutine.
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
		now:      o.Now,
		mu:       loggingMutex{log: o.Log},
		prefix:   versionPrefix(o.Now()),
		dither:   mathrand.New(mathrand.NewPCG(o.Seed, 0)),
		clusters: make(map[string]*cluster),
		kept:     make(map[string]kept),
	}
	quiet := quietLog(o.Log)
	s.cache = &holdingCache{
		linear: cachev3.NewLinearCache(resource.EndpointType,
			cachev3.WithVersionPrefix(s.prefix), cachev3.WithLogger(quiet)),
		served: newNameSet(),
		prefix: s.prefix,
	}
	s.tracker = newTracker(s.prefix, o.Now, o.Log, o.Observer, port.NewQuota(cmp.Or(o.Names, DefaultNames)))
	s.tracker.firstSubscriber = s.firstSubscriber
	var ctx context.Context
	ctx, s.close = context.WithCancel(context.Background())
	s.tracker.ended = ctx.Done()
	s.runtimes = newRuntimes(ctx, s.prefix, o)
	s.handler = serverv3.NewServer(ctx, s.cache, callbacks{s.tracker}, sotw.WithLogger(quiet))
	return s
}

// Register adds EDS and ADS, each as state of the world and as delta, and RTDS as state of the world, to g.
func (s *Server) Register(g *grpc.Server) {
	streams := streamsOnly{g}
	endpointservice.RegisterEndpointDiscoveryServiceServer(streams, s.handler)
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(streams, s.handler)
	runtimev3.RegisterRuntimeDiscoveryServiceServer(streams, s.runtimes)
}

// streamsOnly registers the streams of a service without its unary methods, such as FetchEndpoints, so that gRPC
// answers those with Unimplemented: polled weights are late, and a unary call that sends no request would keep the
// server from stopping.
type streamsOnly struct{ grpc.ServiceRegistrar }

func (r streamsOnly) RegisterService(d *grpc.ServiceDesc, implementation any) {
	streams := *d
	streams.Methods = nil
	r.ServiceRegistrar.RegisterService(&streams, implementation)
}

// Close ends all streams with status OK, including those that are opened later. An xDS stream never ends by itself, so
// grpc.Server.GracefulStop returns only after Close. Envoys keep their assignments and reconnect, to the next process.
// After Close, Gone lists no further Envoy, however its connection ends. Close waits for nothing and takes no lock of
// the streams, so that a stop that has run out of time can call it.
func (s *Server) Close() {
	s.tracker.closing.Store(true)
	s.close()
}

// versionPrefix is unique to the process: two processes that start in the same second differ in the random part, and no
// prefix is the beginning of another.
func versionPrefix(start time.Time) string {
	var unique [4]byte
	rand.Read(unique[:]) // never fails
	return hex.EncodeToString(unique[:]) + "." + strconv.FormatInt(start.Unix(), 36) + "."
}

// publish builds the assignment of a name and wakes its watches. If it cannot be built, Envoys keep the previous one.
func (s *Server) publish(name string, number uint64, v *push.Verdict) error {
	c := s.clusters[name]
	if c == nil {
		c = &cluster{}
		s.clusters[name] = c
	}
	options := assignment.Options{EndpointStaleAfter: v.StaleAfter, Previous: c.message(),
		Unweighted: strings.HasSuffix(name, membersSuffix)}
	message, err := c.builder.Build(name, v.Decision, options, s.dither)
	if err != nil {
		return s.failed(name, c, err)
	}
	next := &pushed{at: s.now(), number: number, endpoints: len(v.Decision.Endpoints), message: message}
	if err := s.push(name, next, v.ProxyTime); err != nil {
		return s.failed(name, c, err)
	}
	s.succeeded(name, c, next)
	return nil
}

// push updates the cache, which wakes the watches of the cluster.
func (s *Server) push(name string, p *pushed, proxyTime time.Duration) error {
	s.seq++
	p.version = s.prefix + strconv.FormatUint(s.seq, 10)
	// The tracker comes first, because a stream may send the new version before set returns.
	s.tracker.published(name, s.seq, p.at, proxyTime)
	return s.cache.set(name, p.message)
}

func (s *Server) succeeded(name string, c *cluster, next *pushed) {
	switch {
	case c.last == nil:
		s.mu.logLater(slog.LevelInfo, "cluster is served",
			"cluster", name, "endpoints", next.endpoints, "version", next.version)
	case c.failing:
		s.mu.logLater(slog.LevelInfo, "assignment can be built again", "cluster", name, "version", next.version)
	}
	c.last, c.failing = next, false
}

// failed logs an assignment that could not be pushed, at level Error only if the one before succeeded.
func (s *Server) failed(name string, c *cluster, err error) error {
	level := slog.LevelDebug
	if !c.failing {
		level = slog.LevelError
	}
	c.failing = true
	s.mu.logLater(level, "assignment not pushed, the previous one stays", "cluster", name, "error", err)
	return err
}

// latest returns the latest push under a name; nil if there is none.
func (c *cluster) latest() *pushed {
	if c == nil {
		return nil
	}
	return c.last
}

func (c *cluster) version() string {
	if last := c.latest(); last != nil {
		return last.version
	}
	return ""
}

func (c *cluster) message() *endpointv3.ClusterLoadAssignment {
	if last := c.latest(); last != nil {
		return last.message
	}
	return nil
}

// Remove stops serving a cluster under all its names. Envoys that have an assignment keep it: as long as the cluster is
// in Envoy's configuration, the last known assignment is better than none. An Envoy that subscribes afterwards waits.
// (With endpoint_stale_after, Envoy drops the endpoints when that time has passed.)
func (s *Server) Remove(cluster string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.kept, cluster)
	for _, suffix := range []string{"", failsafeSuffix, fallbackSuffix, membersSuffix} {
		s.remove(cluster + suffix)
	}
}

func (s *Server) remove(name string) {
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
		s.mu.logLater(slog.LevelError, "removing a cluster from the cache", "cluster", name, "error", err)
	}
	s.mu.logLater(slog.LevelInfo, "cluster is no longer served", "cluster", name)
}

// Clients returns the connected Envoys, with what each was sent and what it answered, sorted by node id, peer and
// transport. The caller may change the result.
func (s *Server) Clients() []api.Connection { return s.tracker.clients() }

// Names returns the number of subscriptions of all streams together, to names of clusters and to other types.
func (s *Server) Names() api.Bound { return s.tracker.names.Usage() }

// AckDelay returns the time from a push of the cluster to an Envoy's ACK, smoothed over about one ACK of each
// subscribed Envoy. Of the two names that carry weights, it is that of the slower one. Zero is unknown: no Envoy has
// answered yet.
func (s *Server) AckDelay(cluster string) time.Duration {
	return max(s.tracker.ackDelay(cluster), s.tracker.ackDelay(cluster+failsafeSuffix))
}

type noObserver struct{}

func (noObserver) Acked(string, time.Duration) {}
func (noObserver) Nacked(string)               {}
