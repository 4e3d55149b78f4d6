package weighting

// Overrides
//
// An operator can drain an endpoint, which then gets no new requests, or pin its share. The others are filled with
// what is left of the arrivals, as if the endpoint were not in the pool: taking the share away after the fill would
// spread it by the shares of one decision, and so send most of it to the emptiest one.
//
// A drain is not in effect while all endpoints are drained, and a pin not while its endpoint stalls, fails or sleeps.

// mostPinned is a bound: the part of the requests that pins may take while there are other endpoints for the rest.
const mostPinned = 0.99

// leastPinned is a bound: the smallest share that can be pinned.
const leastPinned = 1e-6

// overrides are those in effect, and the part of the requests that no operator gave to an endpoint.
func overrides(b *buffer[Override], members []judged) (inEffect []Override, unpinned float64) {
	inEffect = b.take(len(members))
	pinned, drained, others := 0.0, 0, 0
	for i := range members {
		switch m := &members[i]; {
		case m.Override.Drained:
			inEffect[i].Drained = true
			drained++
		case m.Override.Share >= leastPinned && !m.out():
			inEffect[i].Share = min(m.Override.Share, 1)
			pinned += inEffect[i].Share
		default:
			others++
		}
	}
	most := mostPinned
	if others == 0 {
		most = 1
	}
	for i := range inEffect {
		o := &inEffect[i]
		if drained == len(members) {
			*o = Override{}
		}
		if pinned > most || others == 0 && pinned > 0 {
			o.Share *= most / pinned
		}
	}
	return inEffect, 1 - min(pinned, most)
}
