package ledger

import (
	"cmp"
	"math"
	"slices"
	"time"

	"steelyard/weighting"
	"steelyard/weighting/flight"
)

const (
	// tolerated is how many requests of the Envoys that are confirmed an endpoint's own report may lack: slow uploads,
	// idle streams.
	tolerated = 8
	// gaugeLag is longer than a gauge lags: an engine reports its last iteration, which may take two seconds.
	gaugeLag = 2500 * time.Millisecond
	// doubtFor is how long an Envoy is not confirmed again after its requests were contradicted.
	doubtFor = time.Minute
	// reportsEnd is how long an endpoint may send no report before its last one says nothing any more, or three times
	// the time between the last two, if that is longer.
	reportsEnd = 10 * time.Second
)

// A served is what an endpoint's own reports show.
type served struct {
	at        time.Time     // of the newest report
	every     time.Duration // between it and the one before; 0 unknown
	worked    time.Time     // when it last showed that requests completed
	completed weighting.Reading
	requests  float64
	slots     float64   // 0 unknown
	row       *mismatch // nil while the reports have the requests of the Envoys that are confirmed
}

// A mismatch is a row of an endpoint's own reports that each lack more requests of the Envoys that are confirmed than
// are tolerated.
type mismatch struct {
	since     time.Time // of the first report of the row
	reports   int
	inFlight  int64   // of the confirmed Envoys, summed over the reports
	least     float64 // requests missing, the least of the reports
	ended     uint64  // requests of all Envoys, as of the first report
	completed weighting.Reading
	claims    []*claim // of the Envoys with more requests than are tolerated
}

// A claim is the requests in flight of one Envoy during a mismatch.
type claim struct {
	account  *account
	inFlight int64   // summed over the reports
	least    int32   // in flight, at any of the reports
	ended    uint32  // requests of this Envoy, as of the first report
	own      float64 // of those that ended since, this Envoy's
}

// Served takes in an endpoint's own report of its requests. An endpoint without a gauge of running requests is taken to
// run as many as it has slots; 0 slots means unknown.
func (l *Ledger) Served(address string, r *weighting.ServerReport, slots float64, now time.Time) {
	l.mu.Lock()
	defer l.release()
	at := l.addresses[canonical(address)]
	if at == nil {
		return
	}
	at.served.slots = slots
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
	s.completed, s.requests = r.Completions, requests
	l.follow(at, now)
	confirmed, all := at.inFlight()
	l.limit(at, float64(all)-max(requests, float64(confirmed)), now)
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

// believe makes all requests to an endpoint count.
func (l *Ledger) believe(at *address) {
	at.served.at, at.served.row = time.Time{}, nil
	l.limit(at, 0, time.Time{})
}

// limit leaves out so many requests of the Envoys that are not confirmed.
func (l *Ledger) limit(at *address, excess float64, now time.Time) {
	left := max(0, int64(math.Ceil(excess)))
	for _, s := range at.members {
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

// confirm makes all requests of an Envoy count, one of whose requests ended at an endpoint that has completed some
// since the Envoy came, or whose reports do not show what it completes.
func (l *Ledger) confirm(a *account) {
	e, s := a.envoy, &a.member.at.served
	if e.confirmed || s.at.Before(e.came) || s.completed.Known() && !s.worked.After(e.came) {
		return
	}
	e.confirmed = true
	for _, a := range e.accounts {
		if a.watched {
			a.member.addUnconfirmed(-int64(a.count.InFlight()))
		}
	}
}

// doubt makes the requests of an Envoy count only as far as the endpoints show them.
func (l *Ledger) doubt(e *envoy, now time.Time) {
	e.confirmed, e.came = false, now.Add(doubtFor)
	for _, a := range e.accounts {
		if a.watched {
			a.member.addUnconfirmed(int64(a.count.InFlight()))
		}
	}
}

// addUnconfirmed adds requests in flight of Envoys that are not confirmed.
func (s *member) addUnconfirmed(n int64) {
	s.unconfirmed += n
	s.excess = min(s.excess, s.unconfirmed)
}

// follow adds the newest report to the row, and compares the Envoys at the row's end.
func (l *Ledger) follow(at *address, now time.Time) {
	s := &at.served
	confirmed, _ := at.inFlight()
	missing := float64(confirmed) - s.requests
	switch {
	case !(missing > tolerated):
		s.row = nil
		return
	case s.row == nil:
		s.row = l.startRow(at, missing, now)
	}
	s.row.extend(confirmed, missing)
	if now.Sub(s.row.since) >= s.row.patience() {
		l.compare(at, s.row, now)
		s.row = nil
	}
}

func (l *Ledger) startRow(at *address, missing float64, now time.Time) *mismatch {
	m := &mismatch{since: now, least: missing, ended: at.ended(), completed: at.served.completed}
	for _, s := range at.members {
		for _, e := range l.countedBy(s.cluster).envoys {
			if a := e.accounts[s]; a != nil && a.watched && e.confirmed && a.count.InFlight() > tolerated {
				m.claims = append(m.claims, &claim{account: a, least: a.count.InFlight(), ended: a.ended})
			}
		}
	}
	return m
}

// extend adds one more report.
func (m *mismatch) extend(confirmed int64, missing float64) {
	m.reports++
	m.inFlight += confirmed
	m.least = min(m.least, missing)
	for _, c := range m.claims {
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
	for _, c := range m.claims {
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

// compare finds the Envoys whose requests are contradicted: the largest claims, and no more of them than it takes to
// explain what is missing. Without ends of other Envoys' requests there is nothing to compare with.
func (l *Ledger) compare(at *address, m *mismatch, now time.Time) {
	const several = 2 // times what others have in flight for each end is chance
	ended := float64(at.ended() - m.ended)
	completed := ended
	if now := at.served.completed; now.Known() && m.completed.Known() {
		completed = max(0, now.Value-m.completed.Value)
	}
	withEnds := float64(m.inFlight) // of the Envoys that have ends
	for _, c := range m.claims {
		// Ends of an Envoy count as far as the server has completed as many.
		c.own = float64(c.account.ended - c.ended)
		c.own = min(c.own, max(0, completed-max(0, ended-c.own)))
		if c.own == 0 {
			withEnds -= float64(c.inFlight)
		}
	}
	slices.SortFunc(m.claims, func(a, b *claim) int { return cmp.Compare(b.least, a.least) })
	explained := 0.0
	for _, c := range m.claims {
		others, inFlight := min(ended, completed)-c.own, withEnds
		if c.own > 0 {
			inFlight -= float64(c.inFlight)
		}
		if others < 1 || explained >= m.least {
			continue
		}
		usual := max(0, inFlight) / float64(m.reports) * (c.own + 1) / others
		if float64(c.least) > tolerated+several*usual {
			l.doubt(c.account.envoy, now)
			explained += float64(c.least)
		}
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

// inFlight returns the requests in flight over all clusters of an endpoint: of confirmed Envoys, and of all.
func (a *address) inFlight() (confirmed, all int64) {
	for _, s := range a.members {
		confirmed += s.inFlight - s.unconfirmed
		all += s.inFlight
	}
	return confirmed, all
}

// ended returns how many requests to an endpoint have ended, over all its clusters.
func (a *address) ended() (sum uint64) {
	for _, s := range a.members {
		sum += s.sums.Ended
	}
	return sum
}
