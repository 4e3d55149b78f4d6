package queue

import (
	"math"
	"time"

	"steelyard/picking"
)

// window is the length of the intervals over which the least number of other requests is taken: the current one and the
// one before.
const window = time.Second

// Grace is how long the places of a lost stream stay taken: its requests may continue, and its proxy may name them
// again.
const Grace = time.Second

// place is the state of one endpoint.
type place struct {
	held   int // requests that the queue sent there, with the lost ones
	lost   int // of those, the requests of streams that broke
	avoid  picking.Avoidance
	atOnce float64 // requests that it executes at once; NaN where unknown
	known  bool    // in the latest update
	fixed  bool    // its share does not depend on its load
	// least is the least number of requests in flight that the queue did not send, in the current window and in the one
	// before; NaN if nothing was reported.
	least, before float64
	latest        float64 // requests in flight there by the latest report; NaN where unknown
}

// trustLatest counts what the latest report has in flight, where the requests that the queue sent may not be known.
func (p *place) trustLatest() {
	p.least = max(0, p.latest-float64(p.held))
	p.before = p.least
}

// A lostPlace is held by a request of a stream that broke.
type lostPlace struct {
	address string
	until   time.Time
}

// others returns the requests in flight that the queue did not send, as far as they are known.
func (p *place) others() float64 {
	switch {
	case math.IsNaN(p.least) && math.IsNaN(p.before):
		return 0
	case math.IsNaN(p.least):
		return p.before
	case math.IsNaN(p.before):
		return p.least
	}
	return min(p.least, p.before)
}

// places holds the endpoints, with the requests that hold places there.
type places struct {
	max     int
	by      map[string]*place
	holders map[ID]string
	lost    []lostPlace       // by until
	avoid   picking.Avoidance // the least of the endpoints
	began   time.Time
}

func newPlaces() *places { return &places{by: make(map[string]*place), holders: make(map[ID]string)} }

// forget frees all places.
func (p *places) forget() {
	for _, at := range p.by {
		at.held, at.lost = 0, 0
	}
	clear(p.holders)
	p.lost = nil
}

func (p *places) at(address string) *place {
	at := p.by[address]
	if at == nil {
		at = &place{least: math.NaN(), before: math.NaN(), latest: math.NaN()}
		p.by[address] = at
	}
	return at
}

// update replaces the endpoints and their requests in flight: NaN where unknown.
func (p *places) update(now time.Time, endpoints []Endpoint) {
	turned := now.Sub(p.began) >= window
	if turned {
		p.began = now
	}
	for _, at := range p.by {
		at.known = false
		if turned {
			at.before, at.least = at.least, math.NaN()
		}
	}
	p.avoid = picking.AvoidDrained
	for _, e := range endpoints {
		at := p.at(e.Address)
		at.known, at.avoid, at.atOnce, at.latest = true, e.Avoid, e.AtOnce, math.Round(e.InFlight)
		at.fixed = e.Share > 0
		p.avoid = min(p.avoid, e.Avoid)
		if math.IsNaN(at.latest) {
			continue
		}
		if n := max(0, at.latest-float64(at.held)); !(at.least <= n) {
			at.least = n
		}
	}
	for address, at := range p.by {
		if !at.known && at.held == 0 {
			delete(p.by, address)
		}
	}
}

// free reports whether an endpoint may get one more request. One with a fixed share may always have one: it may be
// tried because its reports claim requests that are not there.
func (p *places) free(address string) bool {
	at := p.by[address]
	return at != nil && at.known && at.avoid == p.avoid &&
		(at.fixed && at.held == 0 || float64(at.held)+at.others()+1 <= p.limit(at))
}

// limit returns how many requests an endpoint may have in flight. If that is unknown, there is no limit: requests then
// wait at the endpoint, which is how its slots are learned.
func (p *places) limit(at *place) float64 {
	switch {
	case p.max > 0:
		return float64(p.max)
	case math.IsNaN(at.atOnce):
		return math.Inf(1)
	}
	return max(1, at.atOnce)
}

func (p *places) take(id ID, address string) {
	p.release(id)
	p.at(address).held++
	p.holders[id] = address
}

// release frees the place of a request; false if it has none.
func (p *places) release(id ID) bool {
	address, held := p.holders[id]
	if held {
		delete(p.holders, id)
		p.by[address].held--
	}
	return held
}

// lose keeps the place of a request of a broken stream taken for a while.
func (p *places) lose(id ID, now time.Time) {
	address := p.holders[id]
	delete(p.holders, id)
	p.by[address].lost++
	p.lost = append(p.lost, lostPlace{address, now.Add(Grace)})
}

// find frees one lost place at an endpoint; nil if there is none. A request that a new stream names is taken for the
// one that held it.
func (p *places) find(address string) *place {
	at := p.by[address]
	if at == nil || at.lost == 0 {
		return nil
	}
	at.lost--
	at.held--
	return at
}

// giveUp frees the lost places whose time is over. Requests that still run there are in the latest report.
func (p *places) giveUp(now time.Time) {
	for len(p.lost) > 0 && !p.lost[0].until.After(now) {
		if at := p.find(p.lost[0].address); at != nil {
			at.trustLatest()
		}
		p.lost = p.lost[1:]
	}
}

// trustLatest counts what the latest reports have in flight.
func (p *places) trustLatest() {
	for _, at := range p.by {
		at.trustLatest()
	}
}

// An Endpoint is an endpoint as an update describes it.
type Endpoint struct {
	picking.Endpoint
	InFlight float64 // requests in flight there, of all proxies; NaN where unknown
	AtOnce   float64 // requests that it executes at once; NaN where unknown
}
