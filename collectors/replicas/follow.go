package replicas

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"syscall"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"steelyard/collectors/replicas/merge"
	"steelyard/internal/loops"
)

const (
	// connecting bounds an attempt to connect, up to the first message.
	connecting = 3 * time.Second
	// patience is how long a stream may be silent before it is replaced: the process at its end may hang.
	patience = 2 * merge.Silence
	// firstRetry and lastRetry are between two attempts to connect.
	firstRetry = 200 * time.Millisecond
	lastRetry  = time.Second
	// lookAgain is between two looks whether an address still is that of a replica that is known otherwise.
	lookAgain = 5 * time.Second

	// maxTargets bounds the addresses that are followed: each replica may have one of IPv4 and one of IPv6.
	maxTargets = 2 * merge.MaxReplicas

	// Of one stream, bytes a second are read, and each message counts at least leastBytes.
	maxRate    = 32 << 20
	leastBytes = 8 << 10
)

// A target is an address at which there may be another replica. The link's lock guards it.
type target struct {
	address string
	since   time.Time // when the last message came, or it was named
	id      merge.ID  // of the replica that was last heard there; empty: none
	name    string
	open    bool  // messages come from it
	gone    bool  // that replica has taken leave, or nothing listens there
	same    bool  // it is this replica, or one that is followed by another address
	err     error // why no messages come; nil also before the first attempt has ended
}

var (
	errSilent = errors.New("no message came in time")
	errTwice  = errors.New("the replica is followed by another address")
	errAbsent = errors.New("nothing listens there: connection refused")
)

// addresses returns those of all targets, sorted. The caller holds the lock.
func (l *Link) addresses() []string { return slices.Sorted(maps.Keys(l.targets)) }

// retarget replaces the targets. The caller holds the lock.
func (l *Link) retarget(addresses []string) {
	addresses = slices.Compact(slices.Sorted(slices.Values(addresses)))
	if len(addresses) > maxTargets {
		l.lookup = cmp.Or(l.lookup, fmt.Errorf("there are %d addresses of replicas: only the first %d are used",
			len(addresses), maxTargets))
		addresses = addresses[:maxTargets]
	}
	now := time.Now()
	for address, t := range l.targets {
		if !slices.Contains(addresses, address) {
			delete(l.targets, address)
			if !t.same {
				l.stale = l.peers.Gone(now, t.id) || l.stale
			}
		}
	}
	for _, address := range addresses {
		if l.targets[address] == nil {
			l.targets[address] = &target{address: address, since: now}
		}
	}
	l.named.Set()
}

// attend follows all targets, until ctx is done.
func (l *Link) attend(ctx context.Context) {
	following := make(map[*target]loops.Task)
	defer func() {
		for _, task := range following {
			task.Stop()
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.named:
		}
		l.mu.Lock()
		targets := slices.Collect(maps.Values(l.targets))
		l.mu.Unlock()
		for t, task := range following {
			if !slices.Contains(targets, t) {
				task.Stop()
				delete(following, t)
			}
		}
		for _, t := range targets {
			if _, runs := following[t]; !runs {
				following[t] = loops.Start(ctx, func(ctx context.Context) { l.follow(ctx, t) })
			}
		}
	}
}

// follow connects to a target again and again, until ctx is done.
func (l *Link) follow(ctx context.Context, t *target) {
	wait := firstRetry
	for ctx.Err() == nil {
		err := l.session(ctx, t)
		if ctx.Err() != nil {
			return
		}
		refused := status.Code(err) == codes.Unavailable && nothingListens(ctx, t.address)
		again, heard := l.ended(t, err, refused)
		if heard {
			wait = firstRetry
		}
		loops.Pause(ctx, cmp.Or(again, wait))
		wait = min(2*wait, lastRetry)
	}
}

// nothingListens reports whether the machine at an address says that no process listens there.
func nothingListens(ctx context.Context, address string) bool {
	ctx, cancel := context.WithTimeout(ctx, firstRetry)
	defer cancel()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err == nil {
		_ = conn.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// session connects to a target, and takes in its messages until something fails or ctx is done.
func (l *Link) session(ctx context.Context, t *target) error {
	if l.isTwice(t) {
		return errTwice
	}
	conn, err := l.o.Dial(t.address)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	silent := time.AfterFunc(connecting, func() { end(errSilent) })
	defer silent.Stop()
	stream, err := l.open(ctx, conn)
	limit := rate.NewLimiter(maxRate, maxRate)
	for err == nil {
		var in wrapperspb.BytesValue
		if err = stream.RecvMsg(&in); err == nil {
			silent.Reset(patience)
			err = l.heard(t, in.GetValue())
		}
		if err == nil {
			err = limit.WaitN(ctx, max(leastBytes, len(in.GetValue())))
		}
	}
	if cause := context.Cause(ctx); errors.Is(cause, errSilent) {
		return cause
	}
	return err
}

// open begins a stream, and says who follows.
func (l *Link) open(ctx context.Context, conn *grpc.ClientConn) (grpc.ClientStream, error) {
	stream, err := conn.NewStream(ctx, &service.Streams[0], method, grpc.MaxCallRecvMsgSize(maxMessage+16))
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	hello := &merge.Message{From: l.id, Name: l.settings.Name, Seq: 1}
	l.mu.Unlock()
	if err := stream.SendMsg(&wrapperspb.BytesValue{Value: encode(hello)}); err == nil {
		_ = stream.CloseSend()
	} // receiving reports why it failed
	return stream, nil
}

// isTwice reports whether the replica at a target is followed by another address.
func (l *Link) isTwice(t *target) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.twice(t, t.id)
}

func (l *Link) twice(t *target, id merge.ID) bool {
	for _, other := range l.targets {
		if other != t && other.open && other.id == id {
			return true
		}
	}
	return false
}

// heard takes in a message from a target. An error ends the stream.
func (l *Link) heard(t *target, b []byte) error {
	now := time.Now()
	m, err := l.read(now, b)
	if err != nil {
		return err
	}
	changed, err := l.take(now, t, m)
	l.handOn()
	if len(changed) > 0 {
		l.o.Changed(changed)
	}
	return err
}

// handOn hands on the routes that other replicas have sent.
func (l *Link) handOn() {
	l.mu.Lock()
	routes, given := l.peers.Routes()
	l.mu.Unlock()
	if len(routes) > 0 || given {
		l.o.Routes(routes, given)
	}
}

func (l *Link) take(now time.Time, t *target, m *merge.Message) (changed []string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.targets[t.address] != t: // its address is not that of a replica any more
		return nil, context.Canceled
	case m.From == l.id:
		return nil, errItself
	case l.twice(t, m.From):
		t.id = m.From
		return nil, errTwice
	case t.id != m.From && t.id != "" && l.peers.Gone(now, t.id): // another one took its place
		changed = l.clusters
	}
	t.id, t.name, t.open, t.same, t.err = m.From, m.Name, true, false, nil
	t.gone = m.Leaving
	return append(l.peers.Take(now, m), changed...), nil
}

// ended notes why a session ended, and whether nothing listens there. It returns how long to wait for the next one, 0
// where that is like any other, and whether there were messages.
func (l *Link) ended(t *target, err error, refused bool) (wait time.Duration, heard bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if heard = t.open; heard {
		t.since = now
	}
	t.open, t.err = false, err
	switch code := status.Code(err); {
	case errors.Is(err, errTwice), code == codes.AlreadyExists:
		t.same, wait = true, lookAgain
	case refused:
		t.gone, t.err = true, errAbsent
		l.stale = l.peers.Gone(now, t.id) || l.stale
	case code != codes.Unavailable && !errors.Is(err, errSilent): // it may be that a process has answered
		t.gone, t.same = false, false
	}
	return wait, heard
}
