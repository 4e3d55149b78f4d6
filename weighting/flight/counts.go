package flight

import "steelyard/weighting"

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

// A Part is what some of the proxies have at one endpoint.
type Part struct {
	Address  string
	InFlight int64
	Sums     Sums
}
