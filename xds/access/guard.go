package access

import (
	"context"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"steelyard/internal/api"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"steelyard/internal/credentials"
	"steelyard/internal/tally"
)

// The kinds of denials.
const (
	KindStream = "stream" // any stream, to a client that no rule names
	KindWatch  = "watch"  // a subscription to a cluster
	KindReport = "report" // an access log entry or a load report of a cluster
)

var kinds = []string{KindReport, KindStream, KindWatch}

// maxNames bounds the names and addresses that are remembered of a stream. Those beyond are checked again each time,
// and a change of the rules reaches them with their next message.
const maxNames = 16_384

// sumsEvery is the time between two log lines of one kind: a client that is denied tries again at once.
const sumsEvery = time.Minute

// patience is the time from a denial to the end of the connection. A client that is denied opens its streams again
// within a second; a TLS handshake each time would cost both sides more than these do.
const patience = 5 * time.Second

// farewell is the time in which a client learns that the streams of a connection have ended, before it is closed.
const farewell = 100 * time.Millisecond

// A Guard ends streams that the rules do not allow, and connections that only have such. Its methods can be called from
// any goroutine.
type Guard struct {
	// Disconnect closes the connection of a peer, if it is still open. It is set before streams are served; nil leaves
	// connections open.
	Disconnect func(*peer.Peer)

	mu          sync.Mutex
	policy      *policy
	connections map[string]*connection // those with a stream that is served, or a denial, by the peer's address
	denied      map[string]*denial
}

// A connection has the streams of a client that are served, and whether it will be closed unless one of them watches.
type connection struct {
	streams map[*stream]struct{}
	closing bool
}

// A policy has the current rules and members. It is immutable.
type policy struct {
	rules   []Rule              // nil: everything is allowed
	members map[string][]string // the clusters of each endpoint, by address
}

type denial struct {
	api.DeniedClients
	lines *tally.Tally
}

// NewGuard returns a Guard without rules.
func NewGuard(log *slog.Logger) *Guard {
	g := &Guard{policy: &policy{}, connections: make(map[string]*connection), denied: make(map[string]*denial)}
	for _, kind := range kinds {
		g.denied[kind] = &denial{api.DeniedClients{Kind: kind},
			tally.New(log, slog.LevelWarn, "client denied", sumsEvery)}
	}
	return g
}

// SetRules replaces the rules, and ends the open streams that they do not allow. Without rules everything is allowed.
func (g *Guard) SetRules(rules []Rule) {
	g.mu.Lock()
	g.policy = &policy{rules, g.policy.members}
	refused := make(map[*stream]use)
	for s := range g.streams() {
		if u, ok := s.adopt(g.policy); !ok {
			refused[s] = u
		}
	}
	g.mu.Unlock()
	for s, u := range refused {
		s.end(g.deny(s, u))
	}
}

// streams returns all that are served. The caller holds the lock.
func (g *Guard) streams() iter.Seq[*stream] {
	return func(yield func(*stream) bool) {
		for _, c := range g.connections {
			for s := range c.streams {
				if !yield(s) {
					return
				}
			}
		}
	}
}

// SetMembers replaces the endpoints of the configured clusters: the clusters of each, by address. The caller does not
// change the map afterwards.
func (g *Guard) SetMembers(members map[string][]string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.policy = &policy{g.policy.rules, members}
	for s := range g.streams() {
		s.mu.Lock()
		s.policy = g.policy
		clear(s.reported)
		s.mu.Unlock()
	}
}

// A use is what a stream does, or wants to do.
type use struct{ kind, cluster string }

// Denied returns the count of each kind, always in the same order.
func (g *Guard) Denied() []api.DeniedClients {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]api.DeniedClients, len(kinds))
	for i, kind := range kinds {
		out[i] = g.denied[kind].DeniedClients
	}
	return out
}

// deny counts and logs what a stream may not do, and returns its status.
func (g *Guard) deny(s *stream, u use) error {
	const longest = 256 // bytes of a name that is shown
	kind, cluster := u.kind, u.cluster
	cluster = strings.Clone(strings.ToValidUTF8(cluster[:min(len(cluster), longest)], ""))
	g.mu.Lock()
	d := g.denied[kind]
	d.DeniedClients = api.DeniedClients{Kind: kind, Count: d.Count + 1, LastAt: api.At(time.Now()),
		LastClient: s.client.Name, LastPeer: s.address, LastCluster: cluster}
	g.closeSoon(s)
	g.mu.Unlock()
	d.lines.Add("kind", kind, "client", s.client.Name, "peer", s.address, "cluster", cluster)
	switch kind {
	case KindWatch:
		return status.Errorf(codes.PermissionDenied, "no rule of xds.clients lets %s watch cluster %s", s.client.Name,
			cluster)
	case KindReport:
		return status.Errorf(codes.PermissionDenied, "no rule of xds.clients lets %s report on cluster %s",
			s.client.Name, cluster)
	}
	return status.Errorf(codes.PermissionDenied, "no rule of xds.clients names %s", s.client.Name)
}

// A stream is an open stream of a client with a certificate.
type stream struct {
	grpc.ServerStream
	guard   *Guard
	ctx     context.Context
	client  credentials.Identity
	peer    *peer.Peer
	address string     // the peer's
	ended   chan error // the status of a stream that the guard ends; capacity one

	mu       sync.Mutex
	policy   *policy
	granted  []string            // patterns of clusters
	watched  map[string]struct{} // names
	reported map[string]struct{} // addresses that may be reported on
}

type streamKey struct{}

// Context has the stream for Reporter and Visible.
func (s *stream) Context() context.Context { return s.ctx }

func (s *stream) end(err error) {
	select {
	case s.ended <- err:
	default: // it is already ending
	}
}

// RecvMsg receives a message, and refuses subscriptions that the client may not have.
func (s *stream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	switch r := m.(type) {
	case *discoveryv3.DiscoveryRequest:
		return s.watch(r.GetTypeUrl(), r.GetResourceNames(), true)
	case *discoveryv3.DeltaDiscoveryRequest:
		return s.watch(r.GetTypeUrl(), r.GetResourceNamesSubscribe(), false)
	case interface{ GetClusters() []string }: // a picker that follows the loads
		return s.follow(r.GetClusters())
	case interface{ GetCluster() string }: // an Envoy whose requests wait in a queue; it names the cluster once
		if name := r.GetCluster(); name != "" {
			return s.follow([]string{name})
		}
	}
	return nil
}

// follow checks the clusters whose loads a picker asks for. None stands for all, which only a rule for * allows.
func (s *stream) follow(clusters []string) error {
	if len(clusters) == 0 {
		clusters = []string{"*"}
	}
	s.mu.Lock()
	refused := slices.IndexFunc(clusters, func(name string) bool { return !s.allowed(name) })
	if refused < 0 {
		for _, name := range clusters[:min(len(clusters), maxNames)] {
			s.watched[strings.Clone(name)] = struct{}{}
		}
	}
	s.mu.Unlock()
	if refused < 0 {
		return nil
	}
	return s.refuse(clusters[refused])
}

// refuse ends the stream, because it may not watch a cluster.
func (s *stream) refuse(cluster string) error {
	err := s.guard.deny(s, use{KindWatch, cluster})
	s.end(err)
	return err
}

// watch checks the names that a request subscribes to. A request on a stream for endpoints only may leave out the type.
func (s *stream) watch(typeURL string, names []string, whole bool) error {
	if typeURL != "" && typeURL != resource.EndpointType {
		return nil
	}
	s.mu.Lock()
	refused, ok := s.mayWatch(names, whole)
	s.mu.Unlock()
	if ok {
		return nil
	}
	return s.refuse(refused)
}

// mayWatch remembers the names, and returns one that the client may not watch. whole: they replace those before.
func (s *stream) mayWatch(names []string, whole bool) (refused string, ok bool) {
	known := 0
	for _, name := range names {
		if _, ok := s.watched[name]; ok {
			known++
		}
	}
	if known == len(names) && (!whole || known == len(s.watched)) {
		return "", true // the usual case: the request is an answer
	}
	if whole {
		clear(s.watched)
	}
	for _, name := range names {
		switch {
		case name == "*" || name == "": // which subscribes to nothing
		case !s.allowed(name):
			return name, false
		case len(s.watched) < maxNames:
			s.watched[strings.Clone(name)] = struct{}{}
		}
	}
	return "", true
}

// allowed reports whether the client may use the cluster of a name.
func (s *stream) allowed(name string) bool { return s.policy.rules == nil || allows(s.granted, name) }

// mayReport reports whether the client may report on an endpoint: one that is in none of the configured clusters, or in
// one that the client may use. If not, it returns one of its clusters.
func (s *stream) mayReport(address []byte) (refused string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.reported[string(address)]; known {
		return "", true
	}
	if refused := s.foreign(string(address)); refused != "" {
		return refused, false
	}
	if len(s.reported) < maxNames {
		s.reported[string(address)] = struct{}{}
	}
	return "", true
}

// foreign returns a cluster of an endpoint that is only in clusters which the client may not use; empty otherwise.
func (s *stream) foreign(address string) string {
	clusters := s.policy.members[address]
	if len(clusters) == 0 || slices.ContainsFunc(clusters, s.allowed) {
		return ""
	}
	return clusters[0]
}

// adopt applies a policy, and returns what it no longer allows of what the stream does.
func (s *stream) adopt(p *policy) (refused use, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.policy, s.granted = p, granted(p.rules, s.client)
	if p.rules == nil {
		return use{}, true
	}
	if s.granted == nil {
		return use{kind: KindStream}, false
	}
	for name := range s.watched {
		if !s.allowed(name) {
			return use{KindWatch, name}, false
		}
	}
	for address := range s.reported {
		if cluster := s.foreign(address); cluster != "" {
			return use{KindReport, cluster}, false
		}
	}
	return use{}, true
}

// Reporter returns a function that a service calls before it accepts a report on an endpoint, with its address: it
// returns nil, or the status with which the stream has to end. ctx is the stream's. The function is nil for a client
// without a certificate, and used by one goroutine.
func (g *Guard) Reporter(ctx context.Context) func(address []byte) error {
	s, ok := ctx.Value(streamKey{}).(*stream)
	if !ok {
		return nil
	}
	return func(address []byte) error {
		if cluster, ok := s.mayReport(address); !ok {
			return g.deny(s, use{KindReport, cluster})
		}
		return nil
	}
}

// Visible returns a function that reports whether the client of a stream may use a cluster, and so learn its name. It
// is nil for a client without a certificate, which may use all.
func (g *Guard) Visible(ctx context.Context) func(cluster string) bool {
	s, ok := ctx.Value(streamKey{}).(*stream)
	if !ok {
		return nil
	}
	return func(cluster string) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.allowed(cluster)
	}
}

// Intercept is the interceptor for the gRPC server of the port. Its handler returns when the stream ends for any
// reason: that, and nothing else, interrupts a handler that waits for a message.
func (g *Guard) Intercept(
	srv any, inner grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler,
) error {
	client := credentials.PeerIdentity(inner.Context())
	if client.Name == "" {
		return handler(srv, inner)
	}
	s := &stream{ServerStream: inner, guard: g, client: client, ended: make(chan error, 1),
		watched: make(map[string]struct{}), reported: make(map[string]struct{})}
	if p, ok := peer.FromContext(inner.Context()); ok && p.Addr != nil {
		s.peer, s.address = p, p.Addr.String()
	}
	s.ctx = context.WithValue(inner.Context(), streamKey{}, s)
	if err := g.enter(s); err != nil {
		return err
	}
	defer g.leave(s)
	served := make(chan error, 1)
	go func() { served <- handler(srv, s) }()
	select {
	case err := <-served:
		select {
		case err = <-s.ended: // the reason why the handler has returned
		default:
		}
		return err
	case err := <-s.ended:
		return err
	}
}

// enter adds a stream, unless no rule is about its client.
func (g *Guard) enter(s *stream) error {
	g.mu.Lock()
	refused, ok := s.adopt(g.policy)
	if ok {
		g.connection(s).streams[s] = struct{}{}
	}
	g.mu.Unlock()
	if !ok {
		return g.deny(s, refused)
	}
	return nil
}

func (g *Guard) leave(s *stream) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.connection(s)
	delete(c.streams, s)
	g.forget(s.address, c)
}

// connection returns that of a stream. The caller holds the lock.
func (g *Guard) connection(s *stream) *connection {
	c := g.connections[s.address]
	if c == nil {
		c = &connection{streams: make(map[*stream]struct{})}
		g.connections[s.address] = c
	}
	return c
}

// forget removes a connection of which nothing is left to remember. The caller holds the lock.
func (g *Guard) forget(address string, c *connection) {
	if len(c.streams) == 0 && !c.closing {
		delete(g.connections, address)
	}
}
