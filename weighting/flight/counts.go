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
	count := func(n uint64, at time.Time) weighting.Reading { return reading(float64(n), at) }
	return weighting.ProxyReport{
		Issued: count(s.Issued, at), Ended: count(s.Ended, at),
		Errors: count(s.Errors, at), Succeeded: count(s.Succeeded, at),
		Sized: count(s.Sized, at), SizedBytes: reading(s.Bytes, at),
		Failed: count(s.Failed, logged), Answered: count(s.Answered, logged),
		LatencySeconds: reading(s.Latency, logged),
	}
}

func reading(value float64, at time.Time) weighting.Reading {
	if at.IsZero() {
		return weighting.Reading{}
	}
	return weighting.Reading{Value: value, At: at}
}

// A Part is what some of the proxies have at one endpoint.
type Part struct {
	Address  string
	InFlight int64
	Sums     Sums
}
