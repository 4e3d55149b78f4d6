package xds

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	mathrand "math/rand/v2"
	"net"
	"strconv"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpointservice "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	runtimev3 "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	cachev3 "github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/sotw/v3"
	serverv3 "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"

	"steelyard/internal/api"
	"steelyard/internal/envoyid"
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

// Listener wraps l so that the server sees how connections end. Without it, Gone is empty.
func (s *Server) Listener(l net.Listener) net.Listener { return watchedListener{l, s.tracker} }

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

// Clients returns the connected Envoys, with what each was sent and what it answered, sorted by node id, peer and
// transport. The caller may change the result.
func (s *Server) Clients() []api.Connection { return s.tracker.clients() }

// Gone returns the Envoys that vanished in the last ten minutes and have not reconnected, the latest first.
func (s *Server) Gone() []api.GoneEnvoy { return s.tracker.vanished() }

// Watchers returns the Envoys that subscribe to the cluster under any of its names, each once, sorted by node id and
// host. cluster is the base name. The caller may change the result.
func (s *Server) Watchers(cluster string) []envoyid.ID { return s.tracker.watching(cluster) }

// Shadowed reports whether Envoys subscribe to the cluster, and none of them by a name that carries weights: their
// requests go where their own clusters send them.
func (s *Server) Shadowed(cluster string) bool {
	t := s.tracker
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.watches.clusters[cluster]) > 0 && !t.watches.weighted(cluster)
}

// Followed reports whether an Envoy subscribes to the cluster by a name that carries weights.
func (s *Server) Followed(cluster string) bool {
	t := s.tracker
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.watches.weighted(cluster)
}

// WatchGeneration changes whenever the result of Watchers may have changed, for any cluster. It costs one atomic load.
func (s *Server) WatchGeneration() uint64 { return s.tracker.watches.generation.Load() }

// Names returns the number of subscriptions of all streams together, to names of clusters and to other types.
func (s *Server) Names() api.Bound { return s.tracker.names.Usage() }

// Paced returns how many requests were handled later because their Envoy had used more than it is entitled to.
func (s *Server) Paced() uint64 {
	s.tracker.mu.Lock()
	defer s.tracker.mu.Unlock()
	return s.tracker.paced
}

// AckDelay returns the time from a push of the cluster to an Envoy's ACK, smoothed over about one ACK of each
// subscribed Envoy. Of the two names that carry weights, it is that of the slower one. Zero is unknown: no Envoy has
// answered yet.
func (s *Server) AckDelay(cluster string) time.Duration {
	return max(s.tracker.ackDelay(cluster), s.tracker.ackDelay(cluster+failsafeSuffix))
}

// Settled reports whether every responsive Envoy has answered the latest push of its clusters. An Envoy that has left a
// response unanswered for longer than patience, or to which none could be sent for as long, may be frozen and does not
// count.
func (s *Server) Settled(patience time.Duration) bool { return s.tracker.settled(patience) }

// SetRuntime sets an Envoy's runtime layer: percentages by key, which it limits to 0..100; nil is the default,
// Options.Runtime. The server sends the layer if it differs from the previous one. It also keeps the layer of an Envoy
// that is not connected, until it is set to nil.
func (s *Server) SetRuntime(w envoyid.ID, layer map[string]float64) { s.runtimes.set(w, layer) }

// RuntimeClients returns the Envoys with a stream of runtime values, sorted by node id, host and peer. The caller may
// change the result.
func (s *Server) RuntimeClients() []RuntimeClient { return s.runtimes.clients() }

type noObserver struct{}

func (noObserver) Acked(string, time.Duration) {}
func (noObserver) Nacked(string)               {}
