package follow

import (
	"cmp"
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"steelyard/internal/loops"
	"steelyard/picking"
	"steelyard/xds/loads/loadsv1"
)

const (
	// maxRequests bounds the requests that may wait or be in flight; others do not wait. Steelyard accepts no more.
	maxRequests = 16_384
	// maxBatch bounds the ends of one message, and maxArrivals its arrivals: Steelyard takes 1 MiB.
	maxBatch    = 1024
	maxArrivals = 512
	// maxCached bounds the endpoints that an arrival names.
	maxCached = 16
	// heartbeat is the interval of the messages by which Steelyard sees that a Waiter still runs.
	heartbeat = time.Second
	// fencedSilence is the time without a message after which a stream is regarded as broken where several replicas
	// serve queues: four heartbeats. It ends before another replica grants places in the stead of one that hangs.
	fencedSilence = time.Second
	// spread is the time over which the waiters of a fleet open their next streams where another replica grants places
	// now. That one waits for longer (queue.Grace), so what comes on them keeps its order.
	spread = 200 * time.Millisecond
	// watchInterval is how late requests may be released.
	watchInterval = 50 * time.Millisecond
)

// An Arrival is a request that asks for a place.
type Arrival struct {
	Class, Tenant string
	Size          int64     // bytes of its body, negative where unknown
	Since         time.Time // when it came; zero: now
	// Cached and Key are what Pool.Asked returns for its prompt.
	Cached []picking.Cached
	Key    uint64
}

// A Waiter makes requests wait in the queue of one cluster. It is safe for concurrent use.
//
// Requests that wait when the stream breaks arrive again on the next one, with the time that they have waited. If
// Steelyard sends nothing for [picking.Stale], they are released in their order, and new requests do not wait.
//
// Where Steelyard has several replicas, messages have the epoch of the one that grants places. Those of a lower epoch
// than the highest one do not count, unless nothing else has come for [picking.Stale].
type Waiter struct {
	// Shared is true for a program that several proxies may ask. Set it before Run.
	Shared bool

	guard func() // deferred by each goroutine, directly: only so can it recover

	id            string // unique
	conn          *Conn
	pool          *Pool
	cluster, name string
	log           *slog.Logger
	began         time.Time // of the clock of the messages

	mu       sync.Mutex
	heard    time.Time // when Steelyard's latest message that counts came; zero before the first
	epoch    uint64    // of that message
	streamed bool      // a stream is open
	last     uint64    // number of the newest request
	requests map[uint64]*request
	waiting  int
	arrivals []uint64 // to be sent
	ends     []uint64
	wake     loops.Signal // there is something to send
}

// request is a request that waits, or that was granted and is in flight.
type request struct {
	Arrival
	endpoint string // empty while it waits
	settled  func(Outcome)
}

// NewWaiter makes a waiter for a cluster that f follows. Run connects it.
func (f *Follower) NewWaiter(cluster string) *Waiter {
	return &Waiter{id: crand.Text(), conn: f.conn, pool: f.Pool(cluster), cluster: cluster, name: f.name, log: f.log,
		began: time.Now(), guard: f.Guard, requests: make(map[uint64]*request), wake: loops.NewSignal()}
}

// Arrive makes a request wait. settled is called once, by another goroutine, with the outcome, unless End comes first.
// ok is false if requests do not currently wait.
func (w *Waiter) Arrive(now time.Time, a Arrival, settled func(Outcome)) (id uint64, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stale(now) || len(w.requests) >= maxRequests {
		return 0, false
	}
	w.last++
	// A message with a text that is not UTF-8 cannot be sent, and a client can write any bytes into a header.
	a.Class, a.Tenant = strings.ToValidUTF8(a.Class, "?"), strings.ToValidUTF8(a.Tenant, "?")
	if a.Since.IsZero() {
		a.Since = now
	}
	w.requests[w.last] = &request{Arrival: a, settled: settled}
	w.waiting++
	w.arrivals = append(w.arrivals, w.last)
	w.wake.Set()
	return w.last, true
}

// End ends a request in any state.
func (w *Waiter) End(id uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.requests[id]
	if r == nil {
		return
	}
	delete(w.requests, id)
	if r.endpoint == "" {
		w.waiting--
	}
	w.ended(id)
}

// ended reports the end of a request to Steelyard, if it has the request.
func (w *Waiter) ended(id uint64) {
	if i, found := slices.BinarySearch(w.arrivals, id); found {
		w.arrivals = slices.Delete(w.arrivals, i, i+1)
		return
	}
	if w.streamed {
		w.ends = append(w.ends, id)
		w.wake.Set()
	}
}

// stale reports whether Steelyard has been silent for too long.
func (w *Waiter) stale(now time.Time) bool {
	return w.heard.IsZero() || now.Sub(w.heard) > picking.Stale
}

// errSwitchedOff ends a stream because the cluster has no queue any more, which is its configuration and no fault.
var errSwitchedOff = errors.New("the queue was switched off")

// Run keeps a stream open while the cluster has a queue, until ctx is done. Then it releases the waiting requests.
func (w *Waiter) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { Again(ctx, w.guard, w.watch) })
	defer w.release(func() bool { return true })
	defer watching.Wait()
	defer cancel()
	retry, logged := firstRetry, false
	for ctx.Err() == nil {
		if !w.pool.queues() {
			retry, logged = firstRetry, false
			loops.Pause(ctx, watchInterval)
			continue
		}
		opened, err := w.follow(ctx)
		if opened {
			retry, logged = firstRetry, false
		}
		if status.Code(err) == codes.Aborted {
			w.log.Info("another replica grants the places of the queue", "cluster", w.cluster)
			loops.Pause(ctx, rand.N(spread))
			continue
		}
		if errors.Is(err, errSwitchedOff) {
			w.log.Info("requests do not wait any more", "cluster", w.cluster, "reason", err)
			continue
		}
		if !logged && ctx.Err() == nil {
			w.log.Warn("the queue is away: requests do not wait any more after "+picking.Stale.String(), "cluster",
				w.cluster, "error", err)
			logged = true
		}
		loops.Pause(ctx, retry/2+rand.N(retry/2))
		retry = min(2*retry, longestRetry)
	}
	return nil
}

// watch releases requests when Steelyard has been silent for too long or has switched their queue off, until ctx is
// done.
func (w *Waiter) watch(ctx context.Context) {
	loops.Every(ctx, watchInterval, func(now time.Time) {
		on := w.pool.queues()
		w.release(func() bool { return !on || w.stale(now) })
	})
}

// release releases all waiting requests, in the order of arrival, if the condition holds. It is checked under the lock.
func (w *Waiter) release(condition func() bool) {
	w.mu.Lock()
	var ids []uint64
	var released []*request
	if w.waiting > 0 && condition() {
		for id, r := range w.requests {
			if r.endpoint == "" {
				ids = append(ids, id)
			}
		}
		slices.SortFunc(ids, func(a, b uint64) int {
			return cmp.Or(w.requests[a].Since.Compare(w.requests[b].Since), cmp.Compare(a, b))
		})
		for _, id := range ids {
			released = append(released, w.requests[id])
			delete(w.requests, id)
			w.ended(id)
		}
		w.waiting = 0
	}
	w.mu.Unlock()
	for _, r := range released {
		r.settled(Outcome{})
	}
	if len(released) > 0 {
		w.log.Warn("requests that waited are released: they follow the weights", "cluster", w.cluster,
			"requests", len(released))
	}
}

// errSilence ends a stream over which nothing came for too long.
var errSilence = errors.New("Steelyard has sent nothing for too long")

// follow serves one stream until it breaks. opened reports whether Steelyard sent a message.
func (w *Waiter) follow(ctx context.Context) (opened bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	patience := w.patience()
	first := max(patience, connectTimeout) // until the first message, there may be a connection to make
	quiet := time.AfterFunc(first, func() {
		cancel(errSilence)
		w.conn.Renew()
	})
	defer quiet.Stop()
	stream, err := loadsv1.NewQueueClient(w.conn).Wait(ctx)
	if err != nil {
		return false, err
	}
	defer w.closed()
	if err = stream.Send(w.open()); err != nil && !errors.Is(err, io.EOF) { // of EOF, Recv has the reason
		return false, err
	}
	var sending sync.WaitGroup
	defer sending.Wait()
	defer cancel(nil)
	sending.Go(func() {
		broken := errors.New("panic")
		defer func() {
			if broken != nil {
				cancel(broken)
			}
		}()
		defer w.guard()
		w.send(ctx, stream)
		broken = nil
	})
	for {
		m, err := stream.Recv()
		if err != nil {
			return opened, fmt.Errorf("waiting in the queue of %s: %w", w.cluster, cmp.Or(context.Cause(ctx), err))
		}
		if !w.pool.queues() {
			return opened, errSwitchedOff
		}
		counts := w.settle(m, time.Now())
		quiet.Reset(w.patience())
		first := counts && !opened
		opened = opened || counts
		if first {
			w.log.Info("requests wait in the queue", "cluster", w.cluster)
		}
	}
}

// patience is how long a stream may be silent.
func (w *Waiter) patience() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.epoch > 0 {
		return fencedSilence
	}
	return silence
}

// open returns the first message of a stream, after which all waiting requests are sent.
func (w *Waiter) open() *loadsv1.WaitRequest {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.streamed = true
	m := &loadsv1.WaitRequest{Cluster: w.cluster, Picker: w.name, Shared: w.Shared, Waiter: w.id}
	w.arrivals, w.ends = w.arrivals[:0], nil
	for id, r := range w.requests {
		if r.endpoint == "" {
			w.arrivals = append(w.arrivals, id)
		} else {
			m.Held = append(m.Held, &loadsv1.Held{Id: id, Endpoint: r.endpoint})
		}
	}
	slices.Sort(w.arrivals)
	w.wake.Set()
	return m
}

func (w *Waiter) closed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.streamed = false
}

// send sends arrivals, ends and heartbeats until ctx is done or the stream breaks.
func (w *Waiter) send(ctx context.Context, stream grpc.BidiStreamingClient[loadsv1.WaitRequest, loadsv1.WaitResponse]) {
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-beat.C:
			if stream.Send(&loadsv1.WaitRequest{}) != nil {
				return // Recv has the reason
			}
		case <-w.wake:
			for m := w.next(); m != nil; m = w.next() {
				if stream.Send(m) != nil {
					return
				}
			}
		}
	}
}

// next returns the next message to Steelyard; nil if there is none. The clock is read under the lock, which can take
// long to get on a busy machine: so no request of the message came after the message was made.
func (w *Waiter) next() *loadsv1.WaitRequest {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.news(time.Now())
}

// news returns the next message to Steelyard, made now.
func (w *Waiter) news(now time.Time) *loadsv1.WaitRequest {
	if len(w.arrivals)+len(w.ends) == 0 {
		return nil
	}
	m := &loadsv1.WaitRequest{SentMicroseconds: microseconds(now.Sub(w.began))}
	n := min(len(w.ends), maxBatch)
	m.Ended = slices.Clone(w.ends[:n])
	w.ends = w.ends[n:]
	n = min(len(w.arrivals), maxArrivals)
	for _, id := range w.arrivals[:n] {
		m.Arrivals = append(m.Arrivals, w.requests[id].arrival(id, now))
	}
	w.arrivals = w.arrivals[n:]
	return m
}

// arrival returns a request as it is reported.
func (r *request) arrival(id uint64, now time.Time) *loadsv1.Arrival {
	a := &loadsv1.Arrival{Id: id, Class: r.Class, Tenant: r.Tenant, Size: r.Size, Key: r.Key,
		WaitedMicroseconds: microseconds(now.Sub(r.Since))}
	for _, c := range r.Cached {
		a.Cached = append(a.Cached, &loadsv1.Cached{Endpoint: c.Address, Share: c.Share})
	}
	return a
}

func microseconds(d time.Duration) uint64 { return uint64(max(0, d.Microseconds())) }

// takes reports whether a message counts.
func (w *Waiter) takes(m *loadsv1.WaitResponse, now time.Time) bool {
	if m.GetPending() || m.GetEpoch() < w.epoch && !w.stale(now) {
		return false
	}
	w.heard, w.epoch = now, m.GetEpoch()
	return true
}

// settle applies the verdicts of one message, and reports whether it counts.
func (w *Waiter) settle(m *loadsv1.WaitResponse, now time.Time) bool {
	verdicts := m.GetVerdicts()
	w.mu.Lock()
	if !w.takes(m, now) {
		w.mu.Unlock()
		return false
	}
	settled := make([]*request, len(verdicts))
	for i, v := range verdicts {
		r := w.requests[v.GetId()]
		if r == nil || r.endpoint != "" {
			continue // it left at the same time
		}
		settled[i] = r
		w.waiting--
		if r.endpoint = v.GetEndpoint(); r.endpoint == "" {
			delete(w.requests, v.GetId())
		}
	}
	w.mu.Unlock()
	for i, v := range verdicts {
		if r := settled[i]; r != nil {
			cached := func(c picking.Cached) bool { return c.Address == v.GetEndpoint() }
			r.settled(Outcome{Endpoint: v.GetEndpoint(), Cached: slices.ContainsFunc(r.Cached, cached),
				Refused: v.GetRefused(), RetryAfter: time.Duration(v.GetRetryAfterSeconds()) * time.Second})
		}
	}
	return true
}
