package weighting

import (
	"math"
	"time"
)

// A Reading is one measured number and the moment at which it was true. The zero Reading is unknown, and unknown is not
// zero: a server whose queue could not be read must not look like an idle one.
type Reading struct {
	Value float64
	// At is when the source held this value, as closely as the collector knows:
	// the middle of the exchange that fetched it. Zero means unknown.
	At time.Time
}

// Known reports whether there is a value at all, however old.
func (r Reading) Known() bool { return !r.At.IsZero() }

// Age is how long ago the value was true. It is never negative: a collector's
// clock may be a hair ahead of the loop's.
func (r Reading) Age(now time.Time) time.Duration { return max(0, now.Sub(r.At)) }

// A ServerReport is what a model server exports: true, late, and complete, because it counts all of its traffic. Each
// field has its own age, because a server can stop exporting one series and go on with the others.
//
// The cumulative fields never go back: a collector turns the counters of a restarted server into a sum that goes
// on from where it was.
type ServerReport struct {
	Queue       Reading // requests waiting to execute
	Running     Reading // requests executing
	Utilization Reading // share of the KV cache in use, 0..1
	BlockTokens Reading // size of a block of the prefix cache, in tokens: for pickers, not for the law
	Awake       Reading // 0 while the engine sleeps, and so takes no requests, else 1

	Completions  Reading // requests completed, cumulative
	QueueSeconds Reading // request-seconds spent waiting, cumulative, by the requests completed
	BusySeconds  Reading // request-seconds spent executing, cumulative, by the requests completed

	// Tokens are the counts of an engine that batches continuously.
	Tokens TokenCounts

	// Restarts is how often most counters went back at once since the first report, as with another process;
	// Implausible is how often one was higher than is possible, which is no reading of it and leaves the others as they
	// are.
	Restarts, Implausible int
}

// TokenCounts are what an engine that generates text has done, all read at once and cumulative. An engine that does not
// export one of them exports none; the exceptions are marked. TensorRT-LLM, TGI and older versions of SGLang count the
// tokens of a request when it ends: their counts are late by as long as requests take.
type TokenCounts struct {
	At        time.Time // zero: unknown
	Prompt    float64   // prompt tokens of the requests in First, cached ones included
	Cached    float64   // of those, the ones that a prefix cache answered; 0 where that is not exported
	Generated float64   // tokens
	First     float64   // requests whose prompt is computed: their first token is generated
	// Iterations is how often the engine's scheduler ran; 0 where that is not exported.
	Iterations float64
	// Live means that work is counted as it is done, and not only when a request ends.
	Live bool
}

// An Endpoint is one address of a cluster with all that is known of its load.
type Endpoint struct {
	Address string // host:port, the identity within the cluster
	// ID distinguishes endpoints that had the same address one after the other: nothing that was learned of one holds
	// for the next. Empty where the source does not distinguish them.
	ID   string
	Zone string // locality; empty where there is none

	// Capacity is the number of requests the endpoint executes at once (slots),
	// as configured. Zero means that it is to be learned.
	Capacity float64

	Server   ServerReport // scraped
	Refused  bool         // the latest scrape was refused: connections to the server are
	InFlight Reading      // requests in flight through the proxies that count: early, without other traffic
	// Exact says that InFlight cannot leak: its counts end with the streams they
	// came over, and are reconciled with the proxies' own gauges.
	Exact   bool
	Proxies ProxyReport

	Override Override // by an operator
}

// A ProxyReport is what the proxies report of the requests that they sent to an endpoint, over all proxies that report.
// Each field is a sum that never goes back; it counts from when the collector started.
type ProxyReport struct {
	Issued Reading // requests that got a connection to the endpoint
	Hashed Reading // of those, the ones whose endpoint a hash chose (affinity), and not the shares
	Ended  Reading // of those, the ones that are over, however they ended
	Failed Reading // requests that the endpoint failed: no connection, reset, or a 5xx of its own
	// Errors are the other requests that ended in an error, which may be the request's own or the proxy's: a 4xx or a
	// gRPC status; of proxies that do not report Failed, all errors that they know. Succeeded are requests that were
	// answered without one.
	Errors, Succeeded Reading
	// LatencySeconds is the time to the last byte, summed over the requests in Answered.
	LatencySeconds, Answered Reading
	// Sized are the requests in Issued whose size was known when they began (content-length), and SizedBytes
	// is the sum of these sizes.
	Sized, SizedBytes Reading
	// Refused are the requests in Sized that the endpoint refused (4xx), so that it computed no prompt, and
	// RefusedBytes is the sum of their sizes.
	Refused, RefusedBytes Reading
	// Partial means that only some of the proxies report Failed, LatencySeconds and Answered, and all of them the
	// others.
	Partial bool
}

// An Override is what an operator decided about an endpoint. The zero Override leaves it to the law.
type Override struct {
	Drained bool    // it gets no new requests
	Share   float64 // from 1e-6 on: its share of the requests
}

// withAccessLog reports whether all proxies report how each request ended.
func (r *ProxyReport) withAccessLog() bool { return r.Answered.Known() && !r.Partial }

// withoutTimes is the report without the times of its readings.
func (r ServerReport) withoutTimes() ServerReport {
	for _, gauge := range r.gauges() {
		gauge.At = time.Time{}
	}
	for _, sum := range r.sums() {
		sum.At = time.Time{}
	}
	r.Tokens.At = time.Time{}
	return r
}

// at is the time of the newest gauge.
func (r *ServerReport) at() time.Time {
	return newer(newer(r.Queue.At, r.Running.At), r.Utilization.At)
}

func (r *ServerReport) gauges() []*Reading {
	return []*Reading{&r.Queue, &r.Running, &r.Utilization, &r.BlockTokens, &r.Awake}
}

func (r *ServerReport) sums() []*Reading {
	return []*Reading{&r.Completions, &r.QueueSeconds, &r.BusySeconds}
}

// requests are the sums of requests and of their seconds.
func (r *ProxyReport) requests() []*Reading {
	return []*Reading{
		&r.Issued, &r.Hashed, &r.Ended, &r.Failed, &r.Errors, &r.Succeeded, &r.LatencySeconds, &r.Answered,
		&r.Sized, &r.Refused,
	}
}

// valueOf is what was read; NaN where nothing was.
func valueOf(r Reading) float64 {
	if !r.Known() {
		return math.NaN()
	}
	return r.Value
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func newer(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// newest returns the later of two valid readings; of two with the same time, the larger. It keeps the last known value
// of a field that a report leaves out, so that the field ages by its own clock.
func newest(a, b Reading) Reading {
	if b.At.After(a.At) || b.At.Equal(a.At) && b.Value > a.Value {
		return b
	}
	return a
}
