package weighting

// Pairing the two signals of an endpoint
//
// Scrapes and in-flight counts are paired (pair): the difference is smoothed with a time constant of 2 s. A difference
// that jumps by more than the slots is no noise and counts at once. A count that falls by dozens between two readings
// was rewritten, and the scrape is used by itself until the two are paired again.
//
// A server that exports no gauge of running requests (Triton) is taken to run a full set of slots while any request
// waits. Otherwise its mean number executing over about a minute, from the differences of its counter of busy time,
// stands in. That mean cannot correct another count: while no request waits, an in-flight count is corrected only as
// far as is needed to lie between none and a full set. What runs on average, by the counter of busy time, is no more
// than the slots, plus three requests in each that ran before.

import (
	"math"
	"time"
)

// A pairing is how an endpoint's two signals compare.
type pairing struct {
	recent    [64]Reading // in-flight counts, to pair with scrapes; a ring, see remember
	next      int
	paired    time.Time // when the scrape was taken that was last paired
	unproxied smoothed  // scraped − in-flight, requests
}

// forget forgets the difference.
func (p *pairing) forget() { p.unproxied, p.paired = smoothed{}, time.Time{} }

// remember keeps the newest count, and of those before it one in 10 ms. A scrape is paired with the count of its own
// moment, which is as old as an exchange may take, and counts can come with every step.
func (p *pairing) remember(seen Reading) {
	const apart = 10 * time.Millisecond // a bound on how many are kept
	at := func(back int) *Reading { return &p.recent[(p.next-back)%len(p.recent)] }
	if p.next > 1 && at(1).At.Sub(at(2).At) < apart {
		p.next--
	}
	*at(0) = seen
	p.next++
}

// pair compares a new scrape with the in-flight count of the same moment. A count from more than half a second before
// or after shows nothing about it, and neither does half a load. Without a gauge of what runs, and while nothing waits,
// anything up to a full set of slots may be executing.
func (p *pairing) pair(queue, running Reading, slots float64, gauge bool) {
	const nearEnough = 500 * time.Millisecond // a bound
	if !queue.Known() || !running.Known() {
		return
	}
	if !queue.At.After(p.paired) || queue.At.Sub(running.At).Abs() > nearEnough {
		return
	}
	near, ok := p.inFlightNear(queue.At, nearEnough)
	if !ok {
		return
	}
	difference := queue.Value + running.Value - near
	if !gauge && queue.Value == 0 { // the current estimate stands, as far as it is possible
		difference = min(max(0, near+p.unproxied.or(0)), slots) - near
	}
	if math.Abs(difference-p.unproxied.or(difference)) > max(slots, fewestSlots) {
		p.unproxied = smoothed{} // no noise: the count was rewritten
	}
	p.unproxied.add(difference, queue.At.Sub(p.paired), unproxiedTau)
	p.paired = queue.At
}

// Bounds on what may be traffic or noise, in requests: beyond them a count was rewritten.
const (
	fewestSlots = 8  // a difference of the two signals up to this, or to the slots, is noise
	rewritten   = 64 // a fall of the in-flight count by more, between two readings, is no traffic
)

// inFlightNear is the in-flight count that was read nearest to that time. The newest come first, so the first one from
// before it ends the search.
func (p *pairing) inFlightNear(at time.Time, within time.Duration) (requests float64, ok bool) {
	best := within
	for back := 1; back <= min(p.next, len(p.recent)); back++ {
		r := p.recent[(p.next-back)%len(p.recent)]
		apart := at.Sub(r.At)
		if apart.Abs() <= best {
			requests, best, ok = r.Value, apart.Abs(), true
		}
		if apart >= 0 {
			break
		}
	}
	return requests, ok
}
