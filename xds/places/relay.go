package places

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc/metadata"

	"steelyard/internal/loops"
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
	passing.Go(func() { waiter.end(answer(ctx, g, l, answers)) })
	up, err := l.open(ctx, first)
	if err == nil {
		passing.Go(func() {
			for {
				m, err := up.Recv()
				if err != nil {
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

// lost has the proxy try again in a moment, since its stream could not be passed on, or not any more.
func (s *Server) lost(ctx context.Context, l *leader, waiter *stream, err error) {
	if ctx.Err() != nil {
		return
	}
	why := fmt.Errorf("passing requests on to replica %s at %s, which grants places: %w", l.Name, l.Address, err)
	s.unreachable.Store(&why)
	loops.Pause(ctx, again)
	waiter.end(errMoved)
}

// answer passes answers back, and tells the proxy between them that this replica is alive.
func answer(ctx context.Context, g connection, l *leader, answers <-chan *loadsv1.WaitResponse) error {
	beat := time.NewTicker(fencedBeat)
	defer beat.Stop()
	for {
		m := &loadsv1.WaitResponse{Pending: true}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.over:
			return errMoved
		case <-beat.C:
		case m = <-answers:
		}
		if err := g.Send(m); err != nil {
			return err
		}
	}
}
