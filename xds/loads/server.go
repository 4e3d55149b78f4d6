package loads

import (
	"context"
	"log/slog"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"steelyard/internal/api"
	"steelyard/internal/streams"
	"steelyard/picking"
	"steelyard/weighting"
	"steelyard/xds/loads/loadsv1"
)

const (
	// Heartbeat is the longest time between two updates of a cluster.
	Heartbeat = time.Second
	// MinInterval is the shortest.
	MinInterval = 5 * time.Millisecond
	// BytesPerSecond bounds what one stream may cost.
	BytesPerSecond = 4 << 20
	// MaxFollowers bounds the number of streams.
	MaxFollowers = 1024
	// MaxClusters bounds the number of clusters that one stream may name.
	MaxClusters = 1024
)

// A Server streams the latest decision of each cluster.
type Server struct {
	loadsv1.UnimplementedLoadsServer
	// Visible returns which clusters the client of a stream may learn of; all where it, or what it returns, is nil. Set
	// it before Register.
	Visible func(ctx context.Context) func(cluster string) bool
	// Learned is called with what pickers here learn, and with an endpoint that lost it, for the other replicas; nil:
	// there are none. It may not block. Set it before Register.
	Learned func(l *loadsv1.Learned)

	log  *slog.Logger
	gate *streams.Gate // of Follow

	mu        sync.Mutex
	clusters  map[string]decided
	settings  map[string]Settings // of all clusters that are configured; nil before the first configuration
	missed    map[string]struct{} // clusters that are not, and whose followers were logged; at most maxMissed
	changes   uint64              // counts changes of clusters
	changed   chan struct{}       // closed at the next change
	followers map[*api.Picker]struct{}

	sharing sharing
	keeping keeping
}

// decided is the latest decision of a cluster.
type decided struct {
	round    uint64 // of its change
	at       time.Time
	decision weighting.Decision
	removed  bool
	settings Settings
}

// Settings are what pickers are sent of a cluster's configuration.
type Settings struct {
	Queue  *loadsv1.QueueHeaders // the headers by which requests wait in a queue; nil without one
	Prefix *loadsv1.Prefix       // without the fields that are learned
}

// New makes a server without clusters.
func New(log *slog.Logger) *Server {
	gate := func(what string) *streams.Gate { return streams.New(streams.Limits{Streams: MaxFollowers, What: what}) }
	return &Server{log: log, gate: gate("pickers follow the loads"), clusters: make(map[string]decided),
		changed: make(chan struct{}), followers: make(map[*api.Picker]struct{}),
		sharing: sharing{gate: gate("pickers share what they learn"), members: make(map[*member]struct{})},
		keeping: keeping{tables: make(map[string]*keptTable)}}
}

// Register adds the service to a gRPC server.
func (s *Server) Register(g *grpc.Server) { loadsv1.RegisterLoadsServer(g, s) }

// Close ends all streams, and refuses new ones. The gRPC server waits for them: one whose picker does not read ends
// with its connection.
func (s *Server) Close() {
	s.gate.Close()
	s.sharing.gate.Close()
}

// Publish sets the latest decision of a cluster. It does not wait for any follower.
func (s *Server) Publish(cluster string, d weighting.Decision) {
	s.set(cluster, decided{decision: d})
	s.followEndpoints(cluster, &d)
}

// Remove sends the followers of a cluster its removal.
func (s *Server) Remove(cluster string) { s.set(cluster, decided{removed: true}) }

// Configure replaces the clusters and their settings. Followers get them with the next decision.
func (s *Server) Configure(settings map[string]Settings) {
	s.keeping.configure(settings)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settings, s.missed = settings, make(map[string]struct{})
}

func (s *Server) set(cluster string, d decided) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changes++
	d.round, d.at, d.settings = s.changes, time.Now(), s.settings[cluster]
	s.clusters[cluster] = d
	if d.removed && len(s.followers) == 0 {
		delete(s.clusters, cluster)
	}
	if len(s.followers) > 0 {
		close(s.changed)
		s.changed = make(chan struct{})
	}
}

// Followers returns the open streams, oldest first.
func (s *Server) Followers() []api.Picker {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]api.Picker, 0, len(s.followers))
	for f := range s.followers {
		out = append(out, *f)
	}
	slices.SortFunc(out, func(a, b api.Picker) int { return a.Since.Compare(b.Since.Time) })
	return out
}

// Follow serves one stream.
func (s *Server) Follow(r *loadsv1.FollowRequest, stream grpc.ServerStreamingServer[loadsv1.Update]) error {
	if len(r.GetClusters()) > MaxClusters {
		return status.Errorf(codes.InvalidArgument, "%d clusters are named, at most %d are served to one picker",
			len(r.GetClusters()), MaxClusters)
	}
	f := &api.Picker{Name: clipped(r.GetPicker()), Clusters: r.GetClusters(), Since: api.At(time.Now())}
	if p, ok := peer.FromContext(stream.Context()); ok {
		f.Address = p.Addr.String()
	}
	if err := s.find(stream.Context(), f); err != nil {
		return err
	}
	exit, err := s.gate.Enter()
	if err != nil {
		return err
	}
	defer exit()
	s.enter(f)
	defer s.leave(f)
	log := s.log.With("picker", f.Name, "peer", f.Address)
	log.Info("picker follows the loads")
	err = s.serve(f, stream)
	log.Info("picker left", "error", err)
	return err
}

func (s *Server) enter(f *api.Picker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.followers[f] = struct{}{}
}

func (s *Server) leave(f *api.Picker) {
	s.mu.Lock()
	delete(s.followers, f)
	if len(s.followers) == 0 {
		maps.DeleteFunc(s.clusters, func(_ string, d decided) bool { return d.removed })
	}
	s.mu.Unlock()
}

// serve sends updates until the stream ends.
func (s *Server) serve(f *api.Picker, stream grpc.ServerStreamingServer[loadsv1.Update]) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	// await waits for d, or for an event; it reports false when the stream has to end.
	await := func(d time.Duration, event <-chan struct{}) bool {
		timer.Reset(d)
		select {
		case <-stream.Context().Done():
			return false
		case <-s.gate.Closed():
			return false
		case <-event:
		case <-timer.C:
		}
		return true
	}
	sent := make(map[string]uint64) // the round of the last update, by cluster
	var beat time.Time              // of the latest update of all clusters
	for {
		all := time.Since(beat) >= Heartbeat
		if all {
			beat = time.Now()
		}
		updates, changed := s.updates(f, sent, all)
		bytes := 0
		for _, u := range updates {
			bytes += proto.Size(u)
			if err := stream.Send(u); err != nil {
				return err
			}
		}
		pause := max(MinInterval, time.Duration(float64(bytes)/BytesPerSecond*float64(time.Second)))
		if !await(pause, nil) || !await(time.Until(beat.Add(Heartbeat)), changed) {
			return status.Error(codes.Unavailable, "Steelyard is stopping, or the stream was cancelled")
		}
	}
}

// updates returns what a follower has not been sent yet, or everything if all is set. changed is closed at the next
// change.
func (s *Server) updates(f *api.Picker, sent map[string]uint64, all bool) (updates []*loadsv1.Update,
	changed <-chan struct{}) {
	s.mu.Lock()
	var news []string
	found := make(map[string]decided)
	for name, d := range s.clusters {
		follows := len(f.Clusters) == 0 || slices.Contains(f.Clusters, name)
		if was, known := sent[name]; follows && (!known && !d.removed || known && was != d.round || all && !d.removed) {
			news, found[name] = append(news, name), d
		}
	}
	changed = s.changed
	s.mu.Unlock()
	slices.Sort(news)
	for _, name := range news {
		d := found[name]
		sent[name] = d.round
		if d.removed {
			delete(sent, name)
			updates = append(updates, &loadsv1.Update{Cluster: name, Removed: true})
			continue
		}
		updates = append(updates, updateOf(name, &d))
	}
	return updates, changed
}

// updateOf returns a decision as pickers get it.
func updateOf(cluster string, d *decided) *loadsv1.Update {
	from, set := picking.UpdateOf(&d.decision), d.settings.Prefix
	u := &loadsv1.Update{Cluster: cluster, ArrivalRate: from.ArrivalRate, Cost: costOf(from.Cost),
		Endpoints: make([]*loadsv1.Endpoint, len(from.Endpoints)), DropFraction: from.Drop, Queue: d.settings.Queue,
		AgeSeconds: time.Since(d.at).Seconds(),
		Prefix: &loadsv1.Prefix{Routes: set.GetRoutes(), TtlSeconds: set.GetTtlSeconds(), Markers: set.GetMarkers(),
			LongestMatch: set.GetLongestMatch(), BlockTokens: uint32(min(from.BlockTokens, math.MaxInt32)),
			TokensPerByte: from.TokensPerByte}}
	for i, e := range from.Endpoints {
		u.Endpoints[i] = &loadsv1.Endpoint{Address: e.Address, Load: e.Load, Slots: e.Slots, Speed: e.Speed,
			Avoid: e.Avoid != picking.AvoidNone, Drained: e.Avoid == picking.AvoidDrained, Share: e.Share,
			LoadAgeSeconds: e.LoadAge.Seconds(), Restarts: uint32(min(e.Restarts, math.MaxUint32))}
	}
	return u
}

func costOf(c picking.Cost) *loadsv1.Cost {
	return &loadsv1.Cost{Base: c.Base, PerByte: c.PerByte, Mean: c.Mean, Most: c.Most, Cached: c.Cached}
}
