package controlplane

import (
	"time"

	"steelyard/internal/api"
	"steelyard/weighting"
	"steelyard/weighting/flight"
	"steelyard/weighting/push"
)

// Options are the settings of one cluster's loop.
type Options struct {
	Engine  string
	Scraped bool // endpoints are scraped
	Counted bool // in-flight counts are read
	// CountsOthers says that the counts that are read do not have the requests of the proxies that report.
	CountsOthers bool

	// ScrapeInterval and CountInterval are the times between two scrapes of an
	// endpoint and between two readings of the in-flight counts.
	ScrapeInterval, CountInterval time.Duration

	// Capacity is the slots of an endpoint without its own number, 0 where they are learned. WarmUp
	// is how long the first push waits for the first full round of reports.
	Capacity float64
	WarmUp   time.Duration

	Push push.Options
}

// A Push is the outcome of a decision.
type Push struct {
	Pushed  bool
	Reason  string // of the push, or why there was none
	Version string // of the assignment in force
	Err     error  // why the decision could not be pushed; the assignment before it stays in force
}

// ReasonError is the reason of a decision that could not be pushed.
const ReasonError = "error"

// A Publisher sends decisions to the proxies.
type Publisher interface {
	// Publish pushes the decision of a verdict. It returns the version in force, and an error if the decision was not
	// pushed.
	Publish(cluster string, v push.Verdict) (version string, err error)
	// Remove stops serving a cluster.
	Remove(cluster string)
	// Weights returns the weights last pushed, by address.
	Weights(cluster string) map[string]uint32
	// AckDelay is the smoothed time from a push to the proxies' ACKs; 0 unknown.
	AckDelay(cluster string) time.Duration
}

// Proxies are the proxies' reports of their requests, by access log and load reports. The loop
// reads them at every step; the caller of NewCluster calls Poke when they change.
type Proxies interface {
	// Counts returns the counts of one cluster. Its Endpoints reuse the memory of previous, those of the call before.
	Counts(cluster string, now time.Time, previous []flight.Counts) ProxyCounts
	// Served takes an endpoint's report of its own requests, which can contradict the report of
	// one proxy. Where the endpoint has no gauge of running requests, it runs as many as slots; 0
	// slots are unknown.
	Served(address string, r weighting.ServerReport, slots float64)
	// Sources is the state of those reports, for display, and Disputes are reports of one proxy
	// that conflict with those of all others.
	Sources(cluster string, now time.Time) []api.SourceStatus
	Disputes(cluster string, now time.Time) []api.Dispute
}

// ProxyCounts are what the proxies of one cluster report.
type ProxyCounts struct {
	Subscribers push.Subscribers // the proxies that this replica pushes to
	// Watching is how many proxies subscribe to the cluster, at any replica; Reporting is how many of them report.
	Watching, Reporting int
	Source              string // of the counts, as in package api; empty while no proxy reports
	// Interval is the time between two reports of a proxy; 0 where each change is
	// reported when it happens.
	Interval  time.Duration
	Dropped   weighting.Reading // requests that drop_overloads refused, cumulative
	Endpoints []flight.Counts   // those that the proxies know; in any order, in that of SetEndpoints it is fastest
}

// An Observer is called after every step and its push, with the previous decision and the
// new one. It must not block.
type Observer interface {
	Stepped(cluster string, before, d weighting.Decision, p Push, took time.Duration)
}
