package controlplane

import (
	"cmp"
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

func (c *Cluster) setOverrides(overrides map[string]api.Override) {
	c.mu.Lock()
	some := len(c.overrides)+len(overrides) > 0
	c.overrides = overrides
	c.mu.Unlock()
	if some {
		c.poke()
	}
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

func (c *Cluster) current() Options {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.options
}

// countsByProxies reports whether the proxies' own reports are the in-flight counts: always without Redis, otherwise
// only if all of them report, or those that do not are counted as others.
func (c *Cluster) countsByProxies() bool {
	r := &c.reporting
	return !c.options.Counted || r.Reporting > 0 && (r.Reporting == r.Watching || c.options.CountsOthers)
}
