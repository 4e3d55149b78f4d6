package controlplane

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"steelyard/controlplane/discovery"
	"steelyard/controlplane/liveness"
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

// A Cluster is the store of one cluster's reports and the loop that decides.
// Its methods are safe for concurrent use; reports never wait for a step.
type Cluster struct {
	name      string
	publisher Publisher
	proxies   Proxies
	observer  Observer
	log       *slog.Logger
	activity  liveness.Activity // of the loop
	pacer     pacer             // of the loop

	// stepping is held by a step, and by a dry run of one.
	stepping sync.Mutex
	gate     *push.Gate // nil before Run

	// Buffers reused by the next step of the loop.
	counted []flight.Counts
	seen    []weighting.Endpoint

	mu         sync.Mutex
	options    Options
	began      time.Time // when discovery was asked first
	discovered bool      // a set of endpoints has arrived
	populated  time.Time // when the first endpoints arrived; zero before
	endpoints  []discovery.Endpoint
	leaving    []discovery.Endpoint // terminating: they get no new requests
	records    map[string]*record
	inOrder    []*record // of the endpoints, by index
	rounds     int       // of reports by the proxies
	scrapes    source
	counts     source
	discovery  source
	omitted    *discovery.Omissions    // from the latest set; nil for nothing
	overrides  map[string]api.Override // by address; replaced as a whole
	ignored    int                     // members of the last count that are not endpoints
	reporting  ProxyCounts             // without its endpoints, which are in the records
	ready      bool
	decision   weighting.Decision
	pushes     pushes
}

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

// NewCluster makes a cluster without endpoints; Run starts its loop.
func NewCluster(name string, o Options, p Publisher, proxies Proxies, obs Observer, log *slog.Logger) *Cluster {
	return &Cluster{
		name: name, options: o, publisher: p, proxies: proxies, observer: obs, began: time.Now(),
		log:     log.With("cluster", name),
		pacer:   newPacer(),
		records: make(map[string]*record),
	}
}

// Name returns the name of the cluster.
func (c *Cluster) Name() string { return c.name }

// SetOptions changes the settings; what was learned stays.
func (c *Cluster) SetOptions(o Options) {
	c.mu.Lock()
	c.options = o
	c.mu.Unlock()
	c.poke()
}

// SetEndpoints replaces the set of endpoints. An endpoint that stays keeps its reports, unless another endpoint has
// taken over its address. Terminating endpoints are kept for the view only.
func (c *Cluster) SetEndpoints(all []discovery.Endpoint) {
	endpoints, leaving := all, []discovery.Endpoint(nil)
	if slices.ContainsFunc(all, terminates) {
		endpoints = slices.DeleteFunc(slices.Clone(all), terminates)
		leaving = slices.DeleteFunc(slices.Clone(all),
			func(e discovery.Endpoint) bool { return !terminates(e) })
	}
	c.mu.Lock()
	records := make(map[string]*record, len(endpoints))
	inOrder := make([]*record, len(endpoints))
	for i, e := range endpoints {
		r := records[e.Address]
		if r == nil {
			r = c.records[e.Address]
		}
		if r == nil || e.ID != "" && r.id != "" && e.ID != r.id {
			r = &record{}
		}
		r.id = cmp.Or(e.ID, r.id)
		records[e.Address], inOrder[i] = r, r
	}
	c.endpoints, c.records, c.inOrder, c.discovered = endpoints, records, inOrder, true
	c.leaving = leaving
	if c.discovery.lastSuccess.IsZero() && len(all) > 0 {
		c.discovery.lastSuccess = time.Now() // with an error
	}
	if len(endpoints) == 0 {
		c.scrapes = source{} // those that come are as new as at a start
	}
	if c.populated.IsZero() && len(endpoints) > 0 {
		c.populated = time.Now()
	}
	c.mu.Unlock()
	c.poke()
}

func terminates(e discovery.Endpoint) bool { return e.Terminating }

// Discovered notes how a refresh of the endpoints went: nil; or *discovery.Omissions, what was left out of the set; or
// why the set stays as it was.
func (c *Cluster) Discovered(at time.Time, err error) {
	omitted, _ := errors.AsType[*discovery.Omissions](err)
	if _, partly := err.(*discovery.Omissions); partly { //nolint:errorlint // wrapped in an error, they are a failure
		err = nil
	}
	c.mu.Lock()
	c.discovery.record(at, err)
	c.omitted = omitted
	c.mu.Unlock()
}

// Scraped records the outcome of one scrape. That of an endpoint that is gone is
// dropped.
func (c *Cluster) Scraped(address string, report weighting.ServerReport, s Scrape) {
	if slots, ok := c.scraped(address, report, s); ok {
		c.proxies.Served(address, report, slots)
	}
}

// scraped keeps the outcome. It returns the slots of the endpoint, 0 where they are not known, and
// whether there is a report.
func (c *Cluster) scraped(address string, report weighting.ServerReport, s Scrape) (slots float64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.records[address]
	if r == nil {
		return 0, false
	}
	c.scrapes.record(s.At, s.Err)
	r.scrape = s
	if s.FirstToken != nil {
		r.firstToken, r.firstTokenAt, r.scrape.FirstToken = s.FirstToken, s.At, nil
	}
	c.poke()
	if s.Err != nil {
		r.failures++
		return 0, false
	}
	r.failures = 0
	if s.WrongCounters != "" {
		r.wrong, r.wrongAt = s.WrongCounters, s.At
	}
	r.server = report
	return c.slots(address), true
}

// slots returns the slots of an endpoint by the latest decision; 0 if they are only assumed, or it has none.
func (c *Cluster) slots(address string) float64 {
	i, found := slices.BinarySearchFunc(c.decision.Endpoints, address,
		func(e weighting.EndpointDecision, address string) int {
			return strings.Compare(e.Address, address)
		})
	if !found {
		return 0
	}
	if from := c.decision.Endpoints[i].SlotsSource; from == weighting.CapacityAssumed ||
		from == weighting.CapacityWork {
		return 0
	}
	return c.decision.Endpoints[i].Slots
}

// Counted records one reading of the in-flight counts: requests by address, as
// of at. An endpoint that is not in it keeps its old count, which ages. A member
// that is not an endpoint is ignored and counted. A reading may be good in part: err
// names what was left out.
func (c *Cluster) Counted(requests map[string]float64, at time.Time, err error) (ignored int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts.record(at, err)
	if requests == nil {
		return 0
	}
	c.counts.lastSuccess = at // in part, where there is an error
	for address, n := range requests {
		if r := c.records[address]; r != nil {
			r.inFlight = weighting.Reading{Value: n, At: at}
		} else {
			ignored++
		}
	}
	c.ignored = ignored
	c.poke()
	return ignored
}

// Poke wakes the loop: proxies reported requests.
func (c *Cluster) Poke() { c.pacer.news((*push.Rhythm).ProxyActive) }

// poke wakes the loop: something has changed.
func (c *Cluster) poke() { c.pacer.news((*push.Rhythm).Poked) }

// Run decides and publishes until ctx is done. A change wakes it at once; after a step it pauses for as
// long as the gate says, so that all changes of that time are decided on together.
func (c *Cluster) Run(ctx context.Context) error {
	gate := push.NewGate(c.current().Push)
	c.stepping.Lock()
	c.gate = gate
	c.stepping.Unlock()
	defer c.publishNeutral(gate)
	timer := time.NewTimer(c.pacer.wait())
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.pacer.sooner:
		case <-timer.C:
			c.pacer.begin()
			c.activity.Begin()
			pause := c.step(gate, time.Now())
			c.activity.End()
			c.pacer.finished(pause)
		}
		timer.Reset(c.pacer.wait())
	}
}

// publishNeutral leaves the proxies with weights that stay safe without updates.
func (c *Cluster) publishNeutral(gate *push.Gate) {
	if v := gate.Neutral(time.Now()); v.Push {
		c.activity.Begin()
		c.publish(v)
		c.activity.End()
	}
}

func (c *Cluster) publish(v push.Verdict) Push {
	p := Push{Reason: v.Reason}
	if p.Version, p.Err = c.publisher.Publish(c.name, v); p.Err != nil {
		p.Reason = ReasonError
	}
	p.Pushed = p.Err == nil
	return p
}

func (c *Cluster) current() Options {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.options
}

// step decides on the latest reports, and publishes the decision if the gate's verdict is to push.
func (c *Cluster) step(gate *push.Gate, now time.Time) push.Pause {
	c.stepping.Lock()
	defer c.stepping.Unlock()
	began := time.Now()
	gate.SetOptions(c.current().Push)
	verdict := gate.Step(now, c.input(now))
	deciding := time.Since(began)
	p := Push{Reason: verdict.Reason}
	if verdict.Push {
		p = c.publish(verdict)
	}
	pause := gate.Finish(now, push.Outcome{Pushed: p.Pushed, Took: deciding})
	before := c.decided(now, verdict.Decision, p, pause)
	c.observer.Stepped(c.name, before, verdict.Decision, p, time.Since(began))
	return pause
}

// input collects what a step decides on. It reuses its memory, so it is valid until the next call.
func (c *Cluster) input(now time.Time) push.Input {
	in := push.Input{Snapshot: c.snapshot(now), Ready: c.becomeReady(now)}
	c.mu.Lock()
	defer c.mu.Unlock()
	in.Subscribers = c.reporting.Subscribers
	return in
}

// snapshot returns the cluster as the collectors report it. It is valid until the next call.
func (c *Cluster) snapshot(now time.Time) weighting.Snapshot {
	counts := c.proxies.Counts(c.name, now, c.counted)
	c.counted = counts.Endpoints
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reported(counts)
	c.seen = slices.Grow(c.seen[:0], len(c.endpoints))[:len(c.endpoints)]
	return c.known(now, c.seen)
}

// known returns the cluster by the reports that it has, and changes nothing but the memory for its endpoints. It is
// called with the lock.
func (c *Cluster) known(now time.Time, endpoints []weighting.Endpoint) weighting.Snapshot {
	s := weighting.Snapshot{
		Endpoints:      endpoints,
		PushDelay:      c.publisher.AckDelay(c.name),
		ScrapeInterval: c.options.ScrapeInterval,
		CountInterval:  c.countInterval(),
	}
	for i, e := range c.endpoints {
		r := c.inOrder[i]
		s.Endpoints[i] = weighting.Endpoint{
			Address: e.Address, ID: e.ID, Zone: e.Zone, Capacity: e.Capacity,
			Server: r.server, Refused: r.scrape.Refused && c.options.Scraped, Proxies: r.proxies.Proxies,
		}
		s.Endpoints[i].InFlight, s.Endpoints[i].Exact = c.inFlight(r, now)
		s.Endpoints[i].Override = c.override(e.Address, now)
		if e.Capacity == 0 {
			s.Endpoints[i].Capacity = c.options.Capacity
		}
	}
	return s
}

// reported stores the current reports of the proxies.
func (c *Cluster) reported(counts ProxyCounts) {
	c.rounds++
	for i := range counts.Endpoints {
		e := &counts.Endpoints[i]
		if r := c.record(i, e.Address); r != nil {
			r.proxies, r.round = *e, c.rounds
		}
	}
	for _, r := range c.inOrder {
		if r.round != c.rounds {
			r.proxies = flight.Counts{}
		}
	}
	counts.Endpoints = nil
	c.reporting = counts
}

// record returns the record of an address, nil if there is none. It tries the endpoint with index i first, which is
// usually the one.
func (c *Cluster) record(i int, address string) *record {
	if i < len(c.endpoints) && c.endpoints[i].Address == address {
		return c.inOrder[i]
	}
	return c.records[address]
}

// countsByProxies reports whether the proxies' own reports are the in-flight counts: always without Redis, otherwise
// only if all of them report, or those that do not are counted as others.
func (c *Cluster) countsByProxies() bool {
	r := &c.reporting
	return !c.options.Counted || r.Reporting > 0 && (r.Reporting == r.Watching || c.options.CountsOthers)
}

func (c *Cluster) inFlight(r *record, now time.Time) (count weighting.Reading, exact bool) {
	if !c.countsByProxies() {
		return r.inFlight, false
	}
	count, others := r.proxies.InFlight, r.others(&c.options, now).Or(0)
	count.Value += others
	return count, r.proxies.Exact && others == 0 // what others count can leak
}

// others returns the requests that are counted besides those of the proxies, unknown where there is no such count, or
// only an old one: the scrapes then show them as traffic that bypasses the proxies.
func (r *record) others(o *Options, now time.Time) api.Number {
	if !o.CountsOthers || !r.inFlight.Known() || r.inFlight.Age(now) > o.Push.Params.Hold {
		return api.Number{}
	}
	return api.Num(r.inFlight.Value)
}

func (c *Cluster) countInterval() time.Duration {
	if c.countsByProxies() {
		return c.reporting.Interval
	}
	return c.options.CountInterval
}

// decided keeps the decision and its outcome. It returns the previous decision.
func (c *Cluster) decided(
	now time.Time, d weighting.Decision, outcome Push, pause push.Pause,
) (before weighting.Decision) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, c.decision = c.decision, d
	p := &c.pushes
	p.err, p.pause = outcome.Err, pause
	if outcome.Pushed {
		p.pushed++
		p.at, p.last = now, outcome
	} else {
		p.suppressed++
	}
	return before
}
