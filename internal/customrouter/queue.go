package customrouter

import (
	"context"
	"log/slog"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"steelyard/internal/customrouter/leastlatency"
)

// period is the time between two searches for requests that have waited too long, and for backends to connect to.
const period = 100 * time.Millisecond

// connectTimeout bounds Connect, as in Envoy.
const connectTimeout = 2 * time.Second

// Options of a Router.
type Options struct {
	Queue       leastlatency.Options
	LogInterval time.Duration // between two lines with the state of each backend; 0: none
	Own         string        // where clients reach the router, IP:port; empty where it is not known
	Log         *slog.Logger  `json:"-"`
	// Connect connects to an address and closes the connection; an error means that no request can be sent there at
	// present. A backend that is new or failed last gets requests after a success. nil: requests find out themselves.
	Connect func(ctx context.Context, address string) error `json:"-"`
	// Guard is deferred by each goroutine of the Router, for a process that must not end by a panic. nil: none is.
	Guard func() `json:"-"`
}

// Connect connects to an address by TCP.
func Connect(ctx context.Context, address string) error {
	dialer := net.Dialer{Timeout: connectTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err == nil {
		err = conn.Close()
	}
	return err
}

// A Verdict ends the waiting of a request: with an address, or, without one, a refusal.
type Verdict struct {
	Address string // IP:port
	Refused leastlatency.Refusal
}

// A Router applies the strategy, and holds the requests that wait for its verdicts. It is safe for concurrent use.
type Router struct {
	options Options
	setting sync.Mutex // for one look-up of backends at a time
	asked   asked

	draining atomic.Bool

	mu       sync.Mutex
	strategy *leastlatency.Queue
	backends map[string]backend // by their keys, with those that were removed and still have requests
	leftOut  []LeftOut
	lookAt   time.Time // when to look up again what was not found; zero: all was
	last     uint64    // number of the latest request
	requests map[uint64]*request

	connecting context.Context // of checks, which are attempts to connect
	stop       context.CancelFunc
	checks     sync.WaitGroup

	dispatched, evicted, timedOut uint64
}

// request is one that waits or is at a backend.
type request struct {
	settle  func(Verdict)
	arrived time.Time
	backend string // empty: it waits
	sent    time.Time
}

// New makes a router without backends: requests wait.
func New(o Options) *Router {
	if o.Guard == nil {
		o.Guard = func() {}
	}
	o.Queue.Connects = o.Connect != nil
	connecting, stop := context.WithCancel(context.Background())
	return &Router{options: o, strategy: leastlatency.New(o.Queue), backends: make(map[string]backend),
		requests: make(map[uint64]*request), connecting: connecting, stop: stop}
}

// Arrive adds a request and returns its number. settle is called once with its verdict, from any goroutine and maybe
// before Arrive returns, unless the request ends first. It must not block, nor call the router.
func (r *Router) Arrive(now time.Time, settle func(Verdict)) (number uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	r.requests[r.last] = &request{settle: settle, arrived: now}
	r.settle(now, r.strategy.Arrive(now, r.last))
	return r.last
}

// settle delivers verdicts.
func (r *Router) settle(now time.Time, verdicts []leastlatency.Verdict) {
	for _, v := range verdicts {
		q := r.requests[v.Request]
		switch {
		case v.Backend != "":
			r.dispatched++
			q.backend, q.sent = v.Backend, now
			q.settle(Verdict{Address: r.backends[v.Backend].address})
			continue
		case v.Refused == leastlatency.RefusedTimeout:
			r.timedOut++
		case v.Refused == leastlatency.RefusedEvicted:
			r.evicted++
		}
		delete(r.requests, v.Request)
		q.settle(Verdict{Refused: v.Refused})
	}
}

// connect connects to the backends of which the strategy has to know whether that is possible.
func (r *Router) connect(now time.Time) {
	for _, backend := range r.strategy.Checks(now) {
		address := r.backends[backend].address
		r.checks.Go(func() {
			defer r.options.Guard()
			r.check(now, backend, address)
		})
	}
}

// check connects to a backend, and has the strategy know whether that was possible.
func (r *Router) check(began time.Time, backend, address string) {
	ok := false
	defer func() { // after a panic, too: a check that does not end keeps its backend from requests
		if r.connecting.Err() != nil { // the router stops
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		now := time.Now()
		r.settle(now, r.strategy.Connected(now, backend, began, ok))
	}()
	ok = r.options.Connect(r.connecting, address) == nil
}

// Again has a request wait once more, in its old place, because the proxy could not connect to the backend that it was
// sent to. settle is as for Arrive. It returns false if the request has ended.
//
// It goes to a backend that can be connected to, if there is one: the caller need not come again.
func (r *Router) Again(now time.Time, number uint64, settle func(Verdict)) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	q := r.requests[number]
	if q == nil || q.backend == "" {
		return false
	}
	backend := q.backend
	q.settle, q.backend = settle, ""
	r.settle(now, r.strategy.Unreachable(now, backend, number, q.arrived))
	r.connect(now)
	return true
}

// End ends a request in any state: waiting, at a backend, or refused.
func (r *Router) End(now time.Time, number uint64, o leastlatency.Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	q := r.requests[number]
	delete(r.requests, number)
	switch {
	case q == nil: // it was refused
	case q.backend == "":
		r.strategy.Leave(number)
	default:
		r.settle(now, r.strategy.Done(now, q.backend, now.Sub(q.sent), o))
	}
}

// set replaces the backends by these.
func (r *Router) set(now time.Time, backends []backend) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := make(map[string]backend, len(backends))
	for _, b := range r.strategy.Backends(now) {
		next[b.Address] = r.backends[b.Address]
	}
	keys := make([]string, len(backends))
	for i, b := range backends {
		keys[i], next[b.key] = b.key, b
	}
	r.backends = next
	r.settle(now, r.strategy.SetBackends(now, keys))
	r.connect(now)
}

// addressOf returns the IP:port of a backend that is set; empty for another.
func (r *Router) addressOf(key string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.backends[key].address
}

// Run refuses requests that have waited too long, connects to backends that failed, looks up those that were not found,
// and logs the state of all, until ctx is done.
func (r *Router) Run(ctx context.Context) error {
	look := time.NewTicker(period)
	defer look.Stop()
	logged := time.Now()
	for {
		select {
		case <-ctx.Done():
			r.stop()
			r.checks.Wait()
			return nil
		case now := <-look.C:
			r.tick(now)
			if i := r.options.LogInterval; i > 0 && now.Sub(logged) >= i {
				logged = now
				r.log()
			}
		}
	}
}

// tick refuses the requests that have waited too long, connects to backends whose pause has ended, and looks up those
// that were not found.
func (r *Router) tick(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.settle(now, r.strategy.Tick(now))
	r.connect(now)
	if !r.lookAt.IsZero() && !now.Before(r.lookAt) {
		r.lookAt = now.Add(lookAgain)
		r.checks.Go(func() {
			defer r.options.Guard()
			r.lookOnce()
		})
	}
}

func (r *Router) log() {
	s := r.state()
	r.options.Log.Info("queue", "depth", s.depth, "dispatched", s.dispatched, "evicted", s.evicted,
		"timed_out", s.timedOut)
	for _, b := range s.backends {
		line := []any{"addr", b.Address, "state", b.State, "in_flight", b.InFlight, "answers", b.Answers,
			"failures_in_a_row", b.Failures}
		if !math.IsNaN(b.Latency) {
			line = append(line, "ewma_latency_seconds", b.Latency)
		}
		r.options.Log.Info("backend", line...)
	}
}

// state is what is shown of a router.
type state struct {
	depth int
	// backends are as they were given, with those that were removed and have requests.
	backends                      []leastlatency.Backend
	leftOut                       []LeftOut
	dispatched, evicted, timedOut uint64
}

func (r *Router) state() state {
	r.mu.Lock()
	defer r.mu.Unlock()
	backends := r.strategy.Backends(time.Now())
	for i, b := range backends {
		backends[i].Address = r.backends[b.Address].given
	}
	return state{r.strategy.Depth(), backends, r.leftOut, r.dispatched, r.evicted, r.timedOut}
}
