package weighting

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// A Law holds what the decisions for one cluster depend on besides the reports: what it has learned, and what it
// decided last. It is not safe for concurrent use: one loop steps it.
type Law struct {
	params    Params
	started   bool
	memory    map[string]*memory
	listed    list
	shedder   shedder
	lift      lift
	panicMode panicMode
	prompts   prompts
	cost      cost     // of the engines; zero while unknown
	byWork    bool     // the unit of load is the work of a mean request
	rate      float64  // requests per second that arrive at all endpoints, as of the last step
	arrived   float64  // requests, at all endpoints
	scratch   []member // of the step before, to be overwritten
}

// A list is the endpoints of a snapshot in the order of their addresses, so that the order of the snapshot cannot
// matter. It is valid until a snapshot lists others.
type list struct {
	addresses []string // in the order of the snapshot
	entries   []entry  // sorted by address
}

type entry struct {
	index  int // in the snapshot
	memory *memory
}

// of reports whether the list is that of these endpoints.
func (l *list) of(endpoints []Endpoint) bool {
	if len(endpoints) != len(l.addresses) {
		return false
	}
	for i := range endpoints {
		if endpoints[i].Address != l.addresses[i] {
			return false
		}
	}
	return true
}

// NewLaw returns a law that has seen nothing.
func NewLaw(p Params) *Law {
	return &Law{params: p, memory: make(map[string]*memory)}
}

// SetParams changes the parameters and keeps what was learned.
func (l *Law) SetParams(p Params) { l.params = p }

// A Snapshot is the cluster as the collectors see it at the time of a step.
type Snapshot struct {
	Endpoints []Endpoint // in any order; one per address

	// PushDelay is the time from a decision to its effect in the proxies, as measured by their ACKs; PushPeriod is the
	// shortest time from one push to the next.
	PushDelay, PushPeriod time.Duration

	// ScrapeInterval and CountInterval are the times between two readings of an endpoint's report and of its in-flight
	// count; 0 where a change is reported when it happens.
	ScrapeInterval, CountInterval time.Duration
}

// Step takes in what is new and decides. The same law, snapshots and times give the same decisions.
func (l *Law) Step(now time.Time, s Snapshot) Decision {
	pool := l.observe(now, s.Endpoints)
	pool.slots()
	pool.pair()
	pool.speeds()
	pool.loads()
	l.work(pool)
	d := Decision{At: now, Endpoints: make([]EndpointDecision, len(pool.members))}
	l.detectOutliers(pool)
	l.flag(pool)
	l.findUnused(pool, &s)
	pool.arrivals(&d, s)
	l.rate = d.ArrivalRate
	pool.share(&d)
	l.shed(pool, &d, s)
	d.Work = l.learned(pool)
	pool.verdicts(&d)
	for i := range l.scratch {
		l.scratch[i].Endpoint = nil // the snapshot is the caller's
	}
	l.started = l.started || len(d.Endpoints) > 0
	if len(l.memory) > len(pool.members) {
		l.forget(now)
	}
	return d
}

// observe updates the memory of each endpoint and sets up the pool, sorted by address. Entries of one address are
// united.
func (l *Law) observe(now time.Time, endpoints []Endpoint) *pool {
	if !l.listed.of(endpoints) {
		l.list(now, endpoints)
	}
	members := l.scratch[:0]
	for _, e := range l.listed.entries {
		if n := len(members); n > 0 && members[n-1].memory == e.memory {
			members[n-1].Endpoint = unite(members[n-1].Endpoint, &endpoints[e.index], now)
			continue
		}
		members = append(members, member{Endpoint: &endpoints[e.index], memory: e.memory})
	}
	if len(members) < len(l.scratch) {
		clear(l.scratch[len(members):])
	}
	l.scratch = members
	p := &pool{params: &l.params, now: now, members: members}
	for i := range members {
		members[i].observe(members[i].Endpoint, now, l.params.LeastLatency.Alpha)
	}
	p.markGone()
	return p
}

// list makes the list of the endpoints, with a memory for each address.
func (l *Law) list(now time.Time, endpoints []Endpoint) {
	l.listed = list{addresses: make([]string, len(endpoints)), entries: make([]entry, len(endpoints))}
	for i := range endpoints {
		address := endpoints[i].Address
		m := l.memory[address]
		if m == nil {
			m = &memory{firstSeen: now, established: !l.started}
			l.memory[address] = m
		}
		l.listed.addresses[i], l.listed.entries[i] = address, entry{i, m}
	}
	slices.SortFunc(l.listed.entries, func(a, b entry) int {
		return cmp.Compare(endpoints[a.index].Address, endpoints[b.index].Address)
	})
}

// markGone marks the members whose server is gone. A refused connection is no late report: the process that reported is
// gone, and its last report with it. Its fields are neutral at once, an empty in-flight count does not make it idle,
// and no requests are expected to arrive there. While more than half of the pool refuses, the fault is more likely on
// the way there, and no member is gone.
func (p *pool) markGone() {
	refused := 0
	for i := range p.members {
		if p.members[i].Refused {
			refused++
		}
	}
	for i := range p.members {
		p.members[i].gone = p.members[i].Refused && 2*refused <= len(p.members)
	}
}

// verdicts writes the working of every member next to its share.
func (p *pool) verdicts(d *Decision) {
	inputs := make([][4]Input, len(p.members))
	var works []EndpointWork
	if p.byWork {
		works = make([]EndpointWork, len(p.members))
	}
	for i := range p.members {
		m := &p.members[i]
		inputs[i] = m.inputs()
		m.share = d.Endpoints[i].Share
		d.Endpoints[i] = m.decision(p, m.share)
		d.Endpoints[i].Inputs = inputs[i][:]
		if p.byWork {
			works[i] = m.work(p)
			d.Endpoints[i].Work = &works[i]
		}
	}
}

// forget drops endpoints that have been gone for longer than any report is usable. One that only blinked out of its
// discovery keeps what was learned.
func (l *Law) forget(now time.Time) {
	for address, m := range l.memory {
		if now.Sub(m.lastSeen) > l.params.Decay {
			delete(l.memory, address)
		}
	}
}

// pool is one step in progress.
type pool struct {
	params  *Params
	now     time.Time
	members []member

	queues, executes bool // some member reports its queue, and what it executes
	someUnflagged    bool // some member has no flag, so that flagged ones get nothing

	// Medians over the members with usable fields; NaN where there is none.
	scraped, inFlight float64 // level of each signal
	load              float64 // level of the loads made of them
	age               float64 // of the loads, seconds

	byWork      bool    // the unit of load is the work of a mean request
	counted     bool    // then, the proxies report the requests that begin
	requestWork float64 // then, that work in prompt tokens
	prefillRate float64 // then, prompt tokens that a typical engine computes in a second; NaN unknown

	level float64       // water level
	held  time.Duration // a share that was decided for so long is in force
}

// member is one endpoint in a step.
type member struct {
	*Endpoint
	*memory

	slotCount   float64
	slotsSource CapacitySource
	speed       float64
	ramp        float64
	blackout    bool
	gone        bool // connections to it are refused

	seen       fields
	load       float64 // requests
	loadSource LoadSource
	loadState  FieldState
	loadAge    time.Duration
	workload   float64 // work, in mean requests; of a pool whose unit is the request, load
	offset     float64 // unproxied, as used

	queued  float64 // requests waiting per slot; NaN unknown
	flagged bool
	lifted  bool // its flag, for now
	floored bool // above the water level
	slow    bool // above the threshold of latency
	came    arrived
	unused  bool // the proxies send nothing there, whatever its share
}

// holding is the member as a vessel with that load.
func (m *member) holding(load float64) vessel {
	return vessel{load: load, slots: m.slotCount * m.ramp, speed: m.speed}
}

// arrivals measures the horizon and the requests to expect within it.
func (p *pool) arrivals(d *Decision, s Snapshot) {
	d.Horizon = p.horizon(s)
	d.ArrivalRate, d.ArrivalRateSource = p.arrivalRate()
	d.Arrivals = d.ArrivalRate * d.Horizon.Seconds()
	if d.ArrivalRateSource == RateUnknown {
		d.Arrivals = float64(len(p.members))
	}
	d.Arrivals = min(max(1, d.Arrivals), largestSum)
}

// horizon is how old the loads will be when their successors replace them. They are read at different times, so half of
// the interval between two readings is, on average, still to pass; then the next decision is pushed. Where changes are
// reported as they happen the interval is 0.
func (p *pool) horizon(s Snapshot) time.Duration {
	const longest = time.Hour
	age := time.Duration(0)
	if !math.IsNaN(p.age) {
		age = time.Duration(p.age * float64(time.Second))
	}
	limited := func(d time.Duration) time.Duration { return min(max(0, d), longest) }
	switch {
	case p.byWork && p.counted:
		return limited(s.CountInterval)/2 + limited(s.PushDelay) + limited(s.PushPeriod)
	case p.byWork:
		return 2*limited(s.ScrapeInterval) + limited(s.PushDelay) + limited(s.PushPeriod)
	}
	return limited(age) + limited(p.interval(s))/2 + limited(s.PushDelay) + limited(s.PushPeriod)
}

// interval is the time between two readings of the signal that most loads are made of.
func (p *pool) interval(s Snapshot) time.Duration {
	counted := 0
	for i := range p.members {
		if from := p.members[i].loadSource; from == LoadInFlight || from == LoadFused {
			counted++
		}
	}
	if 2*counted > len(p.members) {
		return s.CountInterval
	}
	return s.ScrapeInterval
}

// arrivalRate sums the members' rates. A member without a rate counts as their mean, and one that is gone gets nothing.
func (p *pool) arrivalRate() (perSecond float64, source RateSource) {
	var sum float64
	var n int
	source = RateUnknown
	for i := range p.members {
		if p.members[i].gone {
			n++
			continue
		}
		rate, from := p.members[i].arrivalRate(p)
		if from == RateUnknown {
			continue
		}
		sum += rate
		n++
		if rateRank(from) > rateRank(source) {
			source = from
		}
	}
	return max(0, sum) / float64(max(1, n)) * float64(len(p.members)), source
}

// rateRank orders the sources of a rate by how complete they are.
func rateRank(s RateSource) int {
	return slices.Index([]RateSource{RateUnknown, RateIncrements, RateIssued, RateCompletions}, s)
}

// share fills the arrivals in and writes the shares.
func (p *pool) share(d *Decision) {
	d.MedianLoad = p.load
	if len(p.members) == 0 {
		return
	}
	vessels := p.vessels()
	d.vessels = vessels
	p.level = fill(vessels, d.Arrivals)
	d.WaterLevel = p.level
	for i, share := range shares(vessels, p.level, p.params.Floor) {
		d.Endpoints[i].Share = share
		p.members[i].floored = vessels[i].level() >= p.level
	}
	p.setShares(d)
	for i := range p.members {
		m := &p.members[i]
		m.use.note(d.Endpoints[i].Share, m.flagged, p)
	}
}
