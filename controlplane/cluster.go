package controlplane

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"steelyard/controlplane/admin"
	"steelyard/controlplane/discovery"
	"steelyard/weighting"
)

// Options are the settings of one cluster's loop.
type Options struct {
	Engine  string
	Params  weighting.Params
	Scraped bool // endpoints are scraped
	Counted bool // in-flight counts are read

	// ScrapeInterval and CountInterval are the times between two scrapes of an
	// endpoint and between two readings of the in-flight counts.
	ScrapeInterval, CountInterval time.Duration

	// Pace bounds how often Envoys are pushed; its Floor is also the shortest time
	// between two steps. Capacity is the slots of an endpoint that does not say
	// its own, 0 where they are learned. WarmUp is how long the first push waits
	// for the first full round of reports.
	Pace     weighting.Pace
	Capacity float64
	WarmUp   time.Duration

	Push PushOptions
}

// PushOptions say which decisions are worth a push.
type PushOptions struct {
	// Deadband is the change of shares, as total variation 0..1, under which
	// nothing is pushed. Worth is what a larger change has to gain
	// (weighting.Pacer.Worth): the loop sets it. Heartbeat is the longest time without a push, 0 for no
	// limit. EndpointStaleAfter is how long proxies may use an assignment, 0 for
	// ever.
	Deadband, Worth               float64
	Heartbeat, EndpointStaleAfter time.Duration
}

// A Push says what became of a decision.
type Push struct {
	Pushed  bool
	Reason  string // of the push, or why there was none
	Version string // of the assignment that holds
	Err     error  // why the decision could not be pushed; the assignment before it holds
}

// A Publisher sends decisions to the proxies.
type Publisher interface {
	// Publish hands over the latest decision; it pushes what is worth a push.
	Publish(cluster string, d weighting.Decision, o PushOptions) Push
	// Remove stops serving a cluster.
	Remove(cluster string)
	// Weights returns the weights last pushed, by address.
	Weights(cluster string) map[string]uint32
	// AckDelay is the smoothed time from a push to the proxies' ACKs; 0 unknown.
	AckDelay(cluster string) time.Duration
}

// Proxies are read at every step: what the proxies report of their requests, by
// access log and load reports. Whoever makes a Cluster pokes it when they change.
type Proxies interface {
	// Counts are those of one cluster. Its Endpoints are written over what into holds.
	Counts(cluster string, now time.Time, into []ProxyCount) ProxyCounts
	// Served is told what an endpoint says of its own requests, when it does: by that what
	// one proxy says can be contradicted. It runs as many as slots where it has no gauge of
	// them; 0 slots are not known.
	Served(address string, r weighting.ServerReport, slots float64)
	// Sources shows the state of those reports to people, and Disputes what one proxy says
	// against all others.
	Sources(cluster string, now time.Time) []admin.SourceStatus
	Disputes(cluster string, now time.Time) []admin.Dispute
}

// ProxyCounts are what the proxies of one cluster report.
type ProxyCounts struct {
	Subscribers int    // proxies that are pushed to
	Reporting   int    // of those, the ones that report
	Shared      int    // clusters that one of them subscribes to, this one among them: the most of any
	Busy        int    // the same of clusters with traffic
	Idle        bool   // this one is known to have none
	Source      string // of the counts, as admin names it; empty while nobody reports
	// Interval is the time between two reports of a proxy; 0 where each change is
	// reported when it happens.
	Interval  time.Duration
	Dropped   weighting.Reading // requests that drop_overloads refused, cumulative
	Endpoints []ProxyCount      // those that the proxies know; in any order, best in that of SetEndpoints
}

// A ProxyCount is what the proxies report of one endpoint.
type ProxyCount struct {
	Address  string
	InFlight weighting.Reading
	Exact    bool // cannot leak
	Report   weighting.ProxyReport
	// ResponseBytes is those of an answer and FailedShare, 0 to 1, the failures among the
	// requests that the endpoint answered or failed: moving averages, for people.
	ResponseBytes, FailedShare weighting.Reading
}

// An Observer is told of every step, after it was published: the decision before
// it and its own. It must not block.
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
	wake      chan struct{} // capacity one: something is new
	told      chan struct{} // capacity one: proxies told of requests

	// These are of the loop's goroutine. Of the latest snapshot there is the memory
	// alone, for the next.
	effort  effort
	counted []ProxyCount
	seen    []weighting.Endpoint

	mu         sync.Mutex
	options    Options
	discovered bool      // a set of endpoints has arrived
	populated  time.Time // when the first endpoints arrived; zero before
	endpoints  []discovery.Endpoint
	records    map[string]*record
	inOrder    []*record // of the endpoints, by index
	rounds     int       // of reports by the proxies
	scrapes    source
	counts     source
	discovery  source
	ignored    int         // members of the last count that are no endpoints
	reporting  ProxyCounts // without its endpoints, which are in the records
	ready      bool
	decision   weighting.Decision
	pushes     pushes
}

// record is what was heard of one endpoint.
type record struct {
	server   weighting.ServerReport
	inFlight weighting.Reading // as Redis says
	proxies  ProxyCount
	round    int // that proxies is of
	scrape   Scrape
	failures int // scrapes in a row

	implausible time.Time // when a counter last did; zero: never
}

// A Scrape is the outcome of the latest scrape of an endpoint.
type Scrape struct {
	At      time.Time // zero before the first
	Took    time.Duration
	Err     error
	Refused bool // Err says that nobody listens there
}

// source is the health of one kind of source over the whole cluster.
type source struct {
	tries       int // since the last success
	lastSuccess time.Time
	lastErr     error
}

func (s *source) note(at time.Time, err error) {
	s.lastErr = err
	if err != nil {
		s.tries++
		return
	}
	s.tries, s.lastSuccess = 0, at
}

// pushes is what became of the decisions.
type pushes struct {
	pushed, suppressed uint64
	last               Push
	at                 time.Time
	err                error         // of the latest decision
	interval           time.Duration // from push to push, as the budgets sustain it now
	intervalReason     string        // what sets it
}

// NewCluster makes a cluster without endpoints; Run starts its loop.
func NewCluster(name string, o Options, p Publisher, proxies Proxies, obs Observer, log *slog.Logger) *Cluster {
	return &Cluster{
		name: name, options: o, publisher: p, proxies: proxies, observer: obs,
		log:     log.With("cluster", name),
		wake:    make(chan struct{}, 1),
		told:    make(chan struct{}, 1),
		records: make(map[string]*record),
	}
}

// SetOptions changes the settings; what was learned stays.
func (c *Cluster) SetOptions(o Options) {
	c.mu.Lock()
	c.options = o
	c.mu.Unlock()
	c.poke()
}

// SetEndpoints replaces the set of endpoints. Reports of those that stay are kept.
func (c *Cluster) SetEndpoints(endpoints []discovery.Endpoint) {
	c.mu.Lock()
	records := make(map[string]*record, len(endpoints))
	inOrder := make([]*record, len(endpoints))
	for i, e := range endpoints {
		r := records[e.Address]
		if r == nil {
			r = c.records[e.Address]
		}
		if r == nil {
			r = &record{}
		}
		records[e.Address], inOrder[i] = r, r
	}
	c.endpoints, c.records, c.inOrder, c.discovered = endpoints, records, inOrder, true
	if c.populated.IsZero() && len(endpoints) > 0 {
		c.populated = time.Now()
	}
	c.mu.Unlock()
	c.poke()
}

// Discovered notes how a refresh of the endpoints went: nil, or why the set
// stays as it was.
func (c *Cluster) Discovered(at time.Time, err error) {
	c.mu.Lock()
	c.discovery.note(at, err)
	c.mu.Unlock()
}

// Scraped takes in the outcome of one scrape. One of an endpoint that is gone is
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
	c.scrapes.note(s.At, s.Err)
	r.scrape = s
	c.poke()
	if s.Err != nil {
		r.failures++
		return 0, false
	}
	r.failures = 0
	if report.Implausible > r.server.Implausible {
		r.implausible = s.At
	}
	r.server = report
	return c.slots(address), true
}

// slots are those of an endpoint as of the latest decision, 0 where they are only assumed.
func (c *Cluster) slots(address string) float64 {
	i, found := slices.BinarySearchFunc(c.decision.Endpoints, address, func(e weighting.EndpointDecision, address string) int {
		return strings.Compare(e.Address, address)
	})
	if !found || c.decision.Endpoints[i].SlotsSource == weighting.CapacityAssumed {
		return 0
	}
	return c.decision.Endpoints[i].Slots
}

// Counted takes in one reading of the in-flight counts: requests by address, as
// of at. An endpoint that is not in it keeps its old count, which ages. A member
// that is no endpoint is ignored and counted. A reading may be good in part: err
// says what was left out.
func (c *Cluster) Counted(requests map[string]float64, at time.Time, err error) (ignored int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts.note(at, err)
	if requests == nil {
		return 0
	}
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

// Poke wakes the loop: proxies told of requests. What is already awake stays awake.
func (c *Cluster) Poke() {
	signal(c.told)
	c.poke()
}

// poke wakes the loop: something is new.
func (c *Cluster) poke() { signal(c.wake) }

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default: // known already
	}
}

// Run decides and publishes until ctx is done. A change wakes it at once; after a
// push it rests for as long as the pace says, and after a step without one for a
// moment, so that what is new is decided on together.
func (c *Cluster) Run(ctx context.Context) error {
	const ages = 250 * time.Millisecond // between steps without a report
	law := weighting.NewLaw(c.current().Params)
	var pacer weighting.Pacer
	timer := time.NewTimer(ages)
	defer timer.Stop()
	defer c.letGo()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.wake:
		case <-timer.C:
		}
		select {
		case <-c.told: // the step knows
		default:
		}
		rest, calm := c.step(law, &pacer, time.Now())
		timer.Reset(rest)
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		timer.Reset(calm)
		select {
		case <-ctx.Done():
			return nil
		case <-c.told:
			c.poke()
		case <-timer.C:
		}
		timer.Reset(ages)
	}
}

// letGo leaves the proxies with what does no harm for long: to each endpoint its
// part of the capacity, none flagged and nothing refused. Weights that nobody renews
// would go on sending the requests to who was idle last, and go on shedding.
func (c *Cluster) letGo() {
	c.mu.Lock()
	ready, last, options := c.ready, c.decision, c.options
	c.mu.Unlock()
	var capacity float64
	for _, e := range last.Endpoints {
		capacity += e.Capacity
	}
	if !ready || !(capacity > 0) {
		return
	}
	last.Endpoints = slices.Clone(last.Endpoints) // the publisher may hold the ones before
	for i := range last.Endpoints {
		e := &last.Endpoints[i]
		e.Share, e.Overloaded = e.Capacity/capacity, false
	}
	last.DropFraction = 0
	c.publisher.Publish(c.name, last, options.Push)
}

func (c *Cluster) current() Options {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.options
}

// step decides on the latest of everything and publishes it. It returns how long
// to rest: until the next push may go out, and at least so long that steps take no
// more than a tenth of a core. calm is for how much longer where no proxy tells of a
// request: the first one is not to wait until a heartbeat is paid for.
func (c *Cluster) step(law *weighting.Law, pacer *weighting.Pacer, now time.Time) (rest, calm time.Duration) {
	const idle = 9 // times what a step took
	began := time.Now()
	options := c.current()
	law.SetParams(options.Params)
	snapshot := c.snapshot(now)
	decision := law.Step(now, snapshot)
	cost := c.effort.of(time.Since(began))
	push := Push{Reason: "not ready"}
	if c.becomeReady(now, decision) {
		push = c.publisher.Publish(c.name, decision, c.pushOptions(now, pacer))
	}
	before, afterPush, calm := c.decided(now, decision, push, pacer)
	took := time.Since(began)
	c.observer.Stepped(c.name, before, decision, push, took)
	rest = max(options.Pace.Floor, idle*cost, c.gather())
	if !push.Pushed {
		return rest, 0
	}
	longest := max(rest, afterPush+calm)
	rest = max(rest, afterPush)
	return rest, longest - rest
}

// gather is how long to wait for more readings before the next step.
func (c *Cluster) gather() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.options.Counted || c.reporting.Reporting > 0 {
		return 0
	}
	return weighting.Gather(c.options.ScrapeInterval, len(c.endpoints))
}

// snapshot is the cluster as the collectors see it. It holds until the next.
func (c *Cluster) snapshot(now time.Time) weighting.Snapshot {
	counts := c.proxies.Counts(c.name, now, c.counted)
	c.counted = counts.Endpoints
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reported(counts)
	c.seen = slices.Grow(c.seen[:0], len(c.endpoints))[:len(c.endpoints)]
	s := weighting.Snapshot{
		Endpoints:      c.seen,
		PushDelay:      c.publisher.AckDelay(c.name),
		PushPeriod:     max(c.options.Pace.Floor, c.pushes.interval),
		ScrapeInterval: c.options.ScrapeInterval,
		CountInterval:  c.countInterval(),
	}
	for i, e := range c.endpoints {
		r := c.inOrder[i]
		s.Endpoints[i] = weighting.Endpoint{
			Address: e.Address, Zone: e.Zone, Capacity: e.Capacity,
			Server: r.server, Refused: r.scrape.Refused && c.options.Scraped, Proxies: r.proxies.Report,
		}
		s.Endpoints[i].InFlight, s.Endpoints[i].Exact = c.inFlight(r)
		if e.Capacity == 0 {
			s.Endpoints[i].Capacity = c.options.Capacity
		}
	}
	return s
}

// reported takes in what the proxies say now.
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
			r.proxies = ProxyCount{}
		}
	}
	counts.Endpoints = nil
	c.reporting = counts
}

// record is that of an address, which is likely to be the endpoint of this index. It is nil
// where there is no such endpoint.
func (c *Cluster) record(i int, address string) *record {
	if i < len(c.endpoints) && c.endpoints[i].Address == address {
		return c.inOrder[i]
	}
	return c.records[address]
}

// countsByProxies reports whether the proxies' own reports are the in-flight
// counts: where there is no Redis, and else where all of them report.
func (c *Cluster) countsByProxies() bool {
	return !c.options.Counted || c.reporting.Reporting > 0 && c.reporting.Reporting == c.reporting.Subscribers
}

func (c *Cluster) inFlight(r *record) (count weighting.Reading, exact bool) {
	if c.countsByProxies() {
		return r.proxies.InFlight, r.proxies.Exact
	}
	return r.inFlight, false
}

func (c *Cluster) countInterval() time.Duration {
	if c.countsByProxies() {
		return c.reporting.Interval
	}
	return c.options.CountInterval
}

// part is the cluster's part of the CPU that pushes may cost a proxy, whatever it subscribes
// to: half of that is shared by all clusters, which is enough for their heartbeats, and half
// by those with traffic.
func (p *ProxyCounts) part() float64 {
	part := 0.5 / float64(max(1, p.Shared))
	if !p.Idle {
		part += 0.5 / float64(max(1, p.Busy))
	}
	return part
}

// pace is what bounds the pushes, and what each of them costs by. It is called with the lock.
func (c *Cluster) pace() (weighting.Pace, weighting.Fleet) {
	pace := c.options.Pace
	pace.ProxyCPU *= c.reporting.part()
	pace.Idle = c.reporting.Idle
	return pace, weighting.Fleet{Proxies: c.reporting.Subscribers, Endpoints: len(c.endpoints)}
}

// pushOptions are the configured ones, stretched to what the budgets let through.
func (c *Cluster) pushOptions(now time.Time, pacer *weighting.Pacer) PushOptions {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.options.Push
	pace, fleet := c.pace()
	o.Worth = pacer.Worth(now, pace)
	o.Heartbeat, o.EndpointStaleAfter = pace.Stretch(fleet, o.Heartbeat, o.EndpointStaleAfter)
	return o
}

// decided keeps the decision, the count of pushes and when the next one may be.
// It returns the decision before, and for how long no push may come after this one: for calm of
// it not unless there is traffic again.
func (c *Cluster) decided(now time.Time, d weighting.Decision, push Push, pacer *weighting.Pacer) (before weighting.Decision, rest, calm time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, c.decision = c.decision, d
	p := &c.pushes
	pace, fleet := c.pace()
	p.err = push.Err
	if push.Pushed {
		pacer.Pushed(now, pace, fleet)
		p.pushed++
		p.at, p.last = now, push
	} else {
		p.suppressed++
	}
	p.interval, p.intervalReason = pacer.Interval(now, pace, fleet)
	rest = pacer.Rest(now, pace, fleet)
	if c.reporting.Idle { // with traffic it has another budget of the proxies' CPU
		pace.ProxyCPU = 0
		calm = rest - pace.Sustained(fleet)
	}
	return before, rest - calm, calm
}

// An effort is what a step costs: the least that any of the recent ones took. One that was
// interrupted, as all are now and then on a busy machine, took longer than it cost; resting
// in proportion would make a control plane that is short of CPU slow ten times over.
type effort struct {
	recent [16]time.Duration
	steps  int
}

// of takes note of a step.
func (e *effort) of(took time.Duration) time.Duration {
	e.recent[e.steps%len(e.recent)] = took
	e.steps++
	least := took
	for _, t := range e.recent[:min(e.steps, len(e.recent))] {
		least = min(least, t)
	}
	return least
}
