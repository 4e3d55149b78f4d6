package merge

import (
	"math"
	"time"

	"steelyard/internal/api"
	"steelyard/weighting"
	"steelyard/weighting/flight"
)

// A pace measures how many requests end per second, over the last seconds.
type pace struct {
	total uint64
	marks [2]struct {
		at    time.Time
		total uint64
	}
}

// paceSpan is the least time over which a pace is measured.
const paceSpan = 2 * time.Second

func (p *pace) observe(now time.Time, ended uint64) {
	p.total += ended
	if p.marks[1].at.IsZero() || now.Sub(p.marks[1].at) >= paceSpan {
		p.marks[0] = p.marks[1]
		p.marks[1].at, p.marks[1].total = now, p.total
	}
}

// perSecond returns 0 if the pace is unknown.
func (p *pace) perSecond(now time.Time) float64 {
	from := p.marks[0]
	if from.at.IsZero() {
		from = p.marks[1]
	}
	if seconds := now.Sub(from.at).Seconds(); !from.at.IsZero() && seconds > 0 {
		return float64(p.total-from.total) / seconds
	}
	return 0
}

// A remainder is the part, 0 to 1, of the requests of a replica that is gone that still counts.
type remainder struct {
	*share
	since time.Time // when its replica went
	// guessed follows from how long requests take; checked applies if the server reports how many it has.
	guessed, checked float64
}

// remains returns the remainder of a replica; false if nothing is left.
func (p *Peers) remains(now time.Time, name string, o *peer, s *share) (remainder, bool) {
	const longest = 10 * time.Second
	gone := now.Sub(o.since)
	if gone > Fade {
		return remainder{}, false
	}
	takes := longest.Seconds()
	var inFlight int64
	for _, each := range s.parts {
		inFlight += each.inFlight
	}
	if rate := s.pace.perSecond(o.since); rate > 0 {
		takes = min(takes, float64(inFlight)/rate)
	}
	left := 1.0
	if s.head.Reconciled > 0 {
		gained := float64(p.reconciled(name, o) - s.other)
		left = 1 - min(max(0, gained/float64(s.head.Reconciled)), 1)
	}
	r := remainder{share: s, since: o.since, guessed: left * math.Exp(-gone.Seconds()/max(takes, 1e-3)),
		checked: left * math.Exp(-gone.Seconds()/longest.Seconds())}
	const least = 0.01
	return r, r.checked >= least && inFlight > 0
}

// remaining returns how many requests count of all replicas that are gone at an endpoint, where the others have
// inFlight requests. The server's own report of its requests bounds them.
func (m *member) remaining(now time.Time, address string, left []remainder, inFlight float64) float64 {
	var guessed, checked float64
	fresh := now.Sub(m.servedAt) <= time.Second
	for _, r := range left {
		if each := r.parts[address]; each != nil {
			guessed += float64(each.inFlight) * r.guessed
			checked += float64(each.inFlight) * r.checked
		}
		fresh = fresh && m.servedAt.After(r.since)
	}
	if fresh {
		return min(checked, max(0, m.served-inFlight))
	}
	return guessed
}

// Merge adds what the other replicas have of a cluster to what this one has: own, and parts in the order of counts,
// which it overwrites. The counts are never older than those of the previous call. It returns the sum over all
// replicas.
func (p *Peers) Merge(now time.Time, name string, own flight.Watchers, parts []flight.Part, counts []flight.Counts,
	before time.Time) flight.Watchers {
	c := p.clusters[name]
	if c == nil || len(parts) != len(counts) {
		return own
	}
	c.own = own
	all := own
	age := means{}
	age.add(&own, own.Age)
	var live []*share
	var left []remainder
	for _, o := range p.peers {
		s := o.clusters[name]
		switch {
		case s == nil:
		case o.state == api.ReplicaLive:
			live = append(live, s)
			all.Add(&s.head)
			age.add(&s.head, s.age(now, o))
		default:
			if r, any := p.remains(now, name, o, s); any {
				left = append(left, r)
			}
		}
	}
	all.Age, all.Interval = age.mean()
	if all.Counted() == 0 && len(left) == 0 {
		return all
	}
	at := now.Add(-all.Age)
	if next := before.Add(1); at.Before(next) {
		at = next
	}
	if at.After(now) { // a second reading of one moment
		at = now
	}
	r := readings{at: at, exact: all.Reconciled == all.Counted() && len(left) == 0,
		partial: all.Events > 0 && all.Reports > 0 || len(left) > 0 || p.cut}
	if all.Events > 0 {
		r.logged = at
	}
	for i := range counts {
		inFlight, sums := float64(parts[i].InFlight), parts[i].Sums
		for _, s := range live {
			if each := s.parts[counts[i].Address]; each != nil && s.head.Counted() > 0 {
				inFlight += float64(each.inFlight)
			}
		}
		if m := c.members[counts[i].Address]; m != nil {
			sums.Add(&m.sums)
			inFlight += m.remaining(now, counts[i].Address, left, inFlight)
		}
		r.write(&counts[i], inFlight, &sums)
	}
	return all
}

// Watching returns how many Envoys of live replicas subscribe to a cluster.
func (p *Peers) Watching(name string) (n int) {
	for _, o := range p.peers {
		if s := o.clusters[name]; s != nil && o.state == api.ReplicaLive {
			n += s.head.Watching
		}
	}
	return n
}

// age returns how old the counts of a live replica are. A replica whose Envoys report each change at once has nothing
// to report while it sends nothing.
func (s *share) age(now time.Time, o *peer) time.Duration {
	const missed = Silence / 2
	switch silent := now.Sub(o.lastSeen); {
	case s.head.Age > 0:
		return s.head.Age + now.Sub(s.at)
	case silent > missed:
		return silent
	}
	return transit
}

// means adds up ages and intervals, weighed by the rates of requests.
type means struct{ weights, ages, intervals float64 }

func (m *means) add(h *flight.Watchers, age time.Duration) {
	const idle = 0.01                       // requests per second
	w := h.Rate + idle*float64(h.Counted()) // what a count lacks are the requests since then
	m.weights += w
	m.ages += w * age.Seconds()
	m.intervals += w * h.Interval.Seconds()
}

func (m *means) mean() (age, interval time.Duration) {
	if m.weights == 0 {
		return 0, 0
	}
	seconds := func(sum float64) time.Duration { return time.Duration(sum / m.weights * float64(time.Second)) }
	return seconds(m.ages), seconds(m.intervals)
}

// readings has what the counts of a cluster have in common.
type readings struct {
	at, logged     time.Time // logged: of what only access logs show; zero: unknown
	exact, partial bool
}

func (r *readings) write(c *flight.Counts, inFlight float64, s *flight.Sums) {
	c.InFlight, c.Exact = weighting.Reading{Value: inFlight, At: r.at}, r.exact
	c.Proxies = s.Report(r.at, r.logged)
	c.Proxies.Partial = r.partial
}
