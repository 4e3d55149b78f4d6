package picking

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// QueuedOptions are the settings of a Queued.
type QueuedOptions struct {
	Threshold    time.Duration // a backend whose mean latency is above takes nothing more until it is idle
	Alpha        float64       // 0..1, weight of the newest answer in that mean
	QueueMax     int           // requests that wait; beyond it the one that waits for longest is refused
	QueueTimeout time.Duration // after which a waiting request is refused
}

const (
	// rampFactor bounds the requests in flight at a backend: at most so many for each answer that it gave.
	rampFactor = 5
	// firstPause and longestPause bound the time for which a backend that failed is left out; it doubles with each
	// failure in a row.
	firstPause, longestPause = time.Second, 30 * time.Second
)

// A Backend is the state of one server of a Queued.
type Backend struct {
	Address  string
	InFlight int
	// Latency is the moving average of the time to the last byte, in seconds; NaN before the first answer.
	Latency  float64
	Answers  int // without failures
	Failures int // in a row
	State    BackendState

	paused  time.Time // left out until then, unless all are
	removed bool      // gets nothing more, and is forgotten when nothing is in flight
}

// A BackendState says whether a backend may take one more request, and why not.
type BackendState string

// The states.
const (
	BackendIdle    BackendState = "idle"    // takes one
	BackendOpen    BackendState = "open"    // busy, and takes one
	BackendProbed  BackendState = "probed"  // has no answer yet, and takes nothing until its first
	BackendSlow    BackendState = "slow"    // above the threshold: takes nothing until it is idle
	BackendRamping BackendState = "ramping" // has as many in flight as its answers allow
	BackendPaused  BackendState = "paused"  // failed: takes nothing for a while, unless all are paused
)

// untried reports whether nothing is known of the backend.
func (b *Backend) untried() bool { return math.IsNaN(b.Latency) }

// rank is the latency by which backends are ordered: an untried one comes first, so that new capacity is used at once.
func (b *Backend) rank() float64 {
	if b.untried() {
		return 0
	}
	return b.Latency
}

// A Verdict is what becomes of a waiting request.
type Verdict struct {
	Request uint64
	Backend string // empty: refused
	Refused Refusal
}

// Refusal is why a request was refused.
type Refusal string

// The refusals.
const (
	RefusedEvicted Refusal = "evicted" // the queue was full, and no request had waited for longer
	RefusedTimeout Refusal = "timeout" // it waited for too long
)

// waiting is a request in the queue.
type waiting struct {
	request uint64
	since   time.Time
}

// Queued is queued least latency: requests wait in one queue, first in, first out, and go to the backend with the
// lowest mean latency under a threshold.
//
// A backend may take a request if it is idle; or if it was tried, its latency is at most the threshold, and it has
// fewer in flight than five times the answers that it gave. One that was never tried counts as the fastest, and gets
// one request until it answered. A backend that fails is left out for a time that doubles from one second to thirty;
// its latency stays as it was, so that failing fast attracts nothing. When all are left out, none is.
//
// It is pure: time is an argument. It is not safe for concurrent use.
type Queued struct {
	options  QueuedOptions
	backends []*Backend
	queue    []waiting // oldest first
}

// NewQueued makes one without backends: requests wait.
func NewQueued(o QueuedOptions) *Queued { return &Queued{options: o} }

// SetBackends replaces the backends. What is known of those that stay is kept.
func (q *Queued) SetBackends(now time.Time, addresses []string) []Verdict {
	for _, b := range q.backends {
		b.removed = !slices.Contains(addresses, b.Address)
	}
	q.forget()
	for _, a := range addresses {
		if q.backend(a) == nil {
			q.backends = append(q.backends, &Backend{Address: a, Latency: math.NaN()})
		}
	}
	return q.dispatch(now)
}

// forget drops the backends that were removed and have nothing in flight.
func (q *Queued) forget() {
	q.backends = slices.DeleteFunc(q.backends, func(b *Backend) bool { return b.removed && b.InFlight == 0 })
}

func (q *Queued) backend(address string) *Backend {
	i := slices.IndexFunc(q.backends, func(b *Backend) bool { return b.Address == address })
	if i < 0 {
		return nil
	}
	return q.backends[i]
}

// Arrive takes in a request.
func (q *Queued) Arrive(now time.Time, request uint64) (verdicts []Verdict) {
	q.queue = append(q.queue, waiting{request, now})
	verdicts = q.dispatch(now)
	for len(q.queue) > q.options.QueueMax {
		verdicts = append(verdicts, Verdict{Request: q.queue[0].request, Refused: RefusedEvicted})
		q.queue = q.queue[1:]
	}
	return verdicts
}

// Leave takes a request out of the queue: its client gave up. It is not an error if it does not wait any more.
func (q *Queued) Leave(request uint64) {
	q.queue = slices.DeleteFunc(q.queue, func(w waiting) bool { return w.request == request })
}

// Outcome is how a request ended at its backend.
type Outcome int

// The outcomes.
const (
	Answered  Outcome = iota
	Failed            // no answer, or one that says that the backend failed
	Abandoned         // the client went away: nothing is learned
)

// Done takes in the end of a request at a backend, and how long the backend took.
func (q *Queued) Done(now time.Time, backend string, took time.Duration, o Outcome) []Verdict {
	if b := q.backend(backend); b != nil {
		b.InFlight--
		switch o {
		case Answered:
			b.Answers++
			b.Failures, b.paused = 0, time.Time{}
			if seconds := took.Seconds(); b.untried() {
				b.Latency = seconds
			} else {
				b.Latency += q.options.Alpha * (seconds - b.Latency)
			}
		case Failed:
			b.paused = now.Add(min(longestPause, firstPause<<min(b.Failures, 10)))
			b.Failures++
		case Abandoned:
		}
		q.forget()
	}
	return q.dispatch(now)
}

// Tick refuses the requests that have waited for too long, and sends others to backends whose pause has ended. It is to
// be called a few times a second.
func (q *Queued) Tick(now time.Time) (verdicts []Verdict) {
	verdicts = q.dispatch(now)
	for len(q.queue) > 0 && now.Sub(q.queue[0].since) >= q.options.QueueTimeout {
		verdicts = append(verdicts, Verdict{Request: q.queue[0].request, Refused: RefusedTimeout})
		q.queue = q.queue[1:]
	}
	return verdicts
}

// dispatch sends waiting requests to backends while there is one that may take them.
func (q *Queued) dispatch(now time.Time) (verdicts []Verdict) {
	for len(q.queue) > 0 {
		b := q.best(now)
		if b == nil {
			break
		}
		b.InFlight++
		verdicts = append(verdicts, Verdict{Request: q.queue[0].request, Backend: b.Address})
		q.queue = q.queue[1:]
	}
	return verdicts
}

// best is the fastest backend that may take a request; of equal ones, the one with the fewest in flight.
func (q *Queued) best(now time.Time) (best *Backend) {
	for _, pausing := range []bool{false, true} {
		for _, b := range q.backends {
			if b.removed || now.Before(b.paused) != pausing || !q.mayTake(b) {
				continue
			}
			if best == nil || cmp.Or(cmp.Compare(b.rank(), best.rank()), cmp.Compare(b.InFlight, best.InFlight)) < 0 {
				best = b
			}
		}
		if best != nil || slices.ContainsFunc(q.backends,
			func(b *Backend) bool { return !b.removed && !now.Before(b.paused) }) {
			return best // those that failed are used only where all did
		}
	}
	return best
}

func (q *Queued) mayTake(b *Backend) bool {
	s := q.stateOf(b)
	return s == BackendIdle || s == BackendOpen
}

// stateOf is the state of a backend that is not paused.
func (q *Queued) stateOf(b *Backend) BackendState {
	switch {
	case b.InFlight == 0:
		return BackendIdle
	case b.untried():
		return BackendProbed
	case b.Latency > q.options.Threshold.Seconds():
		return BackendSlow
	case b.InFlight >= rampFactor*b.Answers:
		return BackendRamping
	}
	return BackendOpen
}

// Depth is the number of requests that wait.
func (q *Queued) Depth() int { return len(q.queue) }

// Backends are the states of all backends that may get requests, in the order in which they were set.
func (q *Queued) Backends(now time.Time) []Backend {
	var out []Backend
	for _, b := range q.backends {
		if b.removed {
			continue
		}
		state := *b
		if state.State = q.stateOf(b); now.Before(b.paused) {
			state.State = BackendPaused
		}
		out = append(out, state)
	}
	return out
}
