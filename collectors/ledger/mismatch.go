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
	// idle streams. More are contradicted within seconds. Fewer are, where that is much for the endpoint, if they stay
	// for smallLasts, in which the other Envoys show how long a request takes there.
	tolerated  = 8
	muchOfAll  = 0.25 // of the slots is much
	smallLasts = 10 * time.Second
	// minEnds of other Envoys' requests show what is usual at an endpoint, where a few requests are in question.
	minEnds = 8
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
	requests  float64

	// Rows of many requests, and of a few; nil where the report has those of the Envoys that are confirmed.
	many, few    *mismatch
	contradicted time.Time // when an Envoy's requests were last
}

// A threshold is how many requests an endpoint's own reports may lack, and for how long.
type threshold struct {
	tolerated float64 // of one host, for its Envoys without ends together
	sum       float64 // of all such hosts
	lasts     time.Duration
	few       bool
}

// smallThreshold returns the threshold for a few requests: a share of the slots, or, where they are unknown, the number
// of requests that the endpoint reports.
func smallThreshold(slots, requests float64) threshold {
	much := max(2, requests)
	if slots > 0 {
		much = max(1, muchOfAll*slots)
	}
	return threshold{tolerated: min(much, tolerated), sum: tolerated, lasts: smallLasts, few: true}
}

// A mismatch is a row of an endpoint's own reports that each show fewer requests than the confirmed Envoys have, by
// more than the threshold.
type mismatch struct {
	threshold threshold
	since     time.Time // of the first report of the row
	reports   int
	inFlight  int64   // of the confirmed Envoys, summed over the reports
	least     float64 // requests missing, the least of the reports
	shown     float64 // requests, the most of the reports
	ended     uint64  // requests of all Envoys, as of the first report
	completed weighting.Reading
	counts    []*reportedCount // nil until the Envoys are compared
	hosts     []string         // of confirmed Envoys, two at most
}

// A reportedCount is the requests in flight of one Envoy during a mismatch.
type reportedCount struct {
	account      *account
	inFlight     int64     // summed over the reports
	least        int32     // in flight, at any of the reports
	ended        uint32    // requests of this Envoy, as of the first report
	own          float64   // of those that ended since, this Envoy's
	contradicted time.Time // since when; zero for one that is not
	shown        uint16    // requests that count nevertheless
	alone        bool      // only its host has requests at the endpoint, which shows none
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
// a part of a server that its gauges do not show, or because the whole server stalls, those of all Envoys wait. If only
// those of one of several hosts do, as many count as the endpoint showed while it agreed. Without requests of another
// Envoy nothing else contradicts.
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
	s.completed, s.requests = r.Completions, requests
	confirmed, all := at.inFlight()
	missing := float64(confirmed) - requests
	if !(missing > tolerated) {
		s.matched = now
	}
	s.many = l.follow(at, s.many, threshold{tolerated: tolerated, lasts: gaugeLag}, r, missing, now)
	s.few = l.follow(at, s.few, smallThreshold(slots, requests), r, missing, now)
	l.discount(at, s.disputed())
	l.limit(at, float64(all)-max(requests, float64(confirmed)), now)
}

// believe makes all requests to an endpoint count.
func (l *Ledger) believe(at *address) {
	at.served.at, at.served.many, at.served.few = time.Time{}, nil, nil
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

// confirm notes what the endpoint has shown of an Envoy, one of whose requests ended there.
func (l *Ledger) confirm(a *account) {
	e, s := a.envoy, &a.slot.at.served
	_, all := a.slot.at.inFlight()
	others := float64(all) - float64(a.count.InFlight())
	if a.watched && !s.at.IsZero() {
		had := min(float64(a.count.InFlight())+1, s.requests-others, math.MaxUint16)
		a.shown = max(a.shown, uint16(max(0, had)))
	}
	if e.confirmed || !s.worked.After(e.came) && (s.at.IsZero() || s.completed.Known()) {
		return
	}
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

// disputed returns the counts that are contradicted in either row, each account's once.
func (s *served) disputed() (all []*reportedCount) {
	for _, row := range []*mismatch{s.many, s.few} {
		if row == nil {
			continue
		}
		for _, c := range row.counts {
			if !c.contradicted.IsZero() && !slices.ContainsFunc(all,
				func(other *reportedCount) bool { return other.account == c.account }) {
				all = append(all, c)
			}
		}
	}
	return all
}

// follow adds a report to a row, and returns the row as it is then: nil if no more than the threshold is missing.
func (l *Ledger) follow(
	at *address, m *mismatch, t threshold, r *weighting.ServerReport, missing float64, now time.Time,
) *mismatch {
	switch {
	case !(missing > t.tolerated):
		return nil
	case m == nil:
		return l.startRow(at, &mismatch{}, t, r, missing, now)
	}
	m.note(at, missing)
	switch m.threshold = t; {
	case m.counts == nil: // most differences that small are gone by then
		if now.Sub(m.since) >= gaugeLag {
			return l.startRow(at, m, t, r, missing, now)
		}
	case now.Sub(m.since) >= m.patience() && m.compare(at, r, now):
		return l.startRow(at, m, t, r, missing, now)
	}
	return m
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
	at *address, before *mismatch, t threshold, r *weighting.ServerReport, missing float64, now time.Time,
) *mismatch {
	m := &mismatch{threshold: t, since: now, least: missing, ended: at.ended(), completed: r.Completions}
	if !t.few || before.reports > 0 || now.Sub(at.served.contradicted) < strictFor {
		l.collect(at, m, before, now)
	}
	m.note(at, missing)
	return m
}

// collect finds the counts to compare: of accounts of confirmed Envoys with more requests than are tolerated, or, where
// few are in question, with any.
func (l *Ledger) collect(at *address, m, before *mismatch, now time.Time) {
	more := int32(tolerated)
	if m.threshold.few {
		more = 0
	}
	m.counts = []*reportedCount{}
	for _, s := range at.slots {
		for _, e := range l.countedBy(s.cluster).envoys {
			if !e.confirmed {
				continue
			}
			if len(m.hosts) < 2 && !slices.Contains(m.hosts, e.node.Host) {
				m.hosts = append(m.hosts, e.node.Host)
			}
			a := e.accounts[s]
			if a == nil || !a.watched || a.count.InFlight() <= more || len(m.counts) == maxCounts {
				continue
			}
			c := &reportedCount{account: a, least: a.count.InFlight(), ended: a.ended}
			if i := slices.IndexFunc(before.counts, func(b *reportedCount) bool { return b.account == a }); i >= 0 {
				b := before.counts[i]
				c.contradicted, c.shown, c.alone = b.contradicted, b.shown, b.alone
			} else if now.Sub(e.contradicted) < strictFor && float64(c.least) > m.threshold.tolerated {
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
	m.shown = max(m.shown, float64(confirmed)-missing)
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
	longest := m.threshold.lasts
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
// matched is enough, because where a wrong count keeps all requests away, none ends later. Where few requests are in
// question, the row continues until minEnds requests of others have ended; compare reports whether that is so.
func (m *mismatch) compare(at *address, r *weighting.ServerReport, now time.Time) (compared bool) {
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
	explained, left := 0.0, tolerance{threshold: m.threshold}
	for _, c := range m.counts {
		others := min(ended, completed) - c.own
		if m.judgeAlone(c, completed, now) {
			compared = true
			continue
		}
		if m.threshold.few && others < minEnds {
			continue
		}
		if others < 1 && c.account.slot.answers.ofOthers(c.account).after(at.served.matched) {
			others = 1
		}
		if others < 1 {
			continue
		}
		compared = true
		inFlight := withEnds
		if c.own > 0 {
			inFlight -= float64(c.inFlight)
		}
		usual := max(0, inFlight) / float64(m.reports) * (c.own + 1) / others
		if explained >= m.least || m.threshold.few && float64(c.least) > 2*(m.least-explained) ||
			left.covers(c, several*usual) {
			c.contradicted = time.Time{}
			continue
		}
		c.contradict(now)
		c.account.envoy.contradicted, at.served.contradicted = now, now
		explained += float64(c.least)
	}
	return compared || !m.threshold.few || len(m.counts) == 0
}

// judgeAlone reports whether only the host of a count had requests during a row, in which the endpoint showed none,
// while another host's Envoys are confirmed. Then as many count as the endpoint showed of the Envoy before: that many,
// if it hangs, and none of those that were never there.
func (m *mismatch) judgeAlone(c *reportedCount, completed float64, now time.Time) bool {
	ofHost := int64(0)
	for _, other := range m.counts {
		if other.account.envoy.node.Host == c.account.envoy.node.Host {
			ofHost += other.inFlight
		}
	}
	alone := m.shown <= 0 && completed == 0 && ofHost == m.inFlight && len(m.hosts) > 1
	switch {
	case alone && float64(c.least) > m.threshold.tolerated:
		c.contradict(now)
		c.shown, c.alone = c.account.shown, true
	case c.alone:
		c.contradicted, c.shown, c.alone = time.Time{}, 0, false
	}
	return alone
}

// contradict notes that none of the requests count.
func (c *reportedCount) contradict(now time.Time) {
	if c.contradicted.IsZero() {
		c.contradicted = now
	}
	c.shown, c.alone = 0, false
}

// A tolerance is what is left of the requests that are tolerated. Where few are in question, the Envoys of a host that
// have no ends share what is tolerated of one host, and all hosts share a sum, whatever their node ids.
type tolerance struct {
	threshold threshold
	used      float64
	hosts     map[string]float64 // used
}

// covers reports whether a count is no more than what is usual and what is left.
func (t *tolerance) covers(c *reportedCount, usual float64) bool {
	least, host := float64(c.least), c.account.envoy.node.Host
	if !t.threshold.few || c.own > 0 {
		return least <= t.threshold.tolerated+usual
	}
	above := max(0, least-usual)
	if above > min(t.threshold.tolerated-t.hosts[host], t.threshold.sum-t.used) {
		return false
	}
	if t.hosts == nil {
		t.hosts = make(map[string]float64)
	}
	t.hosts[host] += above
	t.used += above
	return true
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
		var here []*reportedCount
		for _, c := range counts {
			if c.account.slot == s {
				here = append(here, c)
			}
		}
		if len(here)+len(s.discounted) > 0 {
			s.discounted = here
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
