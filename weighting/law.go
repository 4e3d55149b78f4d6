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

// scratch is memory of the step before, to be overwritten: what each stage returned.
type scratch struct {
	values     buffer[float64]
	members    buffer[member]
	machines   buffer[machine]
	loads      buffer[laden]
	weighed    buffer[weighed]
	patients   buffer[health.Endpoint]
	judged     buffer[judged]
	inEffect   buffer[Override]
	candidates buffer[candidate]
	lagged     buffer[lag.Endpoint]
	filled     buffer[filled]
	used       buffer[shed.Endpoint]
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

// Step takes in what is new and decides. The same law, snapshots and times give the same decisions. now is of a
// monotonic clock: it does not go back.
//
// Each stage returns what it determined of every endpoint, on top of what the stages before it did, and changes nothing
// of that. What a stage remembers for the next step it alone writes.
func (l *Law) Step(now time.Time, s Snapshot) Decision {
	old := &l.scratch // to be overwritten
	pool := l.observe(now, &s)
	machines, pace := pool.machines(&old.machines)
	loads := pool.loads(&old.loads, machines)
	weighed, unit := l.weigh(pool, &old.weighed, loads, pace)
	judged := l.judge(pool, &old.judged, weighed, &s)
	inEffect, unpinned := overrides(&old.inEffect, judged)
	candidates, unflagged := pool.candidates(&old.candidates, judged, inEffect, &unit)
	forecast := l.forecast(pool, weighed, &unit, loads.age, &s)
	filling := pool.fill(&old.filled, candidates, &forecast, unpinned)
	wait, drop := l.shed(pool, filling.members, &forecast, &unit, unflagged, &s)

	d := pool.decide(&filling, &forecast, &unit)
	d.ExpectedWait, d.DropFraction, d.Work = wait, drop, l.learned(pool, &unit)
	l.remember(pool, filling.members)
	return d
}

// observe takes in what each endpoint reports, and returns them sorted by address. Entries of one address and ID are
// united.
func (l *Law) observe(now time.Time, s *Snapshot) *pool {
	if !l.listed.of(s.Endpoints) {
		l.list(now, s.Endpoints)
	}
	members := l.scratch.members.take(len(s.Endpoints))[:0]
	for _, e := range l.listed.entries {
		if n := len(members); n > 0 && members[n-1].memory == e.memory {
			members[n-1].Endpoint = unite(members[n-1].Endpoint, &s.Endpoints[e.index], now)
			continue
		}
		members = append(members, member{Endpoint: &s.Endpoints[e.index], memory: e.memory})
	}
	p := &pool{params: &l.params, now: now, members: members, values: &l.scratch.values}
	for i := range members {
		m := &members[i]
		m.observe(m.Endpoint, now, l.params.LeastLatency.Alpha)
		if !s.Held {
			m.inForce = m.decided
		}
		m.came = m.arrived(p)
	}
	p.markGone()
	return p
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
	mostly := most(p.members, func(m *member) bool { return m.Refused })
	for i := range p.members {
		p.members[i].gone = p.members[i].Refused && !mostly
	}
}

// decide is the decision with its working.
func (p *pool) decide(f *filling, c *forecast, u *unit) Decision {
	d := Decision{
		At: p.now, Endpoints: make([]EndpointDecision, len(f.members)),
		ArrivalRate: c.perSecond, ArrivalRateSource: c.source, Horizon: c.horizon, Arrivals: c.arrivals,
		WaterLevel: f.level, MedianLoad: u.level, vessels: f.vessels, byLatency: f.byLatency,
	}
	inputs := make([][4]Input, len(f.members))
	var works []EndpointWork
	if u.byWork {
		works = make([]EndpointWork, len(f.members))
	}
	for i := range f.members {
		m := &f.members[i]
		inputs[i] = m.inputs()
		d.Endpoints[i] = m.decision(p, u)
		d.Endpoints[i].Inputs = inputs[i][:]
		if u.byWork {
			works[i] = m.work(u)
			d.Endpoints[i].Work = &works[i]
		}
	}
	return d
}

// remember keeps what the next step needs of this decision, and nothing of the snapshot, which is the caller's.
func (l *Law) remember(p *pool, members []filled) {
	for i := range members {
		m := &members[i]
		m.decided = force{m.share, m.flagged}
		m.slots = m.slotCount
		if m.slotsSource == CapacityAssumed || m.slotsSource == CapacityWork {
			m.slots = 0 // no bound on what it executes
		}
		m.Endpoint = nil
	}
	l.started = l.started || len(members) > 0
	if len(l.memory) > len(members) {
		l.forget(p.now)
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
