package follow

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"steelyard/internal/loops"
	"steelyard/picking"
	"steelyard/picking/prefix"
	"steelyard/picking/queue"
	"steelyard/xds/loads/loadsv1"
)

const (
	firstRetry   = 250 * time.Millisecond
	longestRetry = queue.Grace // so that a restarted queue gets all requests before it grants a place
	// silence is the time without a message after which a stream is regarded as broken: three heartbeats.
	silence = 3 * time.Second
	// waitingPrompts is the number of learned prompts that wait to be shared; newer ones are left out.
	waitingPrompts = 256
	// maxAge bounds the age of loads; they are not used long before.
	maxAge = time.Hour
	// maxRoutes bounds the routes of a cluster, whatever a Steelyard asks for: 1.6 GB.
	maxRoutes = 10_000_000
)

// A Follower keeps the pools up to date.
type Follower struct {
	// Guard is deferred by each goroutine, those of its waiters too, for a process that must not end by a panic. Set it
	// before NewWaiter and Run.
	Guard func()

	conn     *Conn
	name     string
	clusters []string
	log      *slog.Logger
	learns   bool

	learned chan *loadsv1.Learned // for the other pickers

	mu    sync.Mutex
	pools map[string]*Pool
	lost  error  // why the loads are not followed at present; nil while they are
	noted string // what the log has of that, as in stateOf; empty before the first attempt
}

// New makes a follower of clusters under a name; Run starts it. It does not own the connection.
func New(conn *Conn, name string, clusters []string, log *slog.Logger) *Follower {
	f := &Follower{Guard: func() {}, conn: conn, name: name, clusters: clusters, log: log,
		pools: make(map[string]*Pool), lost: errors.New("not connected yet"),
		learned: make(chan *loadsv1.Learned, waitingPrompts)}
	for _, c := range clusters {
		f.pools[c] = &Pool{cluster: c, reader: new(prefix.Reader)}
	}
	return f
}

// LearnRoutes makes the pools learn where prompts are cached, and share that with the other pickers of the Steelyard.
// Call it before Run.
func (f *Follower) LearnRoutes() {
	f.learns = true
	for _, p := range f.pools {
		p.routes, p.learned = prefix.NewTable(prefix.Limits{}), f.learned
	}
}

// Pool returns the pool of a cluster, nil for an unknown one.
func (f *Follower) Pool(cluster string) *Pool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pools[cluster]
}

// Again runs a loop until ctx is done: after a panic that the guard recovers from, it runs once more.
func Again(ctx context.Context, guard func(), run func(context.Context)) {
	for ctx.Err() == nil {
		func() {
			defer guard()
			run(ctx)
		}()
		loops.Pause(ctx, firstRetry)
	}
}

// Status returns why the loads are currently not followed; nil while they are.
func (f *Follower) Status() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lost
}

// Run follows the loads until ctx is done.
func (f *Follower) Run(ctx context.Context) error {
	if f.learns {
		var sharing sync.WaitGroup
		sharing.Go(func() { Again(ctx, f.Guard, f.runShare) })
		defer sharing.Wait()
	}
	retry := firstRetry
	for ctx.Err() == nil {
		err := f.follow(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if f.setState(err) {
			f.log.Warn("the loads are not followed: requests go by the proxies' weights, unless there were loads in "+
				"the last "+picking.Stale.String(), "error", err)
			retry = firstRetry
		}
		loops.Pause(ctx, retry/2+rand.N(retry/2))
		retry = min(2*retry, longestRetry)
	}
	return nil
}

// setState keeps the state of the stream, and reports whether it changed.
func (f *Follower) setState(err error) (changed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lost = err
	state := stateOf(err)
	if state == f.noted || state == stateLost && f.noted == stateDistrusted { // such as one address of several
		return false
	}
	f.noted = state
	return true
}

const (
	stateLost       = "lost"
	stateDistrusted = "distrusted" // a certificate of one side is not accepted by the other
)

// stateOf returns a word for the state of the stream after err: how it was lost is of no matter, but why one side
// refuses the other is.
func stateOf(err error) string {
	switch code := status.Code(err); code {
	case codes.OK:
		return "followed"
	case codes.Unavailable, codes.Unknown, codes.Canceled, codes.DeadlineExceeded:
		if strings.Contains(err.Error(), "tls: ") { // gRPC keeps no more of an error than its text
			return stateDistrusted
		}
		return stateLost
	default:
		return code.String()
	}
}

// follow applies the updates of one stream until it breaks.
func (f *Follower) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	quiet := time.AfterFunc(silence, func() {
		cancel(fmt.Errorf("no update for %v", silence))
		f.conn.Renew()
	})
	defer quiet.Stop()
	stream, err := loadsv1.NewLoadsClient(f.conn).Follow(ctx,
		&loadsv1.FollowRequest{Picker: f.name, Clusters: f.clusters})
	for err == nil {
		var u *loadsv1.Update
		if u, err = stream.Recv(); err != nil {
			break
		}
		quiet.Reset(silence)
		if f.setState(nil) {
			f.log.Info("following the loads")
		}
		f.apply(u)
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if errors.Is(err, io.EOF) {
		err = errors.New("Steelyard ended the stream")
	}
	return fmt.Errorf("following the loads of Steelyard: %w", err)
}

func (f *Follower) apply(u *loadsv1.Update) {
	p := f.Pool(u.GetCluster())
	if p == nil {
		return
	}
	p.set(u, time.Now())
}
