package weighting

// Overrides
//
// An operator can drain an endpoint, which then gets no new requests, or pin its share. The others are filled with
// what is left of the arrivals, as if the endpoint were not in the pool: taking the share away after the fill would
// spread it by the shares of one decision, and so send most of it to the emptiest one.
//
// A drain is not in effect while all endpoints are drained, and a pin not while its endpoint stalls, fails or sleeps.

// An Override is what an operator decided about an endpoint. The zero Override leaves it to the law.
type Override struct {
	Drained bool    // it gets no new requests
	Share   float64 // from 1e-6 on: its share of the requests
}

// mostPinned is the part of the requests that pins may take as long as there are other endpoints to serve the rest.
const mostPinned = 0.99

// leastPinned is the smallest share that can be pinned.
const leastPinned = 1e-6

// override determines which overrides are in effect.
func (p *pool) override() {
	pinned, drained, others := 0.0, 0, 0
	for i := range p.members {
		switch m := &p.members[i]; {
		case m.Override.Drained:
			m.inEffect.Drained = true
			drained++
		case m.Override.Share >= leastPinned && !m.out():
			m.inEffect.Share = min(m.Override.Share, 1)
			pinned += m.inEffect.Share
		default:
			others++
		}
	}
	most := mostPinned
	if others == 0 {
		most = 1
	}
	for i := range p.members {
		o := &p.members[i].inEffect
		if drained == len(p.members) {
			*o = Override{}
		}
		if pinned > most || others == 0 && pinned > 0 {
			o.Share *= most / pinned
		}
	}
	p.unpinned = 1 - min(pinned, most)
}

// overridden reports whether an operator decided the share.
func (m *member) overridden() bool { return m.inEffect != Override{} }
