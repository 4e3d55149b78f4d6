package customrouter

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"steelyard/picking"
)

// tick is how often requests that waited for too long are looked for.
const tick = 100 * time.Millisecond

// Options of a Router.
type Options struct {
	Queue       picking.QueuedOptions
	LogInterval time.Duration // between two lines with the state of each backend; 0: none
	Log         *slog.Logger  `json:"-"`
}

// A Verdict is what becomes of a request: an address, or, without one, a refusal.
type Verdict struct {
	Address string // IP:port
	Refused picking.Refusal
}

// A Router is the strategy with the requests that wait for its verdicts. It is safe for concurrent use.
type Router struct {
	options Options
	setting sync.Mutex // for one set-backends at a time

	mu       sync.Mutex
	strategy *picking.Queued
	address  map[string]string // IP:port of the backends, as they were looked up
	last     uint64            // number of the latest request
	waiting  map[uint64]func(Verdict)
	running  map[uint64]running // dispatched, and not ended

	dispatched, evicted, timedOut uint64
}

// running is a request at a backend.
type running struct {
	backend string
	since   time.Time
}

// New makes a router without backends: requests wait.
func New(o Options) *Router {
	return &Router{options: o, strategy: picking.NewQueued(o.Queue), address: make(map[string]string),
		waiting: make(map[uint64]func(Verdict)), running: make(map[uint64]running)}
}

// Arrive takes in a request and returns its number. settle is called once with its verdict, from any goroutine and
// maybe before Arrive returns, unless the request ends first. It must not block, nor call the router.
func (r *Router) Arrive(now time.Time, settle func(Verdict)) (number uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	r.waiting[r.last] = settle
	r.settle(now, r.strategy.Arrive(now, r.last))
	return r.last
}

// settle hands out verdicts.
func (r *Router) settle(now time.Time, verdicts []picking.Verdict) {
	for _, v := range verdicts {
		settle := r.waiting[v.Request]
		delete(r.waiting, v.Request)
		switch {
		case v.Backend != "":
			r.dispatched++
			r.running[v.Request] = running{v.Backend, now}
		case v.Refused == picking.RefusedEvicted:
			r.evicted++
		default:
			r.timedOut++
		}
		settle(Verdict{Address: r.address[v.Backend], Refused: v.Refused})
	}
}

// End takes in the end of a request, wherever it is: waiting, at a backend, or refused.
func (r *Router) End(now time.Time, number uint64, o picking.Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, waits := r.waiting[number]; waits {
		delete(r.waiting, number)
		r.strategy.Leave(number)
	}
	if at, ok := r.running[number]; ok {
		delete(r.running, number)
		r.settle(now, r.strategy.Done(now, at.backend, now.Sub(at.since), o))
	}
}

// set replaces the backends by these, with their IP:port.
func (r *Router) set(now time.Time, backends []string, address map[string]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.address = address
	r.settle(now, r.strategy.SetBackends(now, backends))
}

// Run refuses requests that have waited for too long, and logs the state of the backends, until ctx is done.
func (r *Router) Run(ctx context.Context) error {
	look := time.NewTicker(tick)
	defer look.Stop()
	logged := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-look.C:
			r.refuse(now)
			if i := r.options.LogInterval; i > 0 && now.Sub(logged) >= i {
				logged = now
				r.log()
			}
		}
	}
}

// refuse refuses the requests that have waited for too long.
func (r *Router) refuse(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.settle(now, r.strategy.Tick(now))
}

func (r *Router) log() {
	s := r.state()
	r.options.Log.Info("queue", "depth", s.depth, "dispatched", s.dispatched, "evicted", s.evicted,
		"timed_out", s.timedOut)
	for _, b := range s.backends {
		r.options.Log.Info("backend", "addr", b.Address, "in_flight", b.InFlight, "ewma_latency_seconds", b.Latency,
			"answers", b.Answers, "failures_in_a_row", b.Failures)
	}
}

// state is what is shown of a router.
type state struct {
	depth                         int
	backends                      []picking.Backend
	dispatched, evicted, timedOut uint64
}

func (r *Router) state() state {
	r.mu.Lock()
	defer r.mu.Unlock()
	return state{r.strategy.Depth(), r.strategy.Backends(time.Now()), r.dispatched, r.evicted, r.timedOut}
}
