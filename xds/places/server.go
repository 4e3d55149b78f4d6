package places

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"steelyard/internal/api"
	"steelyard/internal/lease"
	"steelyard/internal/loops"
	"steelyard/internal/streams"
	"steelyard/picking"
	"steelyard/weighting"
	"steelyard/xds/loads/loadsv1"
)

const (
	// Heartbeat is the longest time between two messages to a proxy.
	Heartbeat = time.Second
	// fencedBeat is the same where there are several replicas: a proxy has to find out that one hangs before another
	// one grants places in its stead.
	fencedBeat = Heartbeat / 4
	// MaxRequests is how many requests one stream may have waiting and in flight.
	MaxRequests = 16_384
	// MaxBatch is how many arrivals, and how many ends, one message may have. Requests in flight come in the first
	// message of a stream, up to MaxRequests.
	MaxBatch = 1024
	// MaxName is the length, in bytes, to which the name of a class or tenant is cut.
	MaxName = 128
	// MaxCached is how many endpoints are taken of those that have a part of a request's prompt in their cache.
	MaxCached = 16
	// MaxStreams is the number of streams at a time: at the owner, those of the whole fleet. xds.limits bounds what one
	// client can take.
	MaxStreams = 32_768

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
	// Dial connects to another replica; Told is called with one that grants places, or could, if Trusted has it that
	// the peer of a context is a replica; Offer says whether this one could. They are set before Lead and Run.
	Dial    func(address string) (*grpc.ClientConn, error)
	Told    func(lease.Record)
	Trusted func(context.Context) bool
	Offer   func() (self lease.Record, able bool)

	loadsv1.UnimplementedQueueServer
	log      *slog.Logger
	observer Observer
	opens    time.Time // before that, no queue grants a place
	gate     *streams.Gate
	news     chan announcement // capacity one

	unreachable atomic.Pointer[error] // why streams cannot be passed on to the leader; nil while they can

	mu     sync.Mutex
	halls  map[string]*hall
	leader *leader
	closes time.Time // nothing is granted from then on; zero: for ever
}

// New makes a server without queues. It grants places as the only replica does, until Lead is called, and nothing
// before opens, so that after a start the Envoys can first name the requests that they have in flight.
func New(o Observer, log *slog.Logger, opens time.Time) *Server {
	return &Server{log: log, observer: o, opens: opens, halls: make(map[string]*hall), leader: single(),
		news: make(chan announcement, 1), Offer: func() (self lease.Record, able bool) { return self, false },
		gate: streams.New(streams.Limits{Streams: MaxStreams, What: "streams wait for places"})}
}

// Register adds the service to a gRPC server.
func (s *Server) Register(g *grpc.Server) { loadsv1.RegisterQueueServer(g, service{s}) }

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
		h = newHall(cluster, s.observer, s.opens, s.leader, s.closes)
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
	h := s.known(cluster)
	if h == nil {
		return api.Queue{}, false
	}
	state, ok = h.state()
	state.Owner = s.owner(time.Now())
	return state, ok
}

// owner is what is known of the replica that grants places. Where the lease is, and whether that answers, the caller
// knows.
func (s *Server) owner(now time.Time) (o api.QueueOwner) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.leader
	o = api.QueueOwner{Name: l.Name, Address: l.Address, Since: api.At(l.since), State: api.QueueFollows}
	if l.Epoch > 0 {
		o.Epoch = api.Num(float64(l.Epoch))
	}
	switch why := s.unreachable.Load(); {
	case l.mine && (s.closes.IsZero() || now.Before(s.closes)):
		o.State = api.QueueGrants
	case l.mine:
		o.State = api.QueueStopped
	case !l.known():
		o.State = api.QueueUnknown
	case why != nil:
		o.Error = (*why).Error()
	}
	return o
}

// Run refuses requests that have waited too long, until ctx is done.
func (s *Server) Run(ctx context.Context) error {
	var telling sync.WaitGroup
	defer telling.Wait()
	telling.Go(func() { s.announce(ctx) })
	telling.Go(func() { s.offer(ctx) })
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
	waiter := newStream(time.Now())
	err := s.gate.RunUntil(waiter.gone, errGone, func() error { return s.receive(g, waiter) })
	if errors.Is(err, errGone) {
		return waiter.why
	}
	return err
}

// service is the gRPC service: its method Lead is not the Server's.
type service struct{ *Server }

// Lead takes in which replica grants places from now on.
func (s service) Lead(ctx context.Context, l *loadsv1.Leader) (*loadsv1.Led, error) {
	if err := s.told(ctx, l); err != nil {
		return nil, err
	}
	return &loadsv1.Led{}, nil
}

var (
	errSilent = status.Errorf(codes.DeadlineExceeded, "the Envoy has sent nothing for %v", picking.Stale)
	// errGone stands for the reason that the stream itself has.
	errGone = errors.New("the stream has ended")
)

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
	l, err := s.await(g)
	switch {
	case err != nil:
		return ended(err)
	case !l.mine:
		h.relays(1)
		defer h.relays(-1)
		return s.relay(g, m, l, waiter)
	}
	return s.serve(g, m, h, l, waiter)
}

// serve puts the requests of a stream into the queue of this replica.
func (s *Server) serve(g connection, m *loadsv1.WaitRequest, h *hall, l *leader, waiter *stream) error {
	waiter.shared, waiter.waiter = m.GetShared(), cut(m.GetWaiter())
	waiter.relayed = len(metadata.ValueFromIncomingContext(g.Context(), relayedKey)) > 0
	log := s.log.With("cluster", h.cluster, "picker", cut(m.GetPicker()))
	if p, ok := peer.FromContext(g.Context()); ok {
		log = log.With("peer", p.Addr.String())
	}
	err := h.enter(waiter, l, time.Now())
	if err != nil {
		return err
	}
	defer func() { h.leave(waiter, time.Now()) }()
	ctx, cancel := context.WithCancel(g.Context())
	var answering sync.WaitGroup
	answering.Go(func() { h.answer(ctx, g, waiter, l.Epoch) })
	defer answering.Wait()
	defer cancel()
	log.Info("an Envoy's requests wait in the queue")
	for err == nil {
		if err = h.receive(waiter, m, time.Now()); err == nil {
			m, err = g.Recv()
		}
	}
	select {
	case <-waiter.gone:
		err = waiter.why
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
	wake    loops.Signal // there are verdicts
	shared  bool         // several Envoys may ask its picker
	relayed bool         // another replica passes it on
	waiter  string       // the same for all streams of one picker; empty where unknown

	once sync.Once
	gone chan struct{} // closed when the server ends the stream
	why  error         // its status, from then on

	open    map[uint64]struct{} // requests waiting and in flight; used by the hall, as are the fields below
	heard   time.Time           // when its latest message came
	fastest fastest

	mu       sync.Mutex
	verdicts []*loadsv1.Verdict
}

func newStream(now time.Time) *stream {
	return &stream{wake: loops.NewSignal(), gone: make(chan struct{}), open: make(map[uint64]struct{}), heard: now}
}

// end ends a stream, unless it has ended: a handler that waits for a message returns only so.
func (s *stream) end(why error) {
	s.once.Do(func() {
		s.why = why
		close(s.gone)
	})
}

// answer sends verdicts until ctx is done or the stream breaks, which receiving reports.
func (h *hall) answer(ctx context.Context, g connection, s *stream, epoch uint64) {
	every := Heartbeat
	if epoch > 0 {
		every = fencedBeat
	}
	beat := time.NewTimer(0)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-beat.C:
		}
		beat.Reset(every)
		if g.Send(h.next(s, epoch)) != nil {
			return
		}
	}
}

// next is the next message of a stream: with verdicts while the replica still leads, however long ago they were made.
func (h *hall) next(s *stream, epoch uint64) *loadsv1.WaitResponse {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.streams[s.number] != s || !h.grants(time.Now()) {
		return &loadsv1.WaitResponse{Pending: true}
	}
	return &loadsv1.WaitResponse{Verdicts: s.taken(), Epoch: epoch}
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
