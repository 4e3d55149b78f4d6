package ledger

import (
	"cmp"
	"math"
	"slices"
	"time"

	"steelyard/weighting"
	"steelyard/weighting/flight"
)

// Bounds on what one Envoy may report against the reports of the endpoint and of all other Envoys.
const (
	// tolerated is how many requests of an Envoy that is confirmed an endpoint's own report may lack: slow uploads,
	// idle streams.
	tolerated = 8
	// maxCounts of one endpoint are compared.
	maxCounts = 256
	// gaugeLag is longer than a gauge lags: an engine reports its last iteration, which may take two seconds.
	gaugeLag = 2500 * time.Millisecond
	// strictFor is how long after a contradiction the same Envoy is contradicted at the first report of a new mismatch.
	strictFor = time.Minute
	// reportsEnd is how long an endpoint may send no report before its mismatch ends, or three times the time between
	// the last two, if that is longer.
	reportsEnd = 10 * time.Second
)

// A served is what an endpoint's own reports show.
type served struct {
	at        time.Time     // of the newest report
	every     time.Duration // between it and the one before; 0 unknown
	matched   time.Time     // when it last had about as many requests as are counted
	worked    time.Time     // when it last showed that requests completed
	completed weighting.Reading
	mismatch  *mismatch // nil where the report has the requests of the Envoys that are confirmed
}

// A mismatch is a row of an endpoint's own reports that each show fewer requests than the confirmed Envoys have, by
// more than is tolerated.
type mismatch struct {
	since     time.Time // of the first report of the row
	reports   int
	inFlight  int64   // of the confirmed Envoys, summed over the reports
	least     float64 // requests missing, the least of the reports
	ended     uint64  // requests of all Envoys, as of the first report
	completed weighting.Reading
	counts    []*reportedCount
}

// A reportedCount is the requests in flight of one Envoy during a mismatch.
type reportedCount struct {
	account      *account
	inFlight     int64     // summed over the reports
	least        int32     // in flight, at any of the reports
	ended        uint32    // requests of this Envoy, as of the first report
	own          float64   // of those that ended since, this Envoy's
	contradicted time.Time // since when; zero for one that is not
}

// Served takes in an endpoint's own report of its requests. An endpoint without a gauge of running requests is taken to
// run as many as it has slots; 0 slots means unknown.
//
// An Envoy is confirmed once a request of its ended at an endpoint that has completed some since the Envoy came.
// Until then its requests count as far as the report shows them, and those that began since.
//
// Requests of confirmed Envoys that the report lacks count nevertheless: the endpoint may not have received them yet,
// or lost them. But a single Envoy does not overrule an endpoint: requests that are contradicted do not count there. An
// Envoy is contradicted if more of its requests are missing than are tolerated, for longer than a gauge lags, while
// requests of other Envoys ended there, and if it has far more in flight for each of its ends than the others have: by
// Little's law, that is the time that a request takes at the endpoint, whichever Envoy sent it. Where requests wait in
// a part of a server that its gauges do not show, or because the whole server stalls, those of all Envoys wait. Without
// requests of another Envoy nothing contradicts.
func (l *Ledger) Served(address string, r *weighting.ServerReport, slots float64, now time.Time) {
	l.mu.Lock()
	defer l.release()
	at := l.addresses[canonical(address)]
	if at == nil {
		return
	}
	requests, known := requestsAt(r, slots)
	if !known {
		l.believe(at)
		return
	}
	s := &at.served
	if now.After(s.at) && !s.at.IsZero() {
		s.every = now.Sub(s.at)
	}
	s.at = now
	if s.completed.Known() && r.Completions.Value > s.completed.Value {
		s.worked = now
	}
	s.completed = r.Completions
	confirmed, all := at.inFlight()
	missing := float64(confirmed) - requests
	if !(missing > tolerated) {
		s.matched = now
	}
	s.mismatch = l.follow(at, r, missing, now)
	l.discount(at, s.mismatch.contradicted())
	l.limit(at, float64(all)-max(requests, float64(confirmed)), now)
}

// believe makes all requests to an endpoint count.
func (l *Ledger) believe(at *address) {
	at.served.at, at.served.mismatch = time.Time{}, nil
	l.discount(at, nil)
	l.limit(at, 0, time.Time{})
}

// limit leaves out so many requests of the Envoys that are not confirmed.
func (l *Ledger) limit(at *address, excess float64, now time.Time) {
	left := max(0, int64(math.Ceil(excess)))
	for _, s := range at.slots {
		before := s.excess
		s.excess = min(left, s.unconfirmed)
		left -= s.excess
		switch {
		case s.excess == before:
			continue
		case before == 0:
			s.excessSince = now
		}
		l.changed(s.cluster)
	}
}

// confirm notes that an endpoint has shown what the Envoy reports.
func (l *Ledger) confirm(e *envoy) {
	for _, a := range e.accounts {
		if a.watched {
			a.slot.addUnconfirmed(-int64(a.count.InFlight()))
		}
	}
	e.confirmed = true
}

// addUnconfirmed adds requests in flight of Envoys that are not confirmed.
func (s *slot) addUnconfirmed(n int64) {
	s.unconfirmed += n
	s.excess = min(s.excess, s.unconfirmed)
}

// contradicted returns the counts that are contradicted.
func (m *mismatch) contradicted() (all []*reportedCount) {
	if m != nil {
		for _, c := range m.counts {
			if !c.contradicted.IsZero() {
				all = append(all, c)
			}
		}
	}
	return all
}

// follow adds a report to an endpoint's row, and returns the row as it is then: nil if no more than is tolerated is
// missing.
func (l *Ledger) follow(at *address, r *weighting.ServerReport, missing float64, now time.Time) *mismatch {
	m := at.served.mismatch
	switch {
	case !(missing > tolerated):
		return nil
	case m == nil:
		return l.startRow(at, &mismatch{}, r, missing, now)
	}
	if m.note(at, missing); now.Sub(m.since) < m.patience() {
		return m
	}
	m.compare(at, r, now)
	return l.startRow(at, m, r, missing, now)
}

// requestsAt returns how many requests a server has by its report, and false where the report does not show it.
func requestsAt(r *weighting.ServerReport, slots float64) (requests float64, known bool) {
	switch {
	case !r.Queue.Known():
		return 0, false
	case r.Running.Known():
		return r.Queue.Value + r.Running.Value, true
	}
	return r.Queue.Value + slots, slots > 0
}

// startRow begins a row of reports, after another or an empty one.
func (l *Ledger) startRow(
	at *address, before *mismatch, r *weighting.ServerReport, missing float64, now time.Time,
) *mismatch {
	m := &mismatch{since: now, least: missing, ended: at.ended(), completed: r.Completions}
	l.collect(at, m, before, now)
	m.note(at, missing)
	return m
}

// collect finds the counts to compare: of accounts of confirmed Envoys with more requests than are tolerated.
func (l *Ledger) collect(at *address, m, before *mismatch, now time.Time) {
	for _, s := range at.slots {
		for _, e := range l.countedBy(s.cluster).envoys {
			a := e.accounts[s]
			if a == nil || !a.watched || !e.confirmed || a.count.InFlight() <= tolerated ||
				len(m.counts) == maxCounts {
				continue
			}
			c := &reportedCount{account: a, least: a.count.InFlight(), ended: a.ended}
			if i := slices.IndexFunc(before.counts, func(b *reportedCount) bool { return b.account == a }); i >= 0 {
				c.contradicted = before.counts[i].contradicted
			} else if now.Sub(e.contradicted) < strictFor {
				c.contradicted = now
			}
			m.counts = append(m.counts, c)
		}
	}
}

// note adds one more report.
func (m *mismatch) note(at *address, missing float64) {
	confirmed, _ := at.inFlight()
	m.reports++
	m.inFlight += confirmed
	m.least = min(m.least, missing)
	for _, c := range m.counts {
		n := c.account.count.InFlight()
		if !c.account.watched {
			n = 0
		}
		c.least = min(c.least, n)
		c.inFlight += int64(n)
	}
}

// patience returns how long a row must be.
func (m *mismatch) patience() time.Duration {
	longest := gaugeLag
	for _, c := range m.counts {
		longest = max(longest, c.account.envoy.lag())
	}
	return longest
}

// lag returns for how long an endpoint and an Envoy may differ: longer than a gauge lags, and longer than the time
// between two reports of an Envoy that is counted by them.
func (e *envoy) lag() time.Duration {
	if e.basis() == flight.ByReports {
		return max(gaugeLag, 5*e.asked/2)
	}
	return gaugeLag
}

// compare finds the counts that are contradicted: the largest ones, and no more of them than it takes to explain what
// is missing. It needs an end of another Envoy's request to compare with; one answer since the endpoint's report last
// matched is enough, because where a wrong count keeps all requests away, none ends later.
func (m *mismatch) compare(at *address, r *weighting.ServerReport, now time.Time) {
	const several = 2 // times what others have in flight for each end is chance
	ended := float64(at.ended() - m.ended)
	completed := ended
	if r.Completions.Known() && m.completed.Known() {
		completed = max(0, r.Completions.Value-m.completed.Value)
	}
	withEnds := float64(m.inFlight) // of the Envoys that have ends
	for _, c := range m.counts {
		// Ends of an Envoy count as far as the server has completed as many.
		c.own = float64(c.account.ended - c.ended)
		c.own = min(c.own, max(0, completed-max(0, ended-c.own)))
		if c.own == 0 {
			withEnds -= float64(c.inFlight)
		}
	}
	slices.SortFunc(m.counts, func(a, b *reportedCount) int { return cmp.Compare(b.least, a.least) })
	explained := 0.0
	for _, c := range m.counts {
		others := min(ended, completed) - c.own
		if others < 1 && c.account.slot.answers.ofOthers(c.account).after(at.served.matched) {
			others = 1
		}
		if others < 1 {
			continue
		}
		inFlight := withEnds
		if c.own > 0 {
			inFlight -= float64(c.inFlight)
		}
		usual := max(0, inFlight) / float64(m.reports) * (c.own + 1) / others
		if explained >= m.least || float64(c.least) <= tolerated+several*usual {
			c.contradicted = time.Time{}
			continue
		}
		if c.contradicted.IsZero() {
			c.contradicted = now
		}
		c.account.envoy.contradicted = now
		explained += float64(c.least)
	}
}

// sweepReports believes the Envoys about endpoints that have stopped reporting.
func (l *Ledger) sweepReports(now time.Time) {
	for _, at := range l.addresses {
		if s := &at.served; !s.at.IsZero() && now.Sub(s.at) > max(reportsEnd, 3*s.every) {
			l.believe(at)
		}
	}
}

// discount stops counting these requests, and counts all others.
func (l *Ledger) discount(at *address, counts []*reportedCount) {
	for _, s := range at.slots {
		var accounts []*account
		for _, c := range counts {
			if c.account.slot == s {
				accounts = append(accounts, c.account)
			}
		}
		if len(accounts)+len(s.discounted) > 0 {
			s.discounted = accounts
			l.changed(s.cluster)
		}
	}
}

// inFlight returns the requests in flight over all clusters of an endpoint: of confirmed Envoys, and of all.
func (a *address) inFlight() (confirmed, all int64) {
	for _, s := range a.slots {
		confirmed += s.inFlight - s.unconfirmed
		all += s.inFlight
	}
	return confirmed, all
}

// ended returns how many requests to an endpoint have ended, over all its clusters.
func (a *address) ended() (sum uint64) {
	for _, s := range a.slots {
		sum += s.sums.Ended
	}
	return sum
}
