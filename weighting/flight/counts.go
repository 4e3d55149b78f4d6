package flight

import (
	"time"

	"steelyard/weighting"
)

// Counts are what the proxies of a cluster report of one endpoint, over all of them.
type Counts struct {
	Address  string
	InFlight weighting.Reading // unknown while no proxy reports
	Exact    bool              // cannot leak: every proxy that is counted has load reports, too
	Proxies  weighting.ProxyReport

	// ResponseBytes is those of an answer and FailedShare, 0 to 1, the failures among the requests that the
	// endpoint answered or failed: moving averages over the ends that logs report, as of the newest, for
	// people; unknown before the first.
	ResponseBytes, FailedShare weighting.Reading
}

// Report returns the sums as the law reads them: as of at, and what only access logs show as of logged. A zero time
// means that they are unknown.
func (s *Sums) Report(at, logged time.Time) weighting.ProxyReport {
	count := func(n uint64, at time.Time) weighting.Reading { return Reading(float64(n), at) }
	return weighting.ProxyReport{
		Issued: count(s.Issued, at), Hashed: count(s.Hashed, at), Ended: count(s.Ended, at),
		Errors: count(s.Errors, at), Succeeded: count(s.Succeeded, at),
		Sized: count(s.Sized, at), SizedBytes: Reading(s.Bytes, at),
		Refused: count(s.Refused, at), RefusedBytes: Reading(s.RefusedBytes, at),
		Failed: count(s.Failed, logged), Answered: count(s.Answered, logged),
		LatencySeconds: Reading(s.Latency, logged),
	}
}

// Reading is a value as of a time; unknown if that is zero.
func Reading(value float64, at time.Time) weighting.Reading {
	if at.IsZero() {
		return weighting.Reading{}
	}
	return weighting.Reading{Value: value, At: at}
}

// Watchers are the proxies that subscribe to a cluster, and how they are counted.
type Watchers struct {
	Watching   int           // how many they are
	Events     int           // of them, counted by their access log
	Reports    int           // counted by their load reports only
	Reconciled int           // of both, those that have load reports
	Rate       float64       // requests per second of those that are counted
	Age        time.Duration // of their counts
	// Interval is the time between two readings of a proxy: the mean over those that are counted, each weighed by its
	// request rate. One that is counted by events adds 0.
	Interval time.Duration
}

// Counted returns how many proxies are counted.
func (w *Watchers) Counted() int { return w.Events + w.Reports }

// Add adds other proxies, but for the times.
func (w *Watchers) Add(o *Watchers) {
	w.Watching += o.Watching
	w.Events += o.Events
	w.Reports += o.Reports
	w.Reconciled += o.Reconciled
	w.Rate += o.Rate
}

// A Part is what some of the proxies have at one endpoint.
type Part struct {
	Address  string
	InFlight int64
	Sums     Sums
}
