package places

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"steelyard/internal/lease"
	"steelyard/internal/loops"
	"steelyard/picking"
	"steelyard/picking/queue"
	"steelyard/xds/loads/loadsv1"
)

// relayedKey is the gRPC metadata of a stream that a replica passes on: the epoch of the leader for which it takes this
// one.
const relayedKey = "x-steelyard-relayed"

// maxAddress is the length of the longest host:port.
const maxAddress = 253 + len(":65535")

// offerEvery is the time between two offers to a leader.
const offerEvery = 2 * time.Second

// A leader is the replica that grants places, from when this one learns of it until it learns of another.
type leader struct {
	lease.Record
	mine  bool
	since time.Time     // when this replica learned of it
	over  chan struct{} // closed when another one is known

	dial func(address string) (*grpc.ClientConn, error)
	mu   sync.Mutex
	conn *grpc.ClientConn // to another replica; nil before the first relayed stream
	done bool
}

// single is the leader where there is only one replica.
func single() *leader { return &leader{mine: true, over: make(chan struct{})} }

func (l *leader) known() bool { return l.mine || l.ID != "" }

// connect returns the connection to another replica.
func (l *leader) connect() (*grpc.ClientConn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done {
		return nil, errMoved
	}
	var err error
	if l.conn == nil {
		l.conn, err = l.dial(l.Address)
	}
	return l.conn, err
}

// end ends all that follows this leader.
func (l *leader) end() {
	close(l.over)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done = true; l.conn != nil {
		_ = l.conn.Close() // its streams are over
	}
}

// The statuses of streams that end because of what leads.
var (
	errMoved    = status.Error(codes.Aborted, "another replica grants places")
	errNotOwner = status.Error(codes.Unavailable, "this replica does not grant places")
	errNoOwner  = status.Errorf(codes.Unavailable, "no replica has granted places for %v", picking.Stale)
	errReplaced = status.Error(codes.Aborted, "a newer stream of the same picker")
)

// Lead takes in what is known of the lease on the queues. Where another replica has it, streams are passed on to that
// one. A new leader starts with nothing: proxies name again what waits and what holds places. With the zero
// State, none is known yet.
func (s *Server) Lead(state lease.State) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	before, next := s.leader, s.leader
	if before.Record != state.Owner || before.mine != state.Mine {
		next = &leader{Record: state.Owner, mine: state.Mine, since: state.Since, over: make(chan struct{}),
			dial: s.Dial}
		s.leader = next
	}
	if s.closes = now; state.Mine {
		s.closes = state.Until
	}
	for _, h := range s.halls {
		h.lead(next, s.closes, now)
	}
	if next == before {
		return
	}
	before.end()
	s.unreachable.Store(nil)
	if next.mine && state.Before.Address != "" {
		select {
		case <-s.news:
		default:
		}
		s.news <- announcement{next, state.Before.Address}
	}
}

// offer tells the leader from time to time that this replica could lead in its stead, until ctx is done: a leader that
// is blind gives up the lease only then.
func (s *Server) offer(ctx context.Context) {
	loops.Every(ctx, offerEvery, func(time.Time) { s.offerOnce(ctx) })
}

func (s *Server) offerOnce(ctx context.Context) {
	l := s.current()
	self, able := s.Offer()
	if l.mine || l.ID == "" || !able {
		return
	}
	conn, err := l.connect()
	if err == nil {
		limited, cancel := context.WithTimeout(ctx, offerEvery)
		defer cancel()
		self.Epoch = l.Epoch // which says that it does not lead: no other leader has that
		_, err = loadsv1.NewQueueClient(conn).Lead(limited, messageOf(self))
	}
	if err != nil {
		s.log.Debug("the replica that grants places was not told that this one could", "error", err)
	}
}

// An announcement tells the leader before of a new one.
type announcement struct {
	leader *leader
	to     string
}

// announce tells the replicas that led before which one does now, until ctx is done: one that cannot reach the store
// would not know where to pass streams on to.
func (s *Server) announce(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case a := <-s.news:
			s.tell(ctx, a)
		}
	}
}

// tell tries until the other replica has the news, has been silent for longer than its Envoys wait, or another one
// leads.
func (s *Server) tell(ctx context.Context, a announcement) {
	ctx, cancel := context.WithTimeout(ctx, picking.Stale)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() {
		select {
		case <-a.leader.over:
			cancel()
		case <-ctx.Done():
		}
	})
	conn, err := s.Dial(a.to)
	if err != nil {
		s.log.Warn("the replica that granted places before cannot be reached", "address", a.to, "error", err)
		return
	}
	defer conn.Close()
	_, err = loadsv1.NewQueueClient(conn).Lead(ctx, messageOf(a.leader.Record), grpc.WaitForReady(true))
	if err != nil {
		s.log.Debug("the announcement did not reach the replica that granted places before", "address", a.to, "error",
			err)
	}
}

// notOwner is errNotOwner with the replica that grants places, where one is known: a replica that is cut off from the
// store learns of it so.
func notOwner(owner lease.Record) error {
	if owner.ID == "" {
		return errNotOwner
	}
	with, err := status.Convert(errNotOwner).WithDetails(messageOf(owner))
	if err != nil {
		return errNotOwner
	}
	return with.Err()
}

// heed takes in the owner that the status of a stream to another replica names.
func (s *Server) heed(from context.Context, err error) {
	for _, d := range status.Convert(err).Details() {
		if m, ok := d.(*loadsv1.Leader); ok {
			if told := s.told(from, m); told != nil {
				s.log.Debug("the name of the next owner does not count", "error", told)
			}
		}
	}
}

// told takes in the replica that grants places, as the peer of a connection names it. The error is a status.
func (s *Server) told(ctx context.Context, m *loadsv1.Leader) error {
	if s.Trusted == nil || !s.Trusted(ctx) {
		return status.Error(codes.PermissionDenied, "only replicas may say which one grants places")
	}
	if m.GetEpoch() > lease.MaxEpoch {
		return status.Errorf(codes.InvalidArgument, "epoch %d, want at most %d", m.GetEpoch(), lease.MaxEpoch)
	}
	if len(m.GetAddress()) > maxAddress {
		return status.Errorf(codes.InvalidArgument, "an address of %d bytes, want at most %d", len(m.GetAddress()),
			maxAddress)
	}
	s.Told(lease.Record{ID: cut(m.GetId()), Name: cut(m.GetName()), Address: strings.Clone(m.GetAddress()),
		Epoch: m.GetEpoch()})
	return nil
}

func messageOf(r lease.Record) *loadsv1.Leader {
	return &loadsv1.Leader{Id: r.ID, Name: r.Name, Address: r.Address, Epoch: r.Epoch}
}

// current is the replica that leads, as far as this one knows.
func (s *Server) current() *leader {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leader
}

// await returns the leader for a stream. While there is none, the proxy hears that this replica
// is alive.
func (s *Server) await(g connection) (*leader, error) {
	limit, beat := time.NewTimer(picking.Stale), time.NewTicker(fencedBeat)
	defer limit.Stop()
	defer beat.Stop()
	for {
		l := s.current()
		switch from := metadata.ValueFromIncomingContext(g.Context(), relayedKey); {
		case len(from) > 0 && (!l.mine || from[0] != strconv.FormatUint(l.Epoch, 10)):
			return nil, notOwner(l.Record)
		case l.known():
			return l, nil
		}
		select {
		case <-g.Context().Done():
			return nil, g.Context().Err()
		case <-l.over:
		case <-limit.C:
			return nil, errNoOwner
		case <-beat.C:
			if err := g.Send(&loadsv1.WaitResponse{Pending: true}); err != nil {
				return nil, err
			}
		}
	}
}

// lead starts over if another replica leads, and grants places until closes.
func (h *hall) lead(l *leader, closes, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	paused := !h.grants(now)
	h.closes = closes
	h.queue.Close(closes)
	if h.leader == l {
		for _, s := range h.streams {
			if paused {
				s.wake.Set() // verdicts may wait for it
			}
		}
		return
	}
	h.leader = l
	for _, s := range h.streams {
		h.forget(s, errMoved)
	}
	h.queue.Forget(now.Add(queue.Grace))
}

// forget ends a stream. Its requests are the caller's to forget.
func (h *hall) forget(s *stream, why error) {
	delete(h.streams, s.number)
	s.end(why)
}

// grants reports whether places are granted at a time.
func (h *hall) grants(now time.Time) bool { return h.closes.IsZero() || now.Before(h.closes) }
