package weighting

import (
	"cmp"
	"slices"
	"time"

	"steelyard/weighting/health"
	"steelyard/weighting/lag"
	"steelyard/weighting/shed"
)

// A Law holds what the decisions for one cluster depend on besides the reports: what it has learned, and what it
// decided last. It is not safe for concurrent use: one loop steps it.
type Law struct {
	params  Params
	started bool
	memory  map[string]*memory
	listed  list
	shedder shed.Controller
	healths health.Pool
	prompts prompts
	cost    cost          // of the engines; zero while unknown
	byWork  bool          // the unit of load is the work of a mean request
	rate    float64       // requests per second that arrive at all endpoints, as of the last step
	counted bool          // that is by counters: moves of the gauges miss what comes and goes between two readings
	arrived float64       // requests, at all endpoints
	lag     lag.Estimator // of the reports
	bursts  bursts        // of the arrivals
	scratch scratch
}

// scratch is memory of the step before, to be overwritten.
type scratch struct {
	members  []member
	values   []float64
	patients []health.Endpoint
	lagged   []lag.Endpoint
	used     []shed.Endpoint
}

// A list is the endpoints of a snapshot in the order of their addresses, so that the order of the snapshot cannot
// matter. It is valid until a snapshot lists others.
type list struct {
	addresses []string // in the order of the snapshot
	ids       []string // in the same order
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
		if endpoints[i].Address != l.addresses[i] || endpoints[i].ID != l.ids[i] {
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

	// Held means that the decision of the step before is not in force: the one before it still is.
	Held bool
}

// Step takes in what is new and decides. The same law, snapshots and times give the same decisions.
func (l *Law) Step(now time.Time, s Snapshot) Decision {
	pool := l.observe(now, s.Endpoints)
	pool.inForce(s.Held)
	pool.slots()
	pool.pair()
	pool.speeds()
	pool.loads()
	l.work(pool)
	d := Decision{At: now, Endpoints: make([]EndpointDecision, len(pool.members))}
	l.came(pool)
	l.health(pool, &s)
	pool.override()
	pool.flag()
	l.arrivals(pool, &d, s)
	pool.share(&d)
	l.shed(pool, &d, s)
	d.Work = l.learned(pool)
	pool.verdicts(&d)
	for i := range pool.members {
		pool.members[i].Endpoint = nil // the snapshot is the caller's
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
	members := l.scratch.members[:0]
	for _, e := range l.listed.entries {
		if n := len(members); n > 0 && members[n-1].memory == e.memory {
			members[n-1].Endpoint = unite(members[n-1].Endpoint, &endpoints[e.index], now)
			continue
		}
		members = append(members, member{Endpoint: &endpoints[e.index], memory: e.memory})
	}
	if len(members) < len(l.scratch.members) {
		clear(l.scratch.members[len(members):])
	}
	l.scratch.members = members
	p := &pool{params: &l.params, now: now, members: members, scratch: &l.scratch}
	for i := range members {
		members[i].observe(members[i].Endpoint, now, l.params.LeastLatency.Alpha)
	}
	p.markGone()
	return p
}

// inForce puts what was decided in the step before into force, unless it was held back.
func (p *pool) inForce(held bool) {
	for i := range p.members {
		if m := &p.members[i]; !held {
			m.share, m.shareFlagged = m.decided, m.decidedFlag
		}
	}
}

// list makes the list of the endpoints, with a memory for each address.
func (l *Law) list(now time.Time, endpoints []Endpoint) {
	n := len(endpoints)
	l.listed = list{addresses: make([]string, n), ids: make([]string, n), entries: make([]entry, n)}
	for i := range endpoints {
		address, id := endpoints[i].Address, endpoints[i].ID
		m := l.memory[address]
		if m == nil || id != "" && m.id != "" && id != m.id {
			m = &memory{identity: identity{firstSeen: now, established: !l.started}}
			l.memory[address] = m
		}
		m.id = cmp.Or(id, m.id)
		l.listed.addresses[i], l.listed.ids[i], l.listed.entries[i] = address, id, entry{i, m}
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
	most := p.most(func(m *member) bool { return m.Refused })
	for i := range p.members {
		p.members[i].gone = p.members[i].Refused && !most
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
		m.decided, m.decidedFlag = d.Endpoints[i].Share, m.flagged
		d.Endpoints[i] = m.decision(p, m.decided)
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
	scratch *scratch

	queues, executes bool    // some member reports its queue, and what it executes
	load             float64 // median level of the loads; NaN unknown
	age              float64 // median of their ages, seconds; NaN unknown
	unit
	counted bool // where work is the unit, the proxies report the requests that begin

	unflagged int           // members without a flag
	unpinned  float64       // part of the requests that no operator gave to an endpoint
	unseen    time.Duration // from a request's beginning until a decision answers it
	byLatency bool          // the fill is that of least latency
}

// A unit is what loads are counted in: requests, or the work of a mean request.
type unit struct {
	pace        float64 // completions that are typical per busy slot-second; NaN unknown
	byWork      bool
	requestWork float64 // then, that work in prompt tokens
	prefillRate float64 // then, prompt tokens that a typical engine computes in a second; NaN unknown
}

// member is one endpoint in a step.
type member struct {
	*Endpoint
	*memory

	room
	seen fields
	loaded
	queued float64 // requests waiting per slot; NaN unknown
	came   arrived
	verdict
}

// A room is how much an endpoint can do at once.
type room struct {
	slotCount   float64
	slotsSource CapacitySource
	speed       float64
	ramp        float64 // part of that which is trusted
	blackout    bool    // so new that its reports do not count
	gone        bool    // connections to it are refused
}

// loaded is the load of an endpoint.
type loaded struct {
	load       float64 // requests
	loadSource LoadSource
	loadState  FieldState
	loadAge    time.Duration
	workload   float64 // work, in mean requests; of a pool whose unit is the request, load
	offset     float64 // unproxied, as used
}

// A verdict is what is decided of an endpoint besides what it gets by the fill.
type verdict struct {
	flagged  bool
	lifted   bool     // its flag, for a trial
	slow     bool     // above the threshold of latency
	floored  bool     // above the water level
	inEffect Override // by an operator
	reserved float64  // share of what is left by those, whatever the fill
}

// holding is the member as a vessel with that load.
func (m *member) holding(load float64) Vessel {
	return Vessel{Load: load, Slots: m.slotCount * m.ramp, Speed: m.speed}
}

// share fills the arrivals in and writes the shares.
func (p *pool) share(d *Decision) {
	d.MedianLoad = p.load
	if len(p.members) == 0 {
		return
	}
	vessels := p.vessels()
	d.vessels, d.byLatency = vessels, p.byLatency
	d.WaterLevel = fill(vessels, d.Arrivals*p.unpinned)
	for i, share := range shares(vessels, d.WaterLevel, p.params.Floor) {
		d.Endpoints[i].Share = share
		p.members[i].floored = vessels[i].level() >= d.WaterLevel
	}
	p.reserve(d)
}
