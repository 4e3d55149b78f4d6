package queue

import (
	"math"
	"time"
)

// window is the length of each of the two intervals over which the least number of other requests is taken.
const window = time.Second

// place is the state of one endpoint.
type place struct {
	held   int // requests that the queue sent there
	avoid  bool
	atOnce float64 // requests that it executes at once; NaN where unknown
	known  bool    // in the latest update
	// least of the requests in flight that the queue did not send, in the current window and in the one before; NaN
	// where nothing was reported.
	least, before float64
}

// others are the requests in flight that the queue did not send, as far as they are known.
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

// places are the endpoints with the requests that hold places there.
type places struct {
	max     int
	by      map[string]*place
	holders map[ID]string
	open    bool // some endpoint is not to be avoided
	began   time.Time
}

func newPlaces() *places { return &places{by: make(map[string]*place), holders: make(map[ID]string)} }

func (p *places) at(address string) *place {
	at := p.by[address]
	if at == nil {
		at = &place{least: math.NaN(), before: math.NaN()}
		p.by[address] = at
	}
	return at
}

// update takes in the endpoints, and the requests in flight there: NaN where unknown.
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
	p.open = false
	for _, e := range endpoints {
		at := p.at(e.Address)
		at.known, at.avoid, at.atOnce = true, e.Avoid, e.AtOnce
		p.open = p.open || !e.Avoid
		if math.IsNaN(e.InFlight) {
			continue
		}
		if n := max(0, math.Round(e.InFlight)-float64(at.held)); !(at.least <= n) {
			at.least = n
		}
	}
	for address, at := range p.by {
		if !at.known && at.held == 0 {
			delete(p.by, address)
		}
	}
}

// free reports whether an endpoint may get one more request.
func (p *places) free(address string) bool {
	at := p.by[address]
	return at != nil && at.known && (!at.avoid || !p.open) && float64(at.held)+at.others()+1 <= p.limit(at)
}

// limit is the requests that an endpoint may have in flight. Where it is not known, there is none: requests then wait
// at the endpoint, which is how its slots are learned.
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

// release frees the place of a request; false where it has none.
func (p *places) release(id ID) bool {
	address, held := p.holders[id]
	if held {
		delete(p.holders, id)
		p.by[address].held--
	}
	return held
}
