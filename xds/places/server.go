package places

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"steelyard/internal/api"
	"steelyard/internal/loops"
	"steelyard/internal/streams"
	"steelyard/picking"
	"steelyard/weighting"
	"steelyard/xds/loads/loadsv1"
)

const (
	// Heartbeat is the longest time between two messages to a proxy.
	Heartbeat = time.Second
	// MaxRequests is how many requests one stream may have waiting and in flight.
	MaxRequests = 16_384
	// MaxBatch is how many arrivals, and how many ends, one message may have. Requests in flight come in the first
	// message of a stream, up to MaxRequests.
	MaxBatch = 1024
	// MaxName is the length, in bytes, to which the name of a class or tenant is cut.
	MaxName = 128
	// MaxCached is how many endpoints are taken of those that have a part of a request's prompt in their cache.
	MaxCached = 16
	// MaxStreams is the number of streams at a time.
	MaxStreams = 1024

	// tick is how late a request that has waited too long may be refused.
	tick = 50 * time.Millisecond
)

// The results of waiting, besides the refusals.
const (
	ResultGranted  = "granted"
	ResultReleased = "released"
)

// An Observer is called for each request whose waiting ends, under a lock. It must not block.
type Observer interface {
	// Waited is called with the result: granted, released, full or timeout.
	Waited(cluster, class, result string, d time.Duration)
	// Left is called for a request whose client gave up.
	Left(cluster, class string)
}

// A Server serves the queues of all clusters.
type Server struct {
	loadsv1.UnimplementedQueueServer
	log      *slog.Logger
	observer Observer
	opens    time.Time // before that, no queue grants a place
	gate     *streams.Gate

	mu    sync.Mutex
	halls map[string]*hall
}

// New makes a server without queues. Its queues grant nothing before opens, so that after a start the Envoys can first
// name the requests that they have in flight.
func New(o Observer, log *slog.Logger, opens time.Time) *Server {
	return &Server{log: log, observer: o, opens: opens, halls: make(map[string]*hall),
		gate: streams.New(streams.Limits{Streams: MaxStreams, What: "streams wait for places"})}
}

// Register adds the service to a gRPC server.
func (s *Server) Register(g *grpc.Server) { loadsv1.RegisterQueueServer(g, s) }

// Configure sets the settings of all queues, by cluster. A cluster without settings has no queue: what waits there is
// released.
func (s *Server) Configure(settings map[string]*Settings) {
	now := time.Now()
	for name, h := range s.all() {
		if settings[name] == nil {
			h.configure(nil, now)
		}
	}
	for name, o := range settings {
		s.hall(name).configure(o, now)
	}
}

func (s *Server) all() map[string]*hall {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.halls)
}

// hall returns the hall of a configured cluster.
func (s *Server) hall(cluster string) *hall {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.halls[cluster]
	if h == nil {
		h = newHall(cluster, s.observer, s.opens)
		s.halls[cluster] = h
	}
	return h
}

// known returns the hall of a cluster that has or had a queue; nil otherwise.
func (s *Server) known(cluster string) *hall {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.halls[cluster]
}

// Publish takes the latest decision of a cluster, and grants places by it.
func (s *Server) Publish(cluster string, d weighting.Decision) {
	if h := s.known(cluster); h != nil {
		h.decided(&d, time.Now())
	}
}

// State returns the state of a cluster's queue; ok is false if it has none.
func (s *Server) State(cluster string) (state api.Queue, ok bool) {
	if h := s.known(cluster); h != nil {
		return h.state()
	}
	return api.Queue{}, false
}

// Run refuses requests that have waited too long, until ctx is done.
func (s *Server) Run(ctx context.Context) error {
	loops.Every(ctx, tick, func(now time.Time) {
		for _, h := range s.all() {
			h.tick(now)
		}
	})
	return nil
}

// Close ends all streams, refuses new ones, and returns when all have ended.
func (s *Server) Close() {
	s.gate.Close()
	s.gate.Wait()
}

// A connection is the stream of one Envoy for one cluster.
type connection = grpc.BidiStreamingServer[loadsv1.WaitRequest, loadsv1.WaitResponse]

// Wait serves one stream.
func (s *Server) Wait(g connection) error {
	waiter := newStream(false, time.Now()) // until its first message promises heartbeats
	return s.gate.RunUntil(waiter.silent, errSilent, func() error { return s.receive(g, waiter) })
}

var errSilent = status.Errorf(codes.DeadlineExceeded, "the Envoy has sent nothing for %v", picking.Stale)

// receive handles the messages of a stream until it ends.
func (s *Server) receive(g connection, waiter *stream) error {
	m, err := g.Recv()
	if err != nil {
		return ended(err)
	}
	h := s.known(m.GetCluster())
	if h == nil || !h.on() {
		return status.Errorf(codes.FailedPrecondition, "cluster %q has no queue", cut(m.GetCluster()))
	}
	waiter.beats, waiter.shared = m.GetHeartbeats(), m.GetShared()
	log := s.log.With("cluster", h.cluster, "picker", cut(m.GetPicker()))
	if p, ok := peer.FromContext(g.Context()); ok {
		log = log.With("peer", p.Addr.String())
	}
	h.enter(waiter)
	defer func() { h.leave(waiter, time.Now()) }()
	ctx, cancel := context.WithCancel(g.Context())
	var answering sync.WaitGroup
	answering.Go(func() { waiter.answer(ctx, g) })
	defer answering.Wait()
	defer cancel()
	log.Info("an Envoy's requests wait in the queue")
	for err == nil {
		if err = h.receive(waiter, m, time.Now()); err == nil {
			m, err = g.Recv()
		}
	}
	select {
	case <-waiter.silent:
		err = errSilent
	default:
	}
	log.Info("an Envoy left the queue", "error", ended(err))
	return ended(err)
}

// ended returns nil for a stream that its peer closed.
func ended(err error) error {
	if errors.Is(err, io.EOF) || status.Code(err) == codes.Canceled {
		return nil
	}
	return err
}

// A stream belongs to one Envoy and one cluster.
type stream struct {
	number  uint64
	wake    loops.Signal        // there are verdicts
	silent  chan struct{}       // closed by the hall when it has forgotten the stream
	beats   bool                // it sends heartbeats, so it can be silent
	shared  bool                // several Envoys may ask its picker
	open    map[uint64]struct{} // requests waiting and in flight; used by the hall, as are the fields below
	heard   time.Time           // when its latest message came
	fastest fastest

	mu       sync.Mutex
	verdicts []*loadsv1.Verdict
}

func newStream(beats bool, now time.Time) *stream {
	return &stream{wake: loops.NewSignal(), silent: make(chan struct{}), open: make(map[uint64]struct{}),
		beats: beats, heard: now}
}

// answer sends verdicts until ctx is done or the stream breaks, which receiving reports.
func (s *stream) answer(ctx context.Context, g connection) {
	beat := time.NewTimer(0)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-beat.C:
		}
		beat.Reset(Heartbeat)
		if g.Send(&loadsv1.WaitResponse{Verdicts: s.taken()}) != nil {
			return
		}
	}
}

// check refuses a message that is too large.
func (s *stream) check(m *loadsv1.WaitRequest) error {
	switch {
	case len(m.GetHeld()) > 0 && m.GetCluster() == "":
		return status.Error(codes.InvalidArgument, "requests in flight are named after the first message")
	case len(m.GetArrivals()) > MaxBatch || len(m.GetEnded()) > MaxBatch:
		return status.Errorf(codes.InvalidArgument, "a message has %d arrivals and %d ends, at most %d are taken",
			len(m.GetArrivals()), len(m.GetEnded()), MaxBatch)
	}
	return nil
}

// room refuses a message with more requests than one stream may have.
func (s *stream) room(m *loadsv1.WaitRequest) error {
	if len(s.open)+len(m.GetHeld())+len(m.GetArrivals()) > MaxRequests {
		return status.Errorf(codes.ResourceExhausted, "more than %d requests of one Envoy", MaxRequests)
	}
	return nil
}

// give keeps a verdict until it is sent.
func (s *stream) give(v *loadsv1.Verdict) {
	s.mu.Lock()
	s.verdicts = append(s.verdicts, v)
	s.mu.Unlock()
	s.wake.Set()
}

// taken returns the verdicts to send, at most MaxBatch; it wakes the stream again if there are more.
func (s *stream) taken() []*loadsv1.Verdict {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min(len(s.verdicts), MaxBatch)
	out := s.verdicts[:n:n]
	if s.verdicts = s.verdicts[n:]; len(s.verdicts) > 0 {
		s.wake.Set()
	}
	return out
}
