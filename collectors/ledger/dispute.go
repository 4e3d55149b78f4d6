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
	// tolerated are requests of one Envoy that an endpoint may deny: slow uploads, idle streams. More are
	// contradicted within seconds; fewer, where that is much for the endpoint, when they stand for lasting: a time in
	// which others show how long a request takes there.
	tolerated = 8
	quarter   = 0.25 // of the slots is much
	lasting   = 10 * time.Second
	// enough ends of others show what is usual at an endpoint, where a few requests are in question.
	enough = 8
	// maxClaims of one endpoint are compared.
	maxClaims = 256
	// laggard is longer than a gauge lags: an engine reports its last iteration, which may take two
	// seconds.
	laggard = 2500 * time.Millisecond
	// doubted is how long an Envoy that was contradicted is not given that time again.
	doubted = time.Minute
	// unheard is how long an endpoint may send no report before it denies nothing any more, or three times
	// as long as the last two were apart.
	unheard = 10 * time.Second
)

// denials of an endpoint are of many requests, and of a few.
type denials struct{ many, few *denial }

// disputed are the claims that are contradicted in either, each account's once.
func (d *denials) disputed() (all []*claim) {
	for _, row := range []*denial{d.many, d.few} {
		if row == nil {
			continue
		}
		for _, c := range row.claims {
			if c.disputed() && !slices.ContainsFunc(all,
				func(other *claim) bool { return other.account == c.account }) {
				all = append(all, c)
			}
		}
	}
	return all
}

// A bar is how many requests an endpoint may deny, and for how long.
type bar struct {
	tolerated float64 // of one host, as far as its Envoys have no ends
	sum       float64 // of all such hosts
	lasts     time.Duration
	few       bool
}

// barOfFew goes by the slots. Where they are unknown, it goes by the requests that the endpoint reports: no more than
// as many again.
func barOfFew(slots, requests float64) bar {
	much := max(2, requests)
	if slots > 0 {
		much = max(1, quarter*slots)
	}
	return bar{tolerated: min(much, tolerated), sum: tolerated, lasts: lasting, few: true}
}

// A denial is a row of an endpoint's own reports that each have fewer requests than are counted, by more than
// is tolerated.
type denial struct {
	bar       bar
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
	if !known {
		l.agree(at)
		return
	}
	ds := l.denials[at]
	if ds == nil {
		ds = &denials{}
	}
	denied := float64(at.inFlight()) - requests
	if !(denied > tolerated) {
		at.agreed = now
	}
	ds.many = l.follow(at, ds.many, bar{tolerated: tolerated, lasts: laggard}, r, denied, now)
	ds.few = l.follow(at, ds.few, barOfFew(slots, requests), r, denied, now)
	if ds.many == nil && ds.few == nil {
		l.agree(at)
		return
	}
	l.denials[at] = ds
	l.dispute(at, ds.disputed())
}

// agree ends what is denied at an endpoint.
func (l *Ledger) agree(at *address) {
	delete(l.denials, at)
	l.dispute(at, nil)
}

// follow takes a report into a row, and returns the row as it is then: nil where no more is denied than is tolerated.
func (l *Ledger) follow(
	at *address, d *denial, b bar, r *weighting.ServerReport, denied float64, now time.Time,
) *denial {
	switch {
	case !(denied > b.tolerated):
		return nil
	case d == nil:
		return l.deny(at, &denial{}, b, r, denied, now)
	}
	d.note(at, denied, now)
	switch d.bar = b; {
	case d.waits(): // most differences that small are gone by then
		if now.Sub(d.since) >= laggard {
			return l.deny(at, d, b, r, denied, now)
		}
	case now.Sub(d.since) >= d.patience() && d.judge(at, r, now):
		return l.deny(at, d, b, r, denied, now)
	}
	return d
}

// waits reports whether a row of a few requests has just begun: nobody's claims are compared yet.
func (d *denial) waits() bool { return d.claims == nil }

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
func (l *Ledger) deny(
	at *address, before *denial, b bar, r *weighting.ServerReport, denied float64, now time.Time,
) *denial {
	d := &denial{bar: b, since: now, at: now, every: before.every, least: denied, ended: at.ended(),
		completed: r.Completions}
	if !b.few || before.reports > 0 || now.Sub(at.doubted) < doubted {
		l.collect(at, d, before, now)
	}
	d.note(at, denied, now)
	return d
}

// collect finds the claims: of accounts with more requests than are tolerated, or, where few are in question, with any.
func (l *Ledger) collect(at *address, d, before *denial, now time.Time) {
	more := int32(tolerated)
	if d.bar.few {
		more = 0
	}
	d.claims = []*claim{}
	for _, s := range at.slots {
		for _, e := range l.heardBy(s.cluster).counted {
			a := e.accounts.of(s)
			if a == nil || !a.watched || a.count.InFlight() <= more || len(d.claims) == maxClaims {
				continue
			}
			c := &claim{account: a, least: a.count.InFlight(), ended: a.ended}
			if i := slices.IndexFunc(before.claims, func(b *claim) bool { return b.account == a }); i >= 0 {
				c.contradicted = before.claims[i].contradicted
			} else if now.Sub(e.doubted) < doubted && float64(c.least) > d.bar.tolerated {
				c.contradicted = now
			}
			d.claims = append(d.claims, c)
		}
	}
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
	longest := d.bar.lasts
	for _, c := range d.claims {
		if e := c.account.envoy; e.basis() == flight.ByReports {
			longest = max(longest, 5*e.asked/2)
		}
	}
	return longest
}

// judge finds those that are contradicted: the largest claims, and no more of them than it takes to
// explain what is denied. Without an end of others there is nothing to compare with; one is enough that came
// since the endpoint last agreed, because where a claim keeps all requests away, none comes later. Where few
// requests are in question, the row goes on until enough of others have ended; judge reports whether that is so.
func (d *denial) judge(at *address, r *weighting.ServerReport, now time.Time) (judged bool) {
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
	explained, left := 0.0, allowance{bar: d.bar}
	for _, c := range d.claims {
		others := min(ended, completed) - c.own
		if d.bar.few && others < enough {
			continue
		}
		if others < 1 && c.account.slot.answers.ofOthers(c.account).after(at.agreed) {
			others = 1
		}
		if others < 1 {
			continue
		}
		judged = true
		inFlight := vouching
		if c.own > 0 {
			inFlight -= float64(c.inFlight)
		}
		usual := max(0, inFlight) / float64(d.reports) * (c.own + 1) / others
		if explained >= d.least || d.bar.few && float64(c.least) > 2*(d.least-explained) ||
			left.tolerates(c, several*usual) {
			c.contradicted = time.Time{}
			continue
		}
		if c.contradicted.IsZero() {
			c.contradicted = now
		}
		c.account.envoy.doubted, at.doubted = now, now
		explained += float64(c.least)
	}
	return judged || !d.bar.few || len(d.claims) == 0
}

// An allowance is what is left of the requests that are tolerated. Where few are in question, the Envoys of a host
// that have no ends share what is tolerated of one, and those of all hosts a sum, whatever their node ids.
type allowance struct {
	bar   bar
	used  float64
	hosts map[string]float64 // used
}

// tolerates reports whether a claim is no more than what is usual and what is left.
func (l *allowance) tolerates(c *claim, usual float64) bool {
	least, host := float64(c.least), c.account.envoy.node.Host
	if !l.bar.few || c.own > 0 {
		return least <= l.bar.tolerated+usual
	}
	above := max(0, least-usual)
	if above > min(l.bar.tolerated-l.hosts[host], l.bar.sum-l.used) {
		return false
	}
	if l.hosts == nil {
		l.hosts = make(map[string]float64)
	}
	l.hosts[host] += above
	l.used += above
	return true
}

func (c *claim) disputed() bool { return !c.contradicted.IsZero() }

// sweepDenials forgets those of endpoints that sent no report since.
func (l *Ledger) sweepDenials(now time.Time) {
	for at, ds := range l.denials {
		if d := cmp.Or(ds.many, ds.few); now.Sub(d.at) > max(unheard, 3*d.every) {
			l.agree(at)
		}
	}
}

// dispute stops counting these claims, and counts all others.
func (l *Ledger) dispute(at *address, claims []*claim) {
	for _, s := range at.slots {
		var accounts []*account
		for _, c := range claims {
			if c.account.slot == s {
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
		for _, claim := range d.disputed() {
			if a := claim.account; a.slot.cluster == c && a.watched {
				all = append(all,
					Dispute{DisputedInFlight, a.envoy.node, a.slot.address, int(claim.least), claim.contradicted})
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
			cmp.Compare(a.Envoy.Certificate, b.Envoy.Certificate),
			cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Address, b.Address))
	})
	return all
}
