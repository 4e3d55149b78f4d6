package picking

import (
	"math"
	"slices"
	"time"

	"steelyard/weighting"
)

const (
	// Settle is the time from a choice until an update may contain the request, the age of the load not included.
	Settle = 15 * time.Millisecond
	// Lag is the time from a change of the loads until an update has it, half of the interval between two updates
	// included: what other pickers have sent in it is unknown.
	Lag = 5 * time.Millisecond
	// MaxOwn bounds the own choices that are remembered: as many as 200,000 requests a second make within Settle, and
	// 16,000 between two scrapes of 250 ms. The oldest are forgotten first. None is remembered for longer than Stale.
	MaxOwn = 4096
)

// Reason is the reason for a choice, or for none.
type Reason string

// The reasons of a choice.
const (
	ReasonFill   Reason = "fill"   // drawn by the room under the level
	ReasonPrefix Reason = "prefix" // the same, and the endpoint has a part of the prompt in its cache
	// ReasonOverride is the reason where Update.LongestMatch applies but the longest match has too much to do: the
	// least loaded endpoint.
	ReasonOverride Reason = "override"
	// Those of a choice that is left to the weights.
	ReasonNoUpdate Reason = "no_update" // there was no update of the cluster yet
	ReasonStale    Reason = "stale"     // the last update is older than Stale
	ReasonSubset   Reason = "subset"    // no known endpoint is one to which the request may go
)

// A Choice is an endpoint, or, with an empty Address, "by the weights".
type Choice struct {
	Address string
	// Others are the next best, for retries: at most two.
	Others []string
	Reason Reason
}

// own is a choice that the updates may not contain yet.
type own struct {
	at       time.Time
	endpoint int // index in the update
	cost     float64
}

// An estimate is a load at some time.
type estimate struct {
	load float64
	at   time.Time
}

// A Picker holds the loads of one cluster. It is not safe for concurrent use.
type Picker struct {
	update Update
	at     time.Time      // when the update came; zero before the first
	age    time.Duration  // of the loads, the mean
	index  map[string]int // of the endpoints, by address
	owns   []own          // oldest first
	loads  []estimate     // by endpoint, with own choices
	ends   float64        // per second and request that is executed: those that end while own ones begin
	rate   rate           // of all own choices
	lost   time.Time      // the latest own choice that had to make room for newer ones

	vessels []weighting.Vessel // of the choice under way, reused
	indexes []int
	within  []bool // its subset, by endpoint
	rooms   []float64
	costs   []float64 // of the request, by endpoint
}

// Update replaces the loads, at the time when they came. An own choice counts until the load of its endpoint was read
// Settle after it.
func (p *Picker) Update(u Update, now time.Time) {
	before := p.update.Endpoints
	p.update, p.at, p.age = u, now, u.meanAge()
	p.loads = p.loads[:0]
	busy := 1. // more than are executed: where there are hardly any, their number says little
	for i, e := range u.Endpoints {
		p.loads = append(p.loads, estimate{e.Load, now.Add(-min(u.age(i), Stale))})
		busy += e.Speed * min(e.Load, e.Slots)
	}
	p.ends = p.rate.at(now) / busy
	where := p.moved(before)
	kept := p.owns[:0]
	for _, o := range p.owns {
		if where != nil {
			o.endpoint = where[o.endpoint]
		}
		if o.endpoint >= 0 && now.Sub(o.at) < min(u.age(o.endpoint)+Settle, Stale) {
			kept = append(kept, o)
			p.load(o.endpoint, o.at).load += o.cost
		}
	}
	p.owns = kept
}

// moved returns the index of each former endpoint in the current update, -1 for those that left; nil if none moved.
func (p *Picker) moved(before []Endpoint) []int {
	same := func(a, b Endpoint) bool { return a.Address == b.Address }
	if slices.EqualFunc(before, p.update.Endpoints, same) {
		return nil
	}
	p.index = make(map[string]int, len(p.update.Endpoints))
	for i, e := range p.update.Endpoints {
		p.index[e.Address] = i
	}
	where := make([]int, len(before))
	for i, e := range before {
		where[i] = -1
		if j, ok := p.index[e.Address]; ok {
			where[i] = j
		}
	}
	return where
}

// Choose picks an endpoint for a request, and counts it there. random is at least 0 and less than 1.
func (p *Picker) Choose(now time.Time, r Request, random float64) Choice {
	switch {
	case p.at.IsZero() || len(p.update.Endpoints) == 0:
		return Choice{Reason: ReasonNoUpdate}
	case now.Sub(p.at)+p.update.Age > Stale:
		return Choice{Reason: ReasonStale}
	}
	p.candidates(now, r)
	if len(p.indexes) == 0 {
		return Choice{Reason: ReasonSubset}
	}
	whole, least := p.cost(r)
	p.rooms = slices.Grow(p.rooms[:0], len(p.indexes))[:len(p.indexes)]
	weighting.Rooms(p.vessels, p.arrivals(now, poured(whole, least)), p.rooms)
	picked, reason := p.choose(r, random)
	if reason == ReasonFill && p.costs[p.indexes[picked]] < whole {
		reason = ReasonPrefix
	}
	chosen := p.indexes[picked]
	p.count(own{now, chosen, p.costs[chosen]})
	return Choice{Reason: reason, Address: p.update.Endpoints[chosen].Address, Others: p.others(picked)}
}

// load is the load of an endpoint at that time. Own choices count from one reading to the next, so what ends meanwhile
// has to, or the endpoint that was read last would get everything. As many requests end as begin; the part of others is
// made up for by what they send. Where changes come as they happen, nothing ends without an update.
func (p *Picker) load(endpoint int, now time.Time) *estimate {
	l, e := &p.loads[endpoint], &p.update.Endpoints[endpoint]
	if passed := now.Sub(l.at).Seconds(); passed > 0 && e.LoadAge > Lag {
		l.load /= 1 + p.ends*e.Speed*min(1, e.Slots/l.load)*passed
		l.at = now
	}
	return l
}

// candidates collects the endpoints to choose from: of those to which the request may go, the least avoided.
func (p *Picker) candidates(now time.Time, r Request) {
	p.within = p.within[:0]
	if len(r.Subset) > 0 {
		p.within = slices.Grow(p.within, len(p.update.Endpoints))[:len(p.update.Endpoints)]
		clear(p.within)
		for _, address := range r.Subset {
			if i, ok := p.index[address]; ok {
				p.within[i] = true
			}
		}
	}
	p.indexes, p.vessels = p.indexes[:0], p.vessels[:0]
	least := AvoidDrained
	for i, e := range p.update.Endpoints {
		if e.Avoid > least || len(p.within) > 0 && !p.within[i] || r.May != nil && !r.May(e.Address) {
			continue
		}
		if e.Avoid < least {
			least = e.Avoid
			p.indexes, p.vessels = p.indexes[:0], p.vessels[:0]
		}
		v := e.Vessel
		v.Load = p.load(i, now).load
		p.indexes, p.vessels = append(p.indexes, i), append(p.vessels, v)
	}
}

// arrivals returns the requests that the loads do not have, in the unit of the loads: this one, and those that others
// are expected to send from one reading to the next, in twice the mean age, as no picker sees those. Its own count one
// by one, but for those that made room.
func (p *Picker) arrivals(now time.Time, cost float64) float64 {
	unseen := now.Sub(p.at) + max(Lag, p.update.Age+2*p.age)
	counted := min(unseen, now.Sub(p.lost))
	others := p.update.ArrivalRate*unseen.Seconds() - p.rate.at(now)*counted.Seconds()
	return max(cost, others, math.SmallestNonzeroFloat32)
}

// choose returns the index of a candidate: one that has a share of its own, with that chance; else the longest match,
// where that is to decide; and else one with a chance in proportion to its room, by the key if there is one.
func (p *Picker) choose(r Request, random float64) (int, Reason) {
	left := 1.
	for k, i := range p.indexes {
		share := p.update.Endpoints[i].Share
		if random < share {
			return k, ReasonFill
		}
		random, left = random-share, left-share
	}
	if picked, reason, ok := p.longest(r.Cached); ok {
		return picked, reason
	}
	if r.Key == 0 {
		return draw(p.rooms, random/left), ReasonFill
	}
	return p.drawBy(r.Key), ReasonFill
}

// draw returns an index with a chance in proportion to its room.
func draw(rooms []float64, random float64) int {
	var sum float64
	for _, r := range rooms {
		sum += r
	}
	best := 0
	for i, r := range rooms {
		if r > rooms[best] {
			best = i
		}
	}
	left := random * sum
	for i, r := range rooms {
		if left < r {
			return i
		}
		left -= r
	}
	return best // sum is 0, or lost in rounding
}

// others returns the emptiest endpoints besides the picked one.
func (p *Picker) others(picked int) []string {
	const most = 2
	var best []int
	for i := range p.indexes {
		if i == picked {
			continue
		}
		at, _ := slices.BinarySearchFunc(best, p.rooms[i], func(j int, room float64) int {
			if p.rooms[j] >= room {
				return -1
			}
			return 1
		})
		if at < most {
			best = slices.Insert(best, at, i)
			best = best[:min(len(best), most)]
		}
	}
	out := make([]string, len(best))
	for i, j := range best {
		out[i] = p.update.Endpoints[p.indexes[j]].Address
	}
	return out
}

// A rate is a mean over about a second, weighted by age.
type rate struct {
	perSecond float64
	since     time.Time
}

// at returns the rate.
func (r rate) at(now time.Time) float64 {
	return r.perSecond * math.Exp(-max(0, now.Sub(r.since).Seconds()))
}

// add counts an amount.
func (r *rate) add(amount float64, now time.Time) { r.perSecond, r.since = r.at(now)+amount, now }

// count adds an own choice.
func (p *Picker) count(o own) {
	p.rate.add(o.cost, o.at)
	if len(p.owns) == MaxOwn {
		p.lost = p.owns[0].at
		p.owns = p.owns[1:]
	}
	p.owns = append(p.owns, o)
	p.load(o.endpoint, o.at).load += o.cost
}
