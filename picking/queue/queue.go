package queue

import (
	"math"
	"time"

	"steelyard/picking"
)

// Options are the settings of a Queue.
type Options struct {
	// Classes has at least one class. A request that names none of them belongs to the last one.
	Classes []Class
	// MaxInFlight is how many requests an endpoint may have in flight; 0: as many as it executes at once.
	MaxInFlight int
	// LongestMatch has the choice among places go by the longest match, as in [picking.Update].
	LongestMatch bool
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
	random  func() float64 // at least 0 and less than 1
	opens   time.Time      // nothing is granted or refused before; zero once it has passed
	closes  time.Time      // nothing is granted or refused from then on; zero: for ever
	on      bool
	longest bool // the choice of places is by the longest match
	line    *line
	places  *places
	picker  picking.Picker
}

// New makes a queue that is off: it releases what arrives. Even when it is on, it grants and refuses nothing before
// opens: after a start, proxies need time to name the requests that hold places, and those that wait.
func New(opens time.Time, random func() float64) *Queue {
	return &Queue{random: random, opens: opens, line: newLine([]Class{{Weight: 1}}), places: newPlaces()}
}

// Forget forgets all requests, those that hold places too, and keeps the endpoints. Nothing is granted or refused
// before opens: meanwhile, proxies name what waits and what holds places.
func (q *Queue) Forget(opens time.Time) {
	classes := make([]Class, len(q.line.classes))
	for i, c := range q.line.classes {
		classes[i] = c.Class
	}
	q.line, q.opens = newLine(classes), opens
	q.places.forget()
}

// Close has nothing granted or refused from a time on, until the next call; the zero time is never.
func (q *Queue) Close(at time.Time) { q.closes = at }

// SetOptions changes the settings, and switches the queue on; nil switches it off. Waiting requests stay in their order
// of arrival, and belong to the class that they named, also if it is new; the classes' shares start over.
func (q *Queue) SetOptions(now time.Time, o *Options) []Verdict {
	if q.on = o != nil; !q.on {
		return q.release(now)
	}
	q.places.max, q.longest = o.MaxInFlight, o.LongestMatch
	line := newLine(o.Classes)
	for _, w := range q.line.all() {
		line.add(w.Request)
	}
	q.line = line
	return q.settle(now)
}

// Update replaces the endpoints and their loads.
func (q *Queue) Update(now time.Time, endpoints []Endpoint, arrivalRate float64, c picking.Cost) []Verdict {
	u := picking.Update{Endpoints: make([]picking.Endpoint, len(endpoints)), ArrivalRate: arrivalRate, Cost: c,
		LongestMatch: q.longest}
	for i, e := range endpoints {
		u.Endpoints[i] = e.Endpoint
	}
	q.picker.Update(u, now)
	q.places.update(now, endpoints)
	return q.settle(now)
}

// Arrive adds a request. Its verdict may be among those that are returned.
func (q *Queue) Arrive(now time.Time, r Request) []Verdict {
	if r.Since.After(now) {
		r.Since = now
	}
	q.line.add(r)
	return q.settle(now)
}

// Hold adds a request that was sent to an endpoint before this queue existed.
func (q *Queue) Hold(id ID, endpoint string) {
	q.places.find(endpoint)
	q.places.take(id, endpoint)
}

// End ends a request, or removes it if it is still waiting, because its client gave up; left reports the latter, with
// its class.
func (q *Queue) End(now time.Time, id ID) (verdicts []Verdict, class string, left bool) {
	if w := q.line.byID[id]; w != nil {
		q.line.remove(w)
		return nil, w.class.Name, true
	}
	if q.places.release(id) {
		verdicts = q.settle(now)
	}
	return verdicts, "", false
}

// Gone forgets the requests of a stream that broke. The places that they hold are free after [Grace].
func (q *Queue) Gone(now time.Time, stream uint64) []Verdict {
	for id, w := range q.line.byID {
		if id.Stream == stream {
			q.line.remove(w)
		}
	}
	for id := range q.places.holders {
		if id.Stream == stream {
			q.places.lose(id, now)
		}
	}
	return q.settle(now)
}

// Tick refuses requests that have waited too long. Call it several times a second.
func (q *Queue) Tick(now time.Time) []Verdict { return q.settle(now) }

// settle grants places to waiting requests, and refuses those that are too many or too old.
func (q *Queue) settle(now time.Time) (verdicts []Verdict) {
	if !q.on {
		return q.release(now)
	}
	if now.Before(q.opens) || !q.closes.IsZero() && !now.Before(q.closes) {
		return nil // nor is anything refused
	}
	if !q.opens.IsZero() {
		q.opens = time.Time{}
		q.places.trustLatest()
	}
	q.places.giveUp(now)
	for w := q.line.next(); w != nil; w = q.line.next() {
		c := q.picker.Choose(now, picking.Request{Size: w.Size, Cached: w.Cached, Key: w.Key, May: q.places.free},
			q.random())
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

// refuse refuses requests that are too many or too old.
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

// RetryAfter rounds a wait up to whole seconds, 1 to 60, for the header.
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
	v.ID, v.Class, v.Waited = w.ID, w.class.Name, max(0, now.Sub(w.Since))
	return v
}

// On reports whether the queue is on.
func (q *Queue) On() bool { return q.on }

// A ClassState describes what waits in a class.
type ClassState struct {
	Class
	Waiting int
	Tenants int       // with waiting requests
	Oldest  time.Time // arrival of the request that has waited for longest; zero when none waits
}

// Classes returns the states of the classes, in their order; none while the queue is off.
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

// Held returns the number of requests that were sent by the queue and have not ended.
func (q *Queue) Held() int { return len(q.places.holders) }

// MaxInFlight returns how many requests an endpoint may have in flight; 0: as many as it executes at once.
func (q *Queue) MaxInFlight() int { return q.places.max }
