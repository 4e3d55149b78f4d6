package follow

import (
	"net/http"
	"strconv"
	"time"
)

// The reasons of requests that waited, for metrics and access logs.
const (
	ReasonGranted = "queue"
	ReasonCached  = "queue_prefix" // granted a place where a part of the prompt is cached
	ReasonRefused = "queue_"       // and why
)

// DroppedReason is the header in which clients of llm-d's router look for the cause of a refusal: another try is worth
// it where the pool was full, and not after a wait that took too long. https://github.com/llm-d/llm-d-router/pull/1027
const DroppedReason = "x-llm-d-request-dropped-reason"

// Values of [DroppedReason].
const (
	DroppedSaturated   = "rejected-saturated"
	DroppedExpired     = "rejected-ttl-expired"
	DroppedNoEndpoints = "rejected-no-endpoints"
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

// A Refusal answers a request which the queue refused: 429, because endpoints serve, and have no place for it. While no
// endpoint can serve, a request is not refused but released, and the proxy answers 503 by itself.
type Refusal struct {
	Status  int
	Body    string
	Details string // Envoy's details of the response code
	Headers [][2]string
}

// Refusal returns the answer to a request that was refused.
func (o Outcome) Refusal() Refusal {
	body, dropped := "the queue does not take this request\n", DroppedSaturated
	switch o.Refused {
	case "full":
		body = "all model servers are busy, and the queue is full\n"
	case "timeout":
		body, dropped = "no model server was free within the time that a request may wait\n", DroppedExpired
	}
	return Refusal{Status: http.StatusTooManyRequests, Body: body, Details: "steelyard_" + o.Reason(),
		Headers: [][2]string{{"retry-after", strconv.Itoa(int(o.RetryAfter.Seconds()))},
			{"x-steelyard-refused", o.Refused}, {DroppedReason, dropped}}}
}
