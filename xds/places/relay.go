package places

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc/metadata"

	"steelyard/internal/loops"
	"steelyard/picking"
	"steelyard/xds/loads/loadsv1"
)

// again is how long a stream is kept that could not be passed on: most often its leader is gone, and another one is
// known in a moment.
const again = 300 * time.Millisecond

// relay passes the messages of a stream on to the replica that leads, and its answers back, until one of them ends.
func (s *Server) relay(g connection, first *loadsv1.WaitRequest, l *leader, waiter *stream) error {
	ctx, cancel := context.WithCancel(g.Context())
	answers := make(chan *loadsv1.WaitResponse)
	var passing sync.WaitGroup
	defer passing.Wait()
	defer cancel()
	passing.Go(func() { waiter.end(s.answer(ctx, g, l, answers)) })
	up, err := l.open(ctx, first)
	if err == nil {
		passing.Go(func() {
			for {
				m, err := up.Recv()
				if err != nil {
					s.heed(up.Context(), err)
					s.lost(ctx, l, waiter, err)
					return
				}
				s.unreachable.Store(nil)
				select {
				case answers <- m:
				case <-ctx.Done():
					return
				}
			}
		})
	} else {
		passing.Go(func() { s.lost(ctx, l, waiter, err) })
	}
	for {
		m, err := g.Recv()
		if err != nil {
			return ended(err)
		}
		if up != nil {
			_ = up.Send(m) // receiving reports why it failed
		}
	}
}

// open begins a stream to another replica, which lasts until ctx is done.
func (l *leader) open(ctx context.Context, first *loadsv1.WaitRequest) (loadsv1.Queue_WaitClient, error) {
	conn, err := l.connect()
	if err != nil {
		return nil, err
	}
	ctx = metadata.AppendToOutgoingContext(ctx, relayedKey, strconv.FormatUint(l.Epoch, 10))
	up, err := loadsv1.NewQueueClient(conn).Wait(ctx)
	if err != nil {
		return nil, err
	}
	_ = up.Send(first) // the same
	return up, nil
}

// lost has the proxy try again, since its stream could not be passed on, or not any more: in a moment, or at once where
// another leader is known.
func (s *Server) lost(ctx context.Context, l *leader, waiter *stream, err error) {
	select {
	case <-ctx.Done():
		return
	case <-l.over: // the stream ends by that
		return
	default:
	}
	s.away(l, err)
	loops.Pause(ctx, again)
	waiter.end(errMoved)
}

// away has the state show why the leader cannot be reached.
func (s *Server) away(l *leader, err error) {
	why := fmt.Errorf("passing requests on to replica %s at %s, which grants places: %w", l.Name, l.Address, err)
	s.unreachable.Store(&why)
}

// errHangs is why a stream ends that was passed on, and whose leader keeps its connection open.
var errHangs = fmt.Errorf("it has sent nothing for %v", picking.Stale)

// answer passes answers back, and tells the proxy between them that this replica is alive. A leader that sends nothing
// for as long as requests wait without one ends the stream.
func (s *Server) answer(ctx context.Context, g connection, l *leader, answers <-chan *loadsv1.WaitResponse) error {
	beat, silent := time.NewTicker(fencedBeat), time.NewTimer(picking.Stale)
	defer beat.Stop()
	defer silent.Stop()
	for {
		m := &loadsv1.WaitResponse{Pending: true}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.over:
			return errMoved
		case <-beat.C:
		case <-silent.C:
			s.away(l, errHangs)
			return errMoved
		case m = <-answers:
			silent.Reset(picking.Stale)
		}
		if err := g.Send(m); err != nil {
			return err
		}
	}
}
