package follow

import (
	"context"
	"errors"
	"fmt"
	"time"

	"steelyard/internal/loops"
	"steelyard/xds/loads/loadsv1"
)

// gathering is for how long learned prompts are collected before they are sent. The next turn of a conversation comes
// much later, and a message for each answer would cost an Envoy with many requests more than the choices do.
const gathering = 5 * time.Millisecond

// runShare exchanges what pickers learn until ctx is done.
func (f *Follower) runShare(ctx context.Context) {
	for ctx.Err() == nil {
		err := f.share(ctx)
		f.log.Debug("learned routes are not shared", "error", err)
		loops.Pause(ctx, longestRetry)
	}
}

// share exchanges them over one stream, until it breaks.
func (f *Follower) share(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := loadsv1.NewLoadsClient(f.conn).Share(ctx)
	if err == nil {
		err = stream.Send(&loadsv1.Learned{Clusters: f.clusters})
	}
	if err != nil {
		cancel()
		return fmt.Errorf("sharing learned routes: %w", err)
	}
	ended := make(chan error, 1)
	go func() {
		err := errors.New("panic")
		defer func() { ended <- err }()
		defer f.Guard()
		for {
			l, failed := stream.Recv()
			if failed != nil {
				err = failed
				return
			}
			if p := f.poolOf(l); p != nil {
				p.received(l, time.Now())
			}
		}
	}()
	for {
		select {
		case err := <-ended:
			cancel()
			return fmt.Errorf("sharing learned routes: %w", err)
		case l := <-f.learned:
			loops.Pause(ctx, gathering)
			if err := f.send(stream, l); err != nil {
				cancel()
				return fmt.Errorf("sharing learned routes: %w", <-ended)
			}
		}
	}
}

// send sends a learned prompt, and those that wait behind it.
func (f *Follower) send(stream loadsv1.Loads_ShareClient, l *loadsv1.Learned) error {
	for {
		if err := stream.Send(l); err != nil {
			return err
		}
		select {
		case l = <-f.learned:
		default:
			return nil
		}
	}
}

// poolOf returns the pool that learned routes belong to; nil for none.
func (f *Follower) poolOf(l *loadsv1.Learned) *Pool {
	if len(l.GetClusters()) != 1 {
		return nil
	}
	return f.Pool(l.GetClusters()[0])
}
