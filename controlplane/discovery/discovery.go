package discovery

import (
	"context"
	"log/slog"
	"slices"
	"strings"
)

// An Endpoint is one server of a cluster, as a source of discovery names it.
// For a zero field, the cluster's configuration applies.
type Endpoint struct {
	// Address is host:port, where host is an IP (IPv6 in brackets), in the
	// canonical spelling of net/netip. It is the endpoint's identity within
	// its cluster.
	Address string
	// Zone is the locality of the endpoint.
	Zone string
	// Capacity is the number of requests the endpoint executes at once (slots).
	Capacity float64
	// Engine is the model server's kind, one of package engines.
	Engine string
	// MetricsPort is the TCP port of the metrics page, where it is not the
	// serving port (Triton: 8000 and 8002).
	MetricsPort int
	// MetricsPath is the path of the metrics page, with its leading slash.
	MetricsPath string

	// ID distinguishes endpoints that had the same address one after the other:
	// nothing that was learned of one holds for the next. Empty where the source
	// has only addresses.
	ID string
	// Namespace, Pod and Node say where the endpoint runs, for people.
	Namespace, Pod, Node string
	// Role is what its Pod does of a request (llm-d: prefill, decode, both), Model what it serves, by its labels, for
	// people. Empty where there is no such label.
	Role, Model string
	// Terminating endpoints finish the requests that they have, and get no new ones.
	Terminating bool
}

// A Discoverer is one source of the endpoints of one cluster.
//
// Run sends the whole set, sorted by address, as soon as it is known and again
// whenever it has changed; never a set equal to the one sent before. Each sent
// slice belongs to the receiver. A source that fails keeps the set it had: it
// sends nothing and passes the reason to its report function. One that leaves
// something out of a set passes *Omissions. A receiver that is slow gets the
// latest set, not every set.
//
// Run blocks until ctx is done and then returns nil; it returns an error at
// once when its own configuration can never work. It does not close sets. Run may
// be called once.
type Discoverer interface {
	Run(ctx context.Context, sets chan<- []Endpoint) error
}

// A Refresher is what the sources that can change have in common: what was last sent, what
// still waits to be sent, and whether the last refresh failed. It is used by
// one goroutine.
type Refresher struct {
	sets   chan<- []Endpoint
	report func(error)
	log    *slog.Logger

	known   bool       // set holds an answer of the source
	set     []Endpoint // the last good set
	waiting bool       // set is not yet sent
	sent    bool       // something was sent
	last    []Endpoint // what was sent last
	failing string     // why, without digits; empty while it does not
	partly  bool       // something was left out
}

// NewRefresher makes the refresher of a source that has not answered yet.
func NewRefresher(sets chan<- []Endpoint, report func(error), log *slog.Logger) *Refresher {
	return &Refresher{sets: sets, report: report, log: log}
}

// Done records the outcome of one refresh: a set, or an error, or a set with an error, which is *Omissions, or why the
// set may be outdated. A nil set keeps the one known.
func (r *Refresher) Done(set []Endpoint, err error) {
	r.record(err)
	if set == nil {
		return
	}
	if !r.known || !slices.Equal(set, r.set) {
		r.log.Info("endpoints changed", "endpoints", len(set), "before", len(r.set))
	}
	r.known, r.set = true, set
	// A set that changed back before it could be sent is no change.
	r.waiting = !r.sent || !slices.Equal(r.set, r.last)
}

var withoutDigits = strings.NewReplacer("0", "", "1", "", "2", "", "3", "", "4", "", "5", "", "6", "", "7", "",
	"8", "", "9", "")

// record reports the outcome, and logs the changes from good to bad and back, and another reason. Some have ports or
// times, so digits make no other one.
func (r *Refresher) record(err error) {
	r.report(err)
	omitted, partly := err.(*Omissions) //nolint:errorlint // wrapped in an error, they are a failure
	failing := ""
	if err != nil && !partly {
		failing = withoutDigits.Replace(err.Error())
	}
	switch {
	case failing != "" && failing != r.failing:
		r.log.Warn("endpoints could not be refreshed, keeping those known", "endpoints", len(r.set), "error", err)
	case failing != "":
		r.log.Debug("endpoints could not be refreshed again", "error", err)
	case r.failing != "":
		r.log.Info("endpoints can be refreshed again")
	}
	switch {
	case partly && !r.partly:
		r.log.Warn("something that was found is left out", "count", omitted.Count, "first", omitted.First[0].String())
	case err == nil && r.partly:
		r.log.Info("nothing is left out any more")
	}
	r.failing, r.partly = failing, partly
}

// Out is the channel to send pending on, nil while there is nothing to send, so
// that it can stand in a select.
func (r *Refresher) Out() chan<- []Endpoint {
	if !r.waiting {
		return nil
	}
	return r.sets
}

// Pending is a copy of the set for the receiver to keep.
func (r *Refresher) Pending() []Endpoint {
	if !r.waiting {
		return nil
	}
	return slices.Clone(r.set)
}

// Delivered notes that pending was sent.
func (r *Refresher) Delivered() {
	r.waiting, r.sent, r.last = false, true, r.set
}
