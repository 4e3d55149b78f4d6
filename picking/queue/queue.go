package queue

import (
	"math"
	"time"

	"steelyard/picking"
)

// Options are the settings of a Queue.
type Options struct {
	// Classes are at least one. A request that names none of them belongs to the last.
	Classes []Class
	// MaxInFlight is the requests that an endpoint may have in flight; 0: as many as it executes at once.
	MaxInFlight int
}

// An ID names a request.
type ID struct {
	Stream  uint64 // of the proxy
	Request uint64 // unique on the stream
}

// A Request is one that asks for a place.
type Request struct {
	ID            ID
	Class, Tenant string
	Size          int64     // bytes of its body, negative where unknown
	Since         time.Time // when it came to its proxy
}

// An Endpoint is one of an update.
type Endpoint struct {
	picking.Endpoint
	InFlight float64 // requests in flight there, of all proxies; NaN where unknown
	AtOnce   float64 // requests that it executes at once; NaN where unknown
}

// Refusal is why a request was refused.
type Refusal string

// The refusals.
const (
	RefusedFull    Refusal = "full"    // its class has as many waiting requests as it may have
	RefusedTimeout Refusal = "timeout" // it waited for as long as its class allows
)

// A Verdict ends the waiting of a request: it is granted an Endpoint, or Refused, or, with neither, released to go by
// the proxy's weights.
type Verdict struct {
	ID       ID
	Class    string
	Waited   time.Duration
	Endpoint string
	Refused  Refusal
	// RetryAfter is when a refused client may try again, 1 s to 1 min: the time that the oldest request of its class
	// has waited.
	RetryAfter time.Duration
}

// A Queue is the queue of one cluster. It is not safe for concurrent use.
type Queue struct {
	random func() float64 // at least 0 and less than 1
	on     bool
	line   *line
	places *places
	picker picking.Picker
}

// New makes a queue that is off: it releases what arrives.
func New(random func() float64) *Queue {
	return &Queue{random: random, line: newLine([]Class{{Weight: 1}}), places: newPlaces()}
}

// SetOptions changes the settings, and switches the queue on; nil switches it off. What waits keeps its place in the
// order of arrival; the shares begin at the start.
func (q *Queue) SetOptions(now time.Time, o *Options) []Verdict {
	if q.on = o != nil; !q.on {
		return q.release(now)
	}
	q.places.max = o.MaxInFlight
	line := newLine(o.Classes)
	for _, w := range q.line.all() {
		line.add(w.Request)
	}
	q.line = line
	return q.settle(now)
}

// Update takes in the endpoints and what they have to do.
func (q *Queue) Update(now time.Time, endpoints []Endpoint, arrivalRate float64, c picking.Cost) []Verdict {
	u := picking.Update{Endpoints: make([]picking.Endpoint, len(endpoints)), ArrivalRate: arrivalRate, Cost: c}
	for i, e := range endpoints {
		u.Endpoints[i] = e.Endpoint
	}
	q.picker.Update(u, now)
	q.places.update(now, endpoints)
	return q.settle(now)
}

// Arrive takes in a request. Its verdict may be among those that are returned.
func (q *Queue) Arrive(now time.Time, r Request) []Verdict {
	if r.Since.After(now) {
		r.Since = now
	}
	q.line.add(r)
	return q.settle(now)
}

// Hold takes in a request that was sent to an endpoint before this queue existed.
func (q *Queue) Hold(id ID, endpoint string) { q.places.take(id, endpoint) }

// End takes in that a request has ended, or that its client left the queue. left reports the latter, with the class.
func (q *Queue) End(now time.Time, id ID) (verdicts []Verdict, class string, left bool) {
	if w := q.line.byID[id]; w != nil {
		q.line.remove(w)
		return nil, w.Class, true
	}
	if q.places.release(id) {
		verdicts = q.settle(now)
	}
	return verdicts, "", false
}

// Gone forgets all requests of a stream: it broke.
func (q *Queue) Gone(now time.Time, stream uint64) []Verdict {
	for id, w := range q.line.byID {
		if id.Stream == stream {
			q.line.remove(w)
		}
	}
	for id := range q.places.holders {
		if id.Stream == stream {
			q.places.release(id)
		}
	}
	return q.settle(now)
}

// Tick refuses what has waited for too long. It is to be called some times a second.
func (q *Queue) Tick(now time.Time) []Verdict { return q.settle(now) }

// settle grants what can be granted, and refuses what is too much or too old.
func (q *Queue) settle(now time.Time) (verdicts []Verdict) {
	if !q.on {
		return q.release(now)
	}
	for w := q.line.next(); w != nil; w = q.line.next() {
		c := q.picker.Choose(now, picking.Request{Size: w.Size, May: q.places.free}, q.random())
		switch {
		case c.Address == "" && c.Reason == picking.ReasonSubset:
			return append(verdicts, q.refuse(now)...)
		case c.Address == "":
			return append(verdicts, q.release(now)...)
		}
		q.line.serve(w)
		q.places.take(w.ID, c.Address)
		verdicts = append(verdicts, verdict(now, w, Verdict{Endpoint: c.Address}))
	}
	return verdicts
}

// refuse refuses what is too much or too old.
func (q *Queue) refuse(now time.Time) (verdicts []Verdict) {
	for _, c := range q.line.classes {
		retry := RetryAfter(0)
		if first := c.oldest(); first != nil {
			retry = RetryAfter(now.Sub(first.Since))
		}
		for w := c.oldest(); w != nil && now.Sub(w.Since) >= c.MaxWait; w = c.oldest() {
			q.line.remove(w)
			verdicts = append(verdicts, verdict(now, w, Verdict{Refused: RefusedTimeout, RetryAfter: retry}))
		}
		for w := c.excess(); w != nil; w = c.excess() {
			q.line.remove(w)
			verdicts = append(verdicts, verdict(now, w, Verdict{Refused: RefusedFull, RetryAfter: retry}))
		}
	}
	return verdicts
}

// RetryAfter is a wait as clients are told it: whole seconds, 1 to 60.
func RetryAfter(wait time.Duration) time.Duration {
	return time.Duration(min(60, max(1, math.Ceil(wait.Seconds())))) * time.Second
}

// release lets all requests go by the weights, in the order in which they would have been sent.
func (q *Queue) release(now time.Time) (verdicts []Verdict) {
	for w := q.line.next(); w != nil; w = q.line.next() {
		q.line.serve(w)
		verdicts = append(verdicts, verdict(now, w, Verdict{}))
	}
	return verdicts
}

func verdict(now time.Time, w *waiting, v Verdict) Verdict {
	v.ID, v.Class, v.Waited = w.ID, w.Class, max(0, now.Sub(w.Since))
	return v
}

// On reports whether the queue is on.
func (q *Queue) On() bool { return q.on }

// A ClassState is what waits in a class.
type ClassState struct {
	Class
	Waiting int
	Tenants int       // with waiting requests
	Oldest  time.Time // arrival of the request that has waited for longest; zero when none waits
}

// Classes are the states of the classes, in their order; none while the queue is off.
func (q *Queue) Classes() []ClassState {
	if !q.on {
		return nil
	}
	out := make([]ClassState, len(q.line.classes))
	for i, c := range q.line.classes {
		out[i] = ClassState{Class: c.Class, Waiting: c.requests.Len(), Tenants: len(c.tenants)}
		if w := c.oldest(); w != nil {
			out[i].Oldest = w.Since
		}
	}
	return out
}

// Held is the number of requests that were sent by the queue and have not ended.
func (q *Queue) Held() int { return len(q.places.holders) }

// MaxInFlight is the requests that an endpoint may have in flight; 0: as many as it executes at once.
func (q *Queue) MaxInFlight() int { return q.places.max }
