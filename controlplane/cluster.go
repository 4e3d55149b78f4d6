package controlplane

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"steelyard/controlplane/discovery"
	"steelyard/weighting"
)

// Options are the settings of one cluster's loop.
type Options struct {
	Engine  string
	Params  weighting.Params
	Scraped bool // endpoints are scraped
	Counted bool // in-flight counts are read

	// MinInterval is the shortest time between two steps, and so between two
	// pushes. Capacity is the slots of an endpoint that does not say its own,
	// 0 where they are learned. WarmUp is how long the first push waits for the
	// first full round of reports.
	MinInterval time.Duration
	Capacity    float64
	WarmUp      time.Duration

	Push PushOptions
}

// PushOptions say which decisions are worth a push.
type PushOptions struct {
	// Deadband is the change of shares, as total variation 0..1, under which
	// nothing is pushed. Heartbeat is the longest time without a push, 0 for no
	// limit. EndpointStaleAfter is how long proxies may use an assignment, 0 for
	// ever.
	Deadband                      float64
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
	observer  Observer
	log       *slog.Logger
	wake      chan struct{} // capacity one: something is new

	mu         sync.Mutex
	options    Options
	discovered bool      // a set of endpoints has arrived
	populated  time.Time // when the first endpoints arrived; zero before
	endpoints  []discovery.Endpoint
	records    map[string]*record
	scrapes    source
	counts     source
	discovery  source
	ignored    int // members of the last count that are no endpoints
	ready      bool
	decision   weighting.Decision
	pushes     pushes
}

// record is what was heard of one endpoint.
type record struct {
	server   weighting.ServerReport
	inFlight weighting.Reading
	scrape   Scrape
	failures int // scrapes in a row
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
	period             time.Duration // smoothed time between two pushes; 0 before the second
}

// NewCluster makes a cluster without endpoints; Run starts its loop.
func NewCluster(name string, o Options, p Publisher, obs Observer, log *slog.Logger) *Cluster {
	return &Cluster{
		name: name, options: o, publisher: p, observer: obs,
		log:     log.With("cluster", name),
		wake:    make(chan struct{}, 1),
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
	for _, e := range endpoints {
		if r := c.records[e.Address]; r != nil {
			records[e.Address] = r
		} else {
			records[e.Address] = &record{}
		}
	}
	c.endpoints, c.records, c.discovered = endpoints, records, true
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
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.records[address]
	if r == nil {
		return
	}
	c.scrapes.note(s.At, s.Err)
	r.scrape = s
	c.poke()
	if s.Err != nil {
		r.failures++
		return
	}
	r.failures = 0
	r.server = report
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

// poke wakes the loop. What is already awake stays awake.
func (c *Cluster) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Run decides and publishes until ctx is done.
func (c *Cluster) Run(ctx context.Context) error {
	const ages = 250 * time.Millisecond // between steps without a report
	law := weighting.NewLaw(c.current().Params)
	timer := time.NewTimer(ages)
	defer timer.Stop()
	defer c.liftDrop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.wake:
		case <-timer.C:
		}
		c.step(law, time.Now())
		timer.Reset(c.current().MinInterval)
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		timer.Reset(ages)
	}
}

// liftDrop ends the shedding that nobody controls any more.
func (c *Cluster) liftDrop() {
	c.mu.Lock()
	ready, last, options := c.ready, c.decision, c.options
	c.mu.Unlock()
	if ready && last.DropFraction > 0 {
		last.DropFraction = 0
		c.publisher.Publish(c.name, last, options.Push)
	}
}

func (c *Cluster) current() Options {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.options
}

// step decides on the latest of everything and publishes it.
func (c *Cluster) step(law *weighting.Law, now time.Time) {
	began := time.Now()
	options := c.current()
	law.SetParams(options.Params)
	decision := law.Step(now, c.snapshot())
	push := Push{Reason: "not ready"}
	if c.becomeReady(now, decision) {
		push = c.publisher.Publish(c.name, decision, options.Push)
	}
	before := c.decided(now, decision, push)
	c.observer.Stepped(c.name, before, decision, push, time.Since(began))
}

// snapshot is the cluster as the collectors see it.
func (c *Cluster) snapshot() weighting.Snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := weighting.Snapshot{
		Endpoints:  make([]weighting.Endpoint, len(c.endpoints)),
		PushDelay:  c.publisher.AckDelay(c.name),
		PushPeriod: max(c.options.MinInterval, c.pushes.period),
	}
	for i, e := range c.endpoints {
		r := c.records[e.Address]
		s.Endpoints[i] = weighting.Endpoint{
			Address: e.Address, Zone: e.Zone, Capacity: e.Capacity,
			Server: r.server, Refused: r.scrape.Refused, InFlight: r.inFlight,
		}
		if e.Capacity == 0 {
			s.Endpoints[i].Capacity = c.options.Capacity
		}
	}
	return s
}

// decided keeps the decision, the count of pushes and the time between them. A
// pool at rest is pushed by heartbeats only; that is no measure of how soon a
// change of load would be pushed, so the period is at most a second. It returns
// the decision before.
func (c *Cluster) decided(now time.Time, d weighting.Decision, push Push) (before weighting.Decision) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, c.decision = c.decision, d
	p := &c.pushes
	p.err = push.Err
	if !push.Pushed {
		p.suppressed++
		return before
	}
	if gap := min(now.Sub(p.at), time.Second); p.pushed > 0 {
		if p.period == 0 {
			p.period = gap
		}
		p.period += (gap - p.period) / 8
	}
	p.pushed++
	p.at, p.last = now, push
	return before
}
