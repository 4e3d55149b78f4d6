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

	"steelyard/picking"
	"steelyard/picking/queue"
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
	// MaxStreams is the number of streams at a time.
	MaxStreams = 1024

	// tick is how late a request that has waited too long may be refused.
	tick = 50 * time.Millisecond
	// patience is how long a stream may take to name its cluster.
	patience = 10 * time.Second
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
	opens    time.Time     // before that, no queue grants a place
	done     chan struct{} // closed by Close
	serving  sync.WaitGroup

	mu     sync.Mutex
	closed bool
	open   int // streams
	halls  map[string]*hall
}

// New makes a server without queues. Its queues grant nothing before opens, so that after a start the Envoys can first
// name the requests that they have in flight.
func New(o Observer, log *slog.Logger, opens time.Time) *Server {
	return &Server{log: log, observer: o, opens: opens, done: make(chan struct{}), halls: make(map[string]*hall)}
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

// A State is the state of one queue.
type State struct {
	MaxInFlight int // of each endpoint; 0: its slots
	InFlight    int // requests that the queue sent and that have not ended
	Streams     int // of Envoys
	Classes     []ClassState
}

// A ClassState is one class with its counts.
type ClassState struct {
	queue.ClassState
	Counts
}

// State returns the state of a cluster's queue; ok is false if it has none.
func (s *Server) State(cluster string) (state State, ok bool) {
	if h := s.known(cluster); h != nil {
		return h.state()
	}
	return State{}, false
}

// Run refuses requests that have waited too long, until ctx is done.
func (s *Server) Run(ctx context.Context) error {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-ticker.C:
			for _, h := range s.all() {
				h.tick(now)
			}
		}
	}
}

// Close ends all streams, refuses new ones, and returns when all have ended.
func (s *Server) Close() {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.done)
	}
	s.mu.Unlock()
	s.serving.Wait()
}

// Wait serves one stream. gRPC ends a stream only when its handler returns, and then a pending Recv fails; so the
// handler sends, and Close waits for the goroutine that receives.
func (s *Server) Wait(g grpc.BidiStreamingServer[loadsv1.WaitRequest, loadsv1.WaitResponse]) error {
	if err := s.enter(); err != nil {
		return err
	}
	named, failed := make(chan *stream, 1), make(chan error, 1)
	go func() {
		defer s.exit()
		failed <- s.receive(g, named)
	}()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case err := <-failed:
		return err
	case <-s.done:
		return errStopping
	case <-timer.C:
		return status.Errorf(codes.DeadlineExceeded, "the stream has named no cluster within %v", patience)
	case waiter := <-named:
		return s.answer(g, waiter, failed)
	}
}

var (
	errStopping = status.Error(codes.Unavailable, "Steelyard is stopping")
	errSilent   = status.Errorf(codes.DeadlineExceeded, "the Envoy has sent nothing for %v", picking.Stale)
)

func (s *Server) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return errStopping
	case s.open >= MaxStreams:
		return status.Errorf(codes.ResourceExhausted, "%d streams wait for places, which is the limit", MaxStreams)
	}
	s.open++
	s.serving.Add(1)
	return nil
}

func (s *Server) exit() {
	s.mu.Lock()
	s.open--
	s.mu.Unlock()
	s.serving.Done()
}

// receive handles the messages of a stream until it ends. It passes the stream on when the first message has named it.
func (s *Server) receive(g grpc.BidiStreamingServer[loadsv1.WaitRequest, loadsv1.WaitResponse],
	named chan<- *stream) error {
	m, err := g.Recv()
	if err != nil {
		return ended(err)
	}
	h := s.known(m.GetCluster())
	if h == nil || !h.on() {
		return status.Errorf(codes.FailedPrecondition, "cluster %q has no queue", cut(m.GetCluster()))
	}
	waiter := newStream(m.GetHeartbeats(), time.Now())
	log := s.log.With("cluster", h.cluster, "picker", cut(m.GetPicker()))
	if p, ok := peer.FromContext(g.Context()); ok {
		log = log.With("peer", p.Addr.String())
	}
	h.enter(waiter)
	defer func() { h.leave(waiter, time.Now()) }()
	named <- waiter
	log.Info("an Envoy's requests wait in the queue")
	for err == nil {
		if err = h.take(waiter, m, time.Now()); err == nil {
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

// answer sends verdicts until the stream ends.
func (s *Server) answer(g grpc.BidiStreamingServer[loadsv1.WaitRequest, loadsv1.WaitResponse], waiter *stream,
	failed <-chan error) error {
	beat := time.NewTimer(0)
	defer beat.Stop()
	for {
		select {
		case err := <-failed:
			return err
		case <-s.done:
			return errStopping
		case <-waiter.silent:
			return errSilent
		case <-waiter.wake:
		case <-beat.C:
		}
		beat.Reset(Heartbeat)
		if err := g.Send(&loadsv1.WaitResponse{Verdicts: waiter.taken()}); err != nil {
			return err
		}
	}
}

// A stream belongs to one Envoy and one cluster.
type stream struct {
	number  uint64
	wake    chan struct{}       // capacity one: there are verdicts
	silent  chan struct{}       // closed by the hall when it has forgotten the stream
	beats   bool                // it sends heartbeats, so it can be silent
	open    map[uint64]struct{} // requests waiting and in flight; used by the hall, as are the fields below
	heard   time.Time           // when its latest message came
	fastest fastest

	mu       sync.Mutex
	verdicts []*loadsv1.Verdict
}

func newStream(beats bool, now time.Time) *stream {
	return &stream{wake: make(chan struct{}, 1), silent: make(chan struct{}), open: make(map[uint64]struct{}),
		beats: beats, heard: now}
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
	select {
	case s.wake <- struct{}{}:
	default: // it is already awake
	}
}

// taken returns the verdicts to send, at most MaxBatch; it wakes the stream again if there are more.
func (s *stream) taken() []*loadsv1.Verdict {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min(len(s.verdicts), MaxBatch)
	out := s.verdicts[:n:n]
	if s.verdicts = s.verdicts[n:]; len(s.verdicts) > 0 {
		select {
		case s.wake <- struct{}{}:
		default: // it is already awake
		}
	}
	return out
}
