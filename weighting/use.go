package weighting

// Endpoints that the proxies do not use
//
// Proxies have health checks and outlier detection of their own. An endpoint that they ejected gets nothing whatever
// its share, looks idle, and would be given most of the requests; how the others share those would be left to the
// floor. That it is not used shows in the requests that went elsewhere. With a share of w, in force for a second at
// least, each of n requests would have come with the probability w, so that none did has the probability (1 − w)ⁿ, at
// most exp(−w·n). Once w·n is 9.2 (1e-4), and the first was due more than two seconds before the last reading of what
// arrived (by the proxies, or otherwise by completions and growth), the others are filled with all that comes. The
// endpoint then has its part of the capacity as its share: the proxies that do not use it split that among the others,
// and the first request that comes ends it.
//
// Requests whose endpoint a hash chose, as far as the proxies report that, are not among the n. Where proxies choose by
// the conversation or the prompt otherwise, requests gather: for long none comes, and then many do. So w·n must also be
// half as much again as it was at a typical endpoint of the pool, at most, when a request came. If the endpoint was
// found not to be used before that, then as it was at that time: else a pool of two whose proxies eject one and then
// the other would learn that such gaps are usual.

import (
	"slices"
	"time"
)

// use is whether the proxies send an endpoint what the law gives it.
type use struct {
	share lows      // of the traffic, as decided
	seen  time.Time // of the last reading of what arrived there
	all   float64   // requests that arrived at the pool until then
	since time.Time // when the first arrival was due that did not come
	due   float64   // arrivals that did not come, by the last reading
	gap   highest   // of due when one came, in about the last ten minutes
	none  bool      // it is not used
	found float64   // due when that was found
}

// What shows that an endpoint is not used.
const (
	heldFor   = time.Second     // a share that was decided for so long, at least, is in force
	unusedFor = 2 * time.Second // without an arrival that was due: gauges lag by as much
)

// arrived is the requests that came to a member since the last step.
type arrived struct {
	requests float64   // that the proxies sent by the weights, or else that the server saw
	any      bool      // by either of the two
	at       time.Time // of the reading; zero where there is none
}

// arrived is what came to the member since the last step, up to the latest reading.
func (m *member) arrived(p *pool) (a arrived) {
	did := &m.passed.proxies
	server, proxies := m.passed.server.flow(), did.flow()
	a.any = max(server.Arrived, proxies.Arrived, did.failed.by) > rounding
	switch {
	case p.usable(m.proxies.Issued) && p.usable(m.proxies.Ended):
		a.requests, a.at = proxies.Arrived-did.hashed.by, m.proxies.Issued.At
	case p.usable(m.server.Completions):
		a.requests, a.at = max(0, server.Arrived), m.server.Completions.At
	default:
		a.any = a.any || m.change().Arrived > rounding
	}
	return a
}

// came counts what came to each member and to the pool.
func (l *Law) came(p *pool) {
	for i := range p.members {
		m := &p.members[i]
		m.came = m.arrived(p)
		l.arrived += m.came.requests
	}
}

// findUnused finds the members that the proxies do not use. Of the requests that went elsewhere each would have come
// here with the probability of the share: that none did is chance, until it is as improbable as a stall has to be. At
// least one member is used.
func (l *Law) findUnused(p *pool, s *Snapshot) {
	unused := 0
	p.held = heldFor
	for p.held < 2*(s.PushDelay+s.PushPeriod)+s.ScrapeInterval && p.held < time.Hour {
		p.held *= 2
	}
	none := false
	for i := range p.members {
		m := &p.members[i]
		m.use.observe(&m.came, l.arrived, p)
		none = none || m.use.none
	}
	if none {
		p.expectGaps()
	}
	for i := range p.members {
		m := &p.members[i]
		if m.unused = m.use.none && !m.ejected() && !m.flagged && !m.blackout && !m.gone; m.unused {
			unused++
		}
	}
	for i := range p.members {
		m := &p.members[i]
		if m.unused = m.unused && unused < len(p.members); m.unused {
			m.tried = 0
		}
	}
}

// expectGaps takes members as used from which no more is missing than may come later, because requests gather.
func (p *pool) expectGaps() {
	const longer = 1.5 // than a typical gap
	usual := longer * p.typicalGap()
	for i := range p.members {
		u := &p.members[i].use
		if u.none = u.none && u.due >= usual; u.none && u.found == 0 {
			u.found = u.due
		}
	}
}

// typicalGap is the lower median of the most arrivals that were missing at each member before one came: a member that
// was not used and is again is no reason to wait longer for the only other one.
func (p *pool) typicalGap() float64 {
	gaps := make([]float64, 0, len(p.members))
	for i := range p.members {
		if gap := p.members[i].use.gap.most(); gap > 0 {
			gaps = append(gaps, gap)
		}
	}
	if len(gaps) == 0 {
		return 0
	}
	slices.Sort(gaps)
	return gaps[(len(gaps)-1)/2]
}

// observe takes in what arrived there, and what arrived at the pool so far.
func (u *use) observe(came *arrived, all float64, p *pool) {
	const enough = 20 * improbable // more is no gathering
	if came.any {
		gap := u.due
		if u.none { // the rest of it may be the time of an ejection
			gap = u.found
		}
		u.gap.note(min(gap, enough), p.now, slotsTau)
		u.due, u.found, u.none = 0, 0, false
		u.all = all
	}
	if !came.at.After(u.seen) {
		return
	}
	if u.due < 1 {
		u.since = u.seen
	}
	u.due += (all - u.all) * u.share.since(p.now.Add(-p.held))
	u.seen, u.all = came.at, all
	u.none = u.due >= improbable && u.seen.Sub(u.since) > unusedFor
}

// note remembers the share that was decided, which a flagged endpoint does not get.
func (u *use) note(share float64, flagged bool, p *pool) {
	if flagged {
		share = 0
	}
	u.share.note(share, p.now, p.held)
}
