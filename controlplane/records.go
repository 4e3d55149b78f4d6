package controlplane

import (
	"time"

	"steelyard/internal/api"
	"steelyard/weighting"
	"steelyard/weighting/flight"
	"steelyard/weighting/push"
)

// record has the reports of one endpoint.
type record struct {
	id       string // of the endpoint; empty while unknown
	server   weighting.ServerReport
	inFlight weighting.Reading // from Redis
	proxies  flight.Counts
	round    int // of proxies
	scrape   Scrape
	failures int // scrapes in a row

	wrong   string    // the latest counters that could not be right, and why
	wrongAt time.Time // when that was; zero: never

	firstToken   *api.Histogram // times to the first token; nil: unknown
	firstTokenAt time.Time
}

// A Scrape is the outcome of the latest scrape of an endpoint.
type Scrape struct {
	At      time.Time // zero before the first
	Took    time.Duration
	Err     error
	Doubt   string // why a number of the page is unknown although it is there; empty for none
	Refused bool   // nothing listens there

	WrongCounters string         // counters of the page that cannot be right, and why; empty for none
	FirstToken    *api.Histogram // nil: not read this time
}

// source is the health of one kind of source over the whole cluster.
type source struct {
	failures    int // since the last success
	lastSuccess time.Time
	lastErr     error
	failing     time.Time // when the first of the failures was
}

func (s *source) record(at time.Time, err error) {
	s.lastErr = err
	if err != nil {
		if s.failures++; s.failures == 1 {
			s.failing = at
		}
		return
	}
	s.failures, s.lastSuccess = 0, at
}

// pushes are the outcomes of the decisions.
type pushes struct {
	pushed, suppressed uint64
	last               Push
	at                 time.Time
	err                error      // of the latest decision
	pause              push.Pause // after the latest step
}

// others returns the requests that are counted besides those of the proxies, unknown where there is no such count, or
// only an old one: the scrapes then show them as traffic that bypasses the proxies.
func (r *record) others(o *Options, now time.Time) api.Number {
	if !o.CountsOthers || !r.inFlight.Known() || r.inFlight.Age(now) > o.Push.Params.Hold {
		return api.Number{}
	}
	return api.Num(r.inFlight.Value)
}
