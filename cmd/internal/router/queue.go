package router

import (
	"maps"
	"sync"
	"time"

	"steelyard/picking"
)

const (
	// early is how long the end of a request is remembered that has not arrived: both come by streams of their own.
	early = 10 * time.Second
	// maxEarly bounds their number.
	maxEarly = 65_536
)

// A queue is the strategy with the requests that wait for its verdicts. A request is named by Envoy's stream id, which
// is unique. It is safe for concurrent use.
type queue struct {
	mu       sync.Mutex
	strategy *picking.Queued
	next     uint64
	numbers  map[string]uint64 // of the requests in waiting and running
	waiting  map[uint64]chan picking.Verdict
	running  map[uint64]running   // dispatched, and not ended
	ended    map[string]time.Time // that have not arrived

	dispatched, evicted, timedOut uint64
}

// running is a request at a backend.
type running struct {
	backend string
	since   time.Time
}

func newQueue(o picking.QueuedOptions) *queue {
	return &queue{strategy: picking.NewQueued(o), numbers: make(map[string]uint64),
		waiting: make(map[uint64]chan picking.Verdict), running: make(map[uint64]running),
		ended: make(map[string]time.Time)}
}

// arrive puts a request into the queue. Its verdict arrives on the channel; it reports false where the request has
// ended already.
func (q *queue) arrive(now time.Time, stream string) (verdict <-chan picking.Verdict, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, gone := q.ended[stream]; gone {
		delete(q.ended, stream)
		return nil, false
	}
	q.next++
	c := make(chan picking.Verdict, 1)
	q.numbers[stream], q.waiting[q.next] = q.next, c
	q.settle(now, q.strategy.Arrive(now, q.next))
	return c, true
}

// settle hands out verdicts.
func (q *queue) settle(now time.Time, verdicts []picking.Verdict) {
	for _, v := range verdicts {
		q.waiting[v.Request] <- v // it has room, and no other verdict
		delete(q.waiting, v.Request)
		switch {
		case v.Backend != "":
			q.dispatched++
			q.running[v.Request] = running{v.Backend, now}
		case v.Refused == picking.RefusedEvicted:
			q.evicted++
		default:
			q.timedOut++
		}
	}
}

// leave takes a request out of the queue whose client gave up. Where its verdict has come meanwhile, done takes it out.
func (q *queue) leave(stream string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.numbers[stream]
	delete(q.waiting, n)
	q.strategy.Leave(n)
}

// done takes in the end of a request, which Envoy reports for each, wherever it is: waiting, at a backend, or refused.
func (q *queue) done(now time.Time, stream string, o picking.Outcome) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n, known := q.numbers[stream]
	if !known {
		if len(q.ended) < maxEarly {
			q.ended[stream] = now
		}
		return
	}
	delete(q.numbers, stream)
	delete(q.waiting, n)
	q.strategy.Leave(n)
	if r, ok := q.running[n]; ok {
		delete(q.running, n)
		q.settle(now, q.strategy.Done(now, r.backend, now.Sub(r.since), o))
	}
}

func (q *queue) setBackends(now time.Time, addresses []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.settle(now, q.strategy.SetBackends(now, addresses))
}

func (q *queue) tick(now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.settle(now, q.strategy.Tick(now))
	maps.DeleteFunc(q.ended, func(_ string, at time.Time) bool { return now.Sub(at) > early })
}

// state is what is shown of a queue.
type state struct {
	depth                         int
	backends                      []picking.Backend
	dispatched, evicted, timedOut uint64
}

func (q *queue) state() state {
	q.mu.Lock()
	defer q.mu.Unlock()
	return state{q.strategy.Depth(), q.strategy.Backends(), q.dispatched, q.evicted, q.timedOut}
}
