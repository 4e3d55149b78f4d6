package leastlatency

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Options are the settings of a Queue.
type Options struct {
	Threshold    time.Duration // a backend with this mean latency takes nothing more until it is idle
	Alpha        float64       // 0..1, weight of the newest answer in that mean
	QueueMax     int           // waiting requests; with more, the one that has waited longest is refused
	QueueTimeout time.Duration // after which a waiting request is refused
	// Connects is that the caller connects to the backends of Checks. Without it, requests find out what is reachable.
	Connects bool
}

const (
	// rampFactor bounds the requests in flight at a backend: at most this many for each answer that it gave.
	rampFactor = 5
	// firstPause and longestPause bound the time for which a backend that failed is left out; it doubles with each
	// failure in a row.
	firstPause, longestPause = time.Second, 30 * time.Second
	// longestUnreachable bounds that of one that could not be connected to: the next attempt costs no request, and new
	// backends are often set before they listen.
	longestUnreachable = 5 * time.Second
	// maxChecks bounds the connections that are attempted at the same time: each takes seconds where nothing answers.
	maxChecks = 256
	// rejectionsOfClients are the answers 4xx in a row that are taken for the clients' errors; others are failures.
	rejectionsOfClients = 2
)

// A Backend is the state of one server of a Queue.
type Backend struct {
	Address  string
	InFlight int
	// Latency is the moving average of the time to the last byte, in seconds; NaN before the first answer.
	Latency  float64
	Answers  int // without failures and rejections
	Failures int // in a row
	State    BackendState

	rejections int     // in a row
	givenUp    float64 // seconds for which a client waited for the first answer, and gave up
	// unanswered and latest are when the first and the latest request since its last answer were sent; zero: none.
	unanswered, latest time.Time
	paused             time.Time // left out until then, unless all are
	reachable          time.Time // when it was last connected to or answered; zero: not since its latest failure
	unreachable        bool      // its latest failure is that it could not be connected to
	checked            bool      // a connection is being attempted
	removed            bool      // gets nothing more, and is forgotten when nothing is in flight
}

// A BackendState describes whether a backend may take one more request, and why not.
type BackendState string

// The states.
const (
	BackendIdle       BackendState = "idle"       // takes one
	BackendOpen       BackendState = "open"       // busy, and takes one
	BackendConnecting BackendState = "connecting" // new, or failed last: takes nothing until it can be connected to
	BackendProbed     BackendState = "probed"     // has no answer yet, and takes nothing until its first
	BackendSlow       BackendState = "slow"       // over the threshold: takes nothing until it is idle or answers
	BackendRamping    BackendState = "ramping"    // has as many in flight as its answers allow
	BackendPaused     BackendState = "paused"     // failed: takes nothing for a while, unless all are paused
	BackendRemoved    BackendState = "removed"    // is not set any more: its requests end there, and it takes nothing
)

// gone reports whether the backend was removed and has nothing in flight.
func (b *Backend) gone() bool { return b.removed && b.InFlight == 0 }

// untried reports whether nothing is known of the backend.
func (b *Backend) untried() bool { return math.IsNaN(b.Latency) }

// silence returns for how many seconds a backend has not answered what was sent to it since its last answer. One that
// hangs has no answers by which to get slower.
//
// It is not the age of the oldest request: a long stream would keep short requests from a backend that answers them at
// the same time. A backend that has nothing but streams is silent, too, so it gets one more request whenever the
// silence has doubled since the last: that is answered, or lost where the backend hangs.
func (b *Backend) silence(now time.Time) float64 {
	silent := now.Sub(b.unanswered)
	if b.unanswered.IsZero() || now.Sub(b.latest) >= silent/2 {
		return 0
	}
	return silent.Seconds()
}

// unproven reports whether the backend is new, or failed last.
func (b *Backend) unproven() bool { return b.untried() || b.Failures > 0 }

// rank returns the latency by which backends are ordered, of which a silence is a lower bound. An untried one comes
// first, so that new capacity is used at once, unless a client gave up on it.
func (b *Backend) rank(now time.Time) float64 {
	if b.untried() {
		return b.givenUp
	}
	return max(b.Latency, b.silence(now))
}

// sent notes that a request is on its way to the backend.
func (b *Backend) sent(now time.Time) {
	b.InFlight++
	if b.latest = now; b.unanswered.IsZero() {
		b.unanswered = now
	}
}

// ended notes that a request is over.
func (b *Backend) ended(answered bool) {
	if b.InFlight--; answered || b.InFlight == 0 {
		b.unanswered = time.Time{}
	}
}

// fail leaves the backend out for a while, because a request failed there, or because it could not be connected to.
func (b *Backend) fail(now time.Time, unreachable bool) {
	longest := longestPause
	if unreachable {
		longest = longestUnreachable
	}
	b.paused = now.Add(min(longest, firstPause<<min(b.Failures, 10)))
	b.reachable, b.unreachable = time.Time{}, unreachable
	b.Failures++
}

// A Verdict ends the waiting of a request.
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
	RefusedTimeout Refusal = "timeout" // it waited too long
	RefusedStopped Refusal = "stopped" // the caller stops, and it would have to wait
)

// waiting is a request in the queue.
type waiting struct {
	request uint64
	since   time.Time
	unlucky time.Time // when it met a backend that was unreachable; zero: it did not
}

// Queue implements queued least latency: requests wait in one queue, first in, first out, and go to the backend with
// the lowest mean latency under a threshold.
//
// A backend may take a request if it is idle; or if it was tried, its latency is under the threshold, and it has fewer
// in flight than five times the answers that it gave. A silence that is longer than its latency counts instead of that,
// so a backend that hangs gets slower while its clients wait. A backend that was never tried counts as the fastest, and
// gets one request until it has answered. A backend that fails is left out for a time that doubles from one second to
// thirty; its latency stays as it was, so that failing fast does not attract requests. If all are left out, all may be
// used. Answers 4xx are not fast either, and a backend that gives nothing else has failed. A client that gave up has
// waited for less than an answer takes, so a backend that hangs gets slower with each.
//
// Where the caller connects to backends, one that is new or failed last takes nothing until that was possible, and no
// request waits for the attempt while another backend may take it. While none can be connected to, requests wait.
//
// It is pure: time is an argument. It is not safe for concurrent use.
type Queue struct {
	options  Options
	backends []*Backend
	queue    []waiting // oldest first
	stopped  bool      // no request may wait
}

// New makes a Queue without backends: requests wait.
func New(o Options) *Queue { return &Queue{options: o} }

// SetBackends replaces the backends. Those that stay keep their state.
func (q *Queue) SetBackends(now time.Time, addresses []string) []Verdict {
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

// forget drops the backends that were removed and have nothing in flight. One to which a connection is being attempted
// stays: it counts towards maxChecks, and the result is not that of a new one with the same address.
func (q *Queue) forget() {
	q.backends = slices.DeleteFunc(q.backends, func(b *Backend) bool { return b.gone() && !b.checked })
}

func (q *Queue) backend(address string) *Backend {
	i := slices.IndexFunc(q.backends, func(b *Backend) bool { return b.Address == address })
	if i < 0 {
		return nil
	}
	return q.backends[i]
}

// Arrive adds a request.
func (q *Queue) Arrive(now time.Time, request uint64) (verdicts []Verdict) {
	q.queue = append(q.queue, waiting{request: request, since: now})
	return q.evict(q.dispatch(now))
}

// evict refuses the oldest requests of a queue that is too long.
func (q *Queue) evict(verdicts []Verdict) []Verdict {
	longest, reason := q.options.QueueMax, RefusedEvicted
	if q.stopped {
		longest, reason = 0, RefusedStopped
	}
	for len(q.queue) > longest {
		verdicts = append(verdicts, Verdict{Request: q.queue[0].request, Refused: reason})
		q.queue = q.queue[1:]
	}
	return verdicts
}

// Stop refuses all requests that wait, and from now on each that would have to.
func (q *Queue) Stop() []Verdict {
	q.stopped = true
	return q.evict(nil)
}

// Unreachable notes that a request could not be sent because no connection to its backend was made. It waits again in
// its old place: requests are numbered in the order in which they arrived. With Connects, it goes to a backend that was
// connected to since, or that answered since, so that it does not meet the next one that is gone.
func (q *Queue) Unreachable(now time.Time, backend string, request uint64, since time.Time) []Verdict {
	if b := q.backend(backend); b != nil {
		b.ended(false)
		b.fail(now, true)
		q.forget()
	}
	place, _ := slices.BinarySearchFunc(q.queue, request,
		func(w waiting, request uint64) int { return cmp.Compare(w.request, request) })
	q.queue = slices.Insert(q.queue, place, waiting{request, since, now})
	return q.evict(q.dispatch(now))
}

// Checks returns the backends to connect to now: those that are new or failed last, and, while a request waits that was
// Unreachable, others that may take it. The caller ends each check by Connected. Call it several times a second, and
// after SetBackends and Unreachable; it is not for each request, as it looks at all backends.
func (q *Queue) Checks(now time.Time) (backends []string) {
	if !q.options.Connects {
		return nil
	}
	var due []*Backend
	running, unlucky := 0, q.unlucky()
	for _, b := range q.backends {
		switch {
		case b.checked:
			running++
		case b.removed || now.Before(b.paused) || !b.unproven() && unlucky.IsZero():
		case b.reachable.IsZero() || b.reachable.Before(unlucky):
			due = append(due, b)
		}
	}
	// Those that failed wait behind the others: there may be more than can be checked before they are due again.
	slices.SortStableFunc(due, func(a, b *Backend) int { return a.paused.Compare(b.paused) })
	for _, b := range due[:min(len(due), maxChecks-running)] {
		b.checked = true
		backends = append(backends, b.Address)
	}
	return backends
}

// unlucky returns when the latest of the waiting requests that were Unreachable was; zero if there is none.
func (q *Queue) unlucky() (latest time.Time) {
	for _, w := range q.queue {
		if w.unlucky.After(latest) {
			latest = w.unlucky
		}
	}
	return latest
}

// Connected ends a check that began at a time.
func (q *Queue) Connected(now time.Time, backend string, began time.Time, ok bool) []Verdict {
	if b := q.backend(backend); b != nil {
		b.checked = false
		switch {
		case now.Before(b.paused) || b.reachable.After(began): // a request failed meanwhile, or was answered
		case ok:
			b.reachable, b.unreachable = began, false
		default:
			b.fail(now, true)
		}
		q.forget()
	}
	return q.dispatch(now)
}

// Leave removes a request from the queue: its client gave up. It is not an error if it no longer waits.
func (q *Queue) Leave(request uint64) {
	q.queue = slices.DeleteFunc(q.queue, func(w waiting) bool { return w.request == request })
}

// Outcome describes how a request ended at its backend.
type Outcome int

// The outcomes.
const (
	Answered  Outcome = iota
	Rejected          // 4xx: the client's error, or of a backend that lacks the model
	Failed            // no answer, or one that means that the backend failed
	Abandoned         // the client disconnected
)

// Done ends a request at a backend, and notes how long the backend took.
func (q *Queue) Done(now time.Time, backend string, took time.Duration, o Outcome) []Verdict {
	if b := q.backend(backend); b != nil {
		answered := o == Answered || o == Rejected
		if b.ended(answered); answered {
			b.reachable, b.unreachable = now, false
		}
		seconds := took.Seconds()
		switch o {
		case Answered:
			b.Answers++
			b.rejections, b.Failures, b.paused = 0, 0, time.Time{}
			if b.untried() {
				b.Latency = seconds
			} else {
				b.Latency += q.options.Alpha * (seconds - b.Latency)
			}
		case Rejected:
			if b.rejections++; b.rejections > rejectionsOfClients {
				b.fail(now, false)
			}
		case Failed:
			b.fail(now, false)
		case Abandoned:
			if b.untried() {
				b.givenUp = max(b.givenUp, seconds)
			} else if seconds > b.Latency {
				b.Latency += q.options.Alpha * (seconds - b.Latency)
			}
		}
		q.forget()
	}
	return q.dispatch(now)
}

// Tick refuses the requests that have waited too long, and sends others to backends whose pause has ended. Call it
// several times a second.
func (q *Queue) Tick(now time.Time) (verdicts []Verdict) {
	verdicts = q.dispatch(now)
	for len(q.queue) > 0 && now.Sub(q.queue[0].since) >= q.options.QueueTimeout {
		verdicts = append(verdicts, Verdict{Request: q.queue[0].request, Refused: RefusedTimeout})
		q.queue = q.queue[1:]
	}
	return verdicts
}

// dispatch sends waiting requests to backends while there is one that may take them.
func (q *Queue) dispatch(now time.Time) (verdicts []Verdict) {
	var none time.Time // of the Unreachable requests, those of this time or later find no backend
	for i := 0; i < len(q.queue); {
		w := q.queue[i]
		var b *Backend
		if none.IsZero() || w.unlucky.Before(none) {
			if b = q.choose(now, w); b == nil {
				none = w.unlucky
			}
		}
		switch {
		case b != nil:
			b.sent(now)
			verdicts = append(verdicts, Verdict{Request: w.request, Backend: b.Address})
			q.remove(i)
		case w.unlucky.IsZero():
			return verdicts
		default: // the others need no backend that was connected to since
			i++
		}
	}
	return verdicts
}

// remove takes a request out of the queue.
func (q *Queue) remove(i int) {
	if i == 0 { // nearly always, and nothing has to move
		q.queue = q.queue[1:]
		return
	}
	q.queue = slices.Delete(q.queue, i, i+1)
}

// choose returns the backend for a request; nil if it has to wait. Paused backends are used only if all are, and those
// that cannot be connected to are not: the next attempt needs no request.
func (q *Queue) choose(now time.Time, w waiting) *Backend {
	if slices.ContainsFunc(q.backends, func(b *Backend) bool { return !b.removed && !now.Before(b.paused) }) {
		return q.best(now, func(b *Backend) bool {
			return !now.Before(b.paused) && (!q.options.Connects || !b.reachable.Before(w.unlucky))
		})
	}
	return q.best(now, func(b *Backend) bool { return !q.options.Connects || !b.unreachable })
}

// best returns the fastest of some backends that may take a request; of equal ones, the one with the fewest in flight.
func (q *Queue) best(now time.Time, among func(*Backend) bool) (best *Backend) {
	for _, b := range q.backends {
		if b.removed || !among(b) || !q.mayTake(now, b) {
			continue
		}
		if best == nil || cmp.Or(cmp.Compare(b.rank(now), best.rank(now)),
			cmp.Compare(b.InFlight, best.InFlight)) < 0 {
			best = b
		}
	}
	return best
}

func (q *Queue) mayTake(now time.Time, b *Backend) bool {
	s := q.stateOf(now, b)
	return s == BackendIdle || s == BackendOpen
}

// stateOf returns the state of a backend; for one that is paused, what it would be if it were used nevertheless.
func (q *Queue) stateOf(now time.Time, b *Backend) BackendState {
	switch {
	case q.options.Connects && b.unproven() && b.reachable.IsZero() && !now.Before(b.paused):
		return BackendConnecting
	case b.InFlight == 0:
		return BackendIdle
	case b.untried():
		return BackendProbed
	case b.rank(now) >= q.options.Threshold.Seconds():
		return BackendSlow
	case b.InFlight >= rampFactor*b.Answers:
		return BackendRamping
	}
	return BackendOpen
}

// Depth returns the number of requests that wait.
func (q *Queue) Depth() int { return len(q.queue) }

// Backends returns the states of all backends in the order in which they were first set, with those that were removed
// and still have requests.
func (q *Queue) Backends(now time.Time) []Backend {
	var out []Backend
	for _, b := range q.backends {
		if b.gone() {
			continue
		}
		state := *b
		switch state.State = q.stateOf(now, b); {
		case b.removed:
			state.State = BackendRemoved
		case now.Before(b.paused):
			state.State = BackendPaused
		}
		out = append(out, state)
	}
	return out
}
