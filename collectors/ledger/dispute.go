package ledger

import (
	"cmp"
	"slices"
	"time"

	"steelyard/weighting"
	"steelyard/weighting/flight"
)

// Bounds on what one Envoy may report against the reports of the endpoint and of all other Envoys.
const (
	// tolerated are requests of one Envoy that an endpoint may deny for as long as they stand: slow
	// uploads, idle streams.
	tolerated = 8
	// laggard is longer than a gauge lags: an engine reports its last iteration, which may take two
	// seconds.
	laggard = 2500 * time.Millisecond
	// doubted is how long an Envoy that was contradicted is not given that time again.
	doubted = time.Minute
	// unheard is how long an endpoint may send no report before it denies nothing any more, or three times
	// as long as the last two were apart.
	unheard = 10 * time.Second
)

// A denial is a row of an endpoint's own reports that each have far fewer requests than are counted.
type denial struct {
	since     time.Time // of the first of the row
	reports   int
	at        time.Time     // of the newest report
	every     time.Duration // between it and the one before; 0 unknown
	inFlight  int64         // summed over the reports
	least     float64       // requests denied, by any of the reports
	ended     uint64        // of all Envoys, as of the first report
	completed weighting.Reading
	claims    []*claim
}

// A claim is the requests of one Envoy in it, if they are more than is tolerated.
type claim struct {
	account      *account
	inFlight     int64     // summed over the reports
	least        int32     // in flight, at any of the reports
	ended        uint32    // of this Envoy, as of the first report
	own          float64   // of those that ended since, this Envoy's
	contradicted time.Time // since when; zero for one that is not
}

// Served takes in an endpoint's own report of its requests. One that has no gauge of
// running requests runs as many as it has slots; 0 slots are unknown.
//
// A count stands although the endpoint denies it: it may not see the requests yet, or not any more.
// But no single Envoy overrules an endpoint: requests that are contradicted do not count there. An Envoy is
// contradicted when more of its requests are denied than is tolerated, for longer than a gauge lags, while
// requests of other Envoys ended there, and when it has far more in flight for each of its ends than
// the others have: by Little's law, that is the time that a request takes at the endpoint, whichever Envoy
// sent it. Where requests wait in a part of a server that its gauges do not show, or because all of it
// stalls, those of all Envoys wait. Without requests of another Envoy nothing contradicts.
func (l *Ledger) Served(address string, r *weighting.ServerReport, slots float64, now time.Time) {
	l.mu.Lock()
	defer l.release()
	at := l.addresses[canonical(address)]
	if at == nil {
		return
	}
	requests, known := served(r, slots)
	denied := float64(at.inFlight()) - requests
	d := l.denials[at]
	switch {
	case !known || !(denied > tolerated):
		if known {
			at.agreed = now
		}
		delete(l.denials, at)
		l.dispute(at, nil)
		return
	case d == nil:
		d = l.deny(at, &denial{}, r, denied, now)
	default:
		d.note(at, denied, now)
		if now.Sub(d.since) >= d.patience() {
			d.judge(at, r, now)
			d = l.deny(at, d, r, denied, now)
		}
	}
	l.dispute(at, d.claims)
}

// served is how many requests a server has by its report; false where that does not show it.
func served(r *weighting.ServerReport, slots float64) (requests float64, known bool) {
	switch {
	case !r.Queue.Known():
		return 0, false
	case r.Running.Known():
		return r.Queue.Value + r.Running.Value, true
	}
	return r.Queue.Value + slots, slots > 0
}

// deny begins a row of reports, after another or an empty one.
func (l *Ledger) deny(at *address, before *denial, r *weighting.ServerReport, denied float64, now time.Time) *denial {
	d := &denial{since: now, at: now, every: before.every, least: denied, ended: at.ended(), completed: r.Completions}
	for _, s := range at.slots {
		for _, e := range l.heardBy(s.cluster).counted {
			a := e.accounts.of(s)
			if a == nil || !a.watched || a.count.InFlight() <= tolerated {
				continue
			}
			c := &claim{account: a, least: a.count.InFlight(), ended: a.ended}
			if i := slices.IndexFunc(before.claims, func(b *claim) bool { return b.account == a }); i >= 0 {
				c.contradicted = before.claims[i].contradicted
			} else if now.Sub(e.doubted) < doubted {
				c.contradicted = now
			}
			d.claims = append(d.claims, c)
		}
	}
	l.denials[at] = d
	d.note(at, denied, now)
	return d
}

// note takes in one more report.
func (d *denial) note(at *address, denied float64, now time.Time) {
	if now.After(d.at) {
		d.at, d.every = now, now.Sub(d.at)
	}
	d.reports++
	d.inFlight += at.inFlight()
	d.least = min(d.least, denied)
	for _, c := range d.claims {
		n := c.account.count.InFlight()
		if !c.account.watched {
			n = 0
		}
		c.least = min(c.least, n)
		c.inFlight += int64(n)
	}
}

// patience is how long a row has to be: longer than a gauge lags, and longer than the time between two
// reports of an Envoy that is counted by them.
func (d *denial) patience() time.Duration {
	longest := laggard
	for _, c := range d.claims {
		if e := c.account.envoy; e.basis() == flight.ByReports {
			longest = max(longest, 5*e.asked/2)
		}
	}
	return longest
}

// judge finds those that are contradicted: the largest claims, and no more of them than it takes to
// explain what is denied. Without an end of others there is nothing to compare with; one is enough that came
// since the endpoint last agreed, because where a claim keeps all requests away, none comes later.
func (d *denial) judge(at *address, r *weighting.ServerReport, now time.Time) {
	const several = 2 // times what others have in flight for each end is chance
	ended := float64(at.ended() - d.ended)
	completed := ended
	if r.Completions.Known() && d.completed.Known() {
		completed = max(0, r.Completions.Value-d.completed.Value)
	}
	vouching := float64(d.inFlight) // of those that have ends
	for _, c := range d.claims {
		// Ends of an Envoy count as far as the server has completed as many.
		c.own = float64(c.account.ended - c.ended)
		c.own = min(c.own, max(0, completed-max(0, ended-c.own)))
		if c.own == 0 {
			vouching -= float64(c.inFlight)
		}
	}
	slices.SortFunc(d.claims, func(a, b *claim) int { return cmp.Compare(b.least, a.least) })
	explained := 0.0
	for _, c := range d.claims {
		others := min(ended, completed) - c.own
		if others < 1 && c.account.slot.answers.ofOthers(c.account).at.After(at.agreed) {
			others = 1
		}
		if others < 1 {
			continue
		}
		inFlight := vouching
		if c.own > 0 {
			inFlight -= float64(c.inFlight)
		}
		usual := max(0, inFlight) / float64(d.reports) * (c.own + 1) / others
		if explained >= d.least || float64(c.least) <= tolerated+several*usual {
			c.contradicted = time.Time{}
			continue
		}
		if c.contradicted.IsZero() {
			c.contradicted = now
		}
		c.account.envoy.doubted = now
		explained += float64(c.least)
	}
}

func (c *claim) disputed() bool { return !c.contradicted.IsZero() }

// sweepDenials forgets those of endpoints that sent no report since.
func (l *Ledger) sweepDenials(now time.Time) {
	for at, d := range l.denials {
		if now.Sub(d.at) > max(unheard, 3*d.every) {
			delete(l.denials, at)
			l.dispute(at, nil)
		}
	}
}

// dispute stops counting the claims that are contradicted, and counts all others.
func (l *Ledger) dispute(at *address, claims []*claim) {
	for _, s := range at.slots {
		var accounts []*account
		for _, c := range claims {
			if c.account.slot == s && c.disputed() {
				accounts = append(accounts, c.account)
			}
		}
		if len(accounts)+len(s.disputed) > 0 {
			s.disputed = accounts
			l.changed(s.cluster)
		}
	}
}

// inFlight is the count over all clusters of an endpoint.
func (a *address) inFlight() (sum int64) {
	for _, s := range a.slots {
		sum += s.inFlight
	}
	return sum
}

// ended is how many requests to an endpoint are over, over all its clusters.
func (a *address) ended() (sum uint64) {
	for _, s := range a.slots {
		sum += s.sums.Ended
	}
	return sum
}

// A DisputeKind is what one Envoy reports against all others.
type DisputeKind string

// What is disputed.
const (
	DisputedInFlight DisputeKind = "in_flight" // requests in progress that the endpoint denies
	DisputedFailures DisputeKind = "failures"  // failures of an endpoint that answers others
)

// A Dispute is what only one Envoy reports of an endpoint, and does not count.
type Dispute struct {
	Kind     DisputeKind
	Envoy    Envoy
	Address  string
	InFlight int // requests, of DisputedInFlight
	Since    time.Time
}

// Disputes are those about the endpoints of a cluster, sorted by Envoy and endpoint.
func (l *Ledger) Disputes(name string, now time.Time) (all []Dispute) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	c := l.clusters[name]
	if c == nil {
		return nil
	}
	for _, d := range l.denials {
		for _, claim := range d.claims {
			if a := claim.account; a.slot.cluster == c && a.watched && claim.disputed() {
				all = append(all, Dispute{DisputedInFlight, a.envoy.node, a.slot.address, int(claim.least), claim.contradicted})
			}
		}
	}
	for _, s := range c.members {
		if s.accused == nil {
			continue
		}
		for _, by := range s.accused.disputed {
			if by.lasts(now) {
				all = append(all, Dispute{Kind: DisputedFailures, Envoy: by.account.envoy.node, Address: s.address,
					Since: by.since})
			}
		}
	}
	slices.SortFunc(all, func(a, b Dispute) int {
		return cmp.Or(cmp.Compare(a.Envoy.NodeID, b.Envoy.NodeID), cmp.Compare(a.Envoy.Host, b.Envoy.Host),
			cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Address, b.Address))
	})
	return all
}
