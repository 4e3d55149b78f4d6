package follow

import (
	"strconv"
	"time"
)

// The reasons of requests that waited, for metrics and access logs.
const (
	ReasonGranted = "queue"
	ReasonCached  = "queue_prefix" // granted a place where a part of the prompt is cached
	ReasonRefused = "queue_"       // and why
)

// An Outcome ends the waiting of a request: it is granted an Endpoint, or Refused, or, with neither, released: it goes
// by the choice that it would have had without a queue.
type Outcome struct {
	Endpoint   string
	Cached     bool   // Endpoint has a part of its prompt in its cache
	Refused    string // the reason
	RetryAfter time.Duration
}

// Reason returns the reason of the choice; empty for a request that was released, whose choice has its own.
func (o Outcome) Reason() string {
	switch {
	case o.Refused != "":
		return ReasonRefused + o.Refused
	case o.Cached:
		return ReasonCached
	case o.Endpoint != "":
		return ReasonGranted
	}
	return ""
}

// A Refusal is the 503 that answers a request which the queue refused.
type Refusal struct {
	Body    string
	Details string // Envoy's details of the response code
	Headers [][2]string
}

// Refusal returns the answer to a request that was refused.
func (o Outcome) Refusal() Refusal {
	r := Refusal{Details: "steelyard_" + o.Reason(), Headers: [][2]string{
		{"retry-after", strconv.Itoa(int(o.RetryAfter.Seconds()))}, {"x-steelyard-refused", o.Refused}}}
	switch o.Refused {
	case "full":
		r.Body = "all model servers are busy, and the queue is full\n"
	case "timeout":
		r.Body = "no model server was free within the time that a request may wait\n"
	default:
		r.Body = "the queue does not take this request\n"
	}
	return r
}
