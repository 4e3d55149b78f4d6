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
	// tolerated is how many requests of one Envoy an endpoint's own report may lack: slow uploads, idle streams. More
	// are contradicted within seconds. Fewer are, where that is much for the endpoint, if they stay for smallLasts, in
	// which the other Envoys show how long a request takes there.
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

// mismatches has the rows of an endpoint: of many requests, and of a few.
type mismatches struct{ many, few *mismatch }

// contradicted returns the counts that are contradicted in either, each account's once.
func (m *mismatches) contradicted() (all []*reportedCount) {
	for _, row := range []*mismatch{m.many, m.few} {
		if row == nil {
			continue
		}
		for _, c := range row.counts {
			if c.isContradicted() && !slices.ContainsFunc(all,
				func(other *reportedCount) bool { return other.account == c.account }) {
				all = append(all, c)
			}
		}
	}
	return all
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

// A mismatch is a row of an endpoint's own reports that each show fewer requests than are counted, by more than the
// threshold.
type mismatch struct {
	threshold threshold
	since     time.Time // of the first report of the row
	reports   int
	at        time.Time     // of the newest report
	every     time.Duration // between it and the one before; 0 unknown
	inFlight  int64         // counted, summed over the reports
	least     float64       // requests missing, the least of the reports
	ended     uint64        // requests of all Envoys, as of the first report
	completed weighting.Reading
	counts    []*reportedCount // nil until the Envoys are compared
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
// Requests that the report lacks count nevertheless: the endpoint may not have received them yet, or lost them. But a
// single Envoy does not overrule an endpoint: requests that are contradicted do not count there. An Envoy is
// contradicted if more of its requests are missing than the threshold, for longer than a gauge lags, while requests of
// other Envoys ended there, and if it has far more in flight for each of its ends than the others have: by Little's
// law, that is the time that a request takes at the endpoint, whichever Envoy sent it. Where requests wait in a part of
// a server that its gauges do not show, or because the whole server stalls, those of all Envoys wait. Without requests
// of another Envoy nothing contradicts.
func (l *Ledger) Served(address string, r *weighting.ServerReport, slots float64, now time.Time) {
	l.mu.Lock()
	defer l.release()
	at := l.addresses[canonical(address)]
	if at == nil {
		return
	}
	requests, known := requestsAt(r, slots)
	if !known {
		l.endMismatch(at)
		return
	}
	m := l.mismatches[at]
	if m == nil {
		m = &mismatches{}
	}
	missing := float64(at.inFlight()) - requests
	if !(missing > tolerated) {
		at.matched = now
	}
	m.many = l.follow(at, m.many, threshold{tolerated: tolerated, lasts: gaugeLag}, r, missing, now)
	m.few = l.follow(at, m.few, smallThreshold(slots, requests), r, missing, now)
	if m.many == nil && m.few == nil {
		l.endMismatch(at)
		return
	}
	l.mismatches[at] = m
	l.discount(at, m.contradicted())
}

// endMismatch makes all requests to an endpoint count.
func (l *Ledger) endMismatch(at *address) {
	delete(l.mismatches, at)
	l.discount(at, nil)
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
	m.note(at, missing, now)
	switch m.threshold = t; {
	case m.waits(): // most differences that small are gone by then
		if now.Sub(m.since) >= gaugeLag {
			return l.startRow(at, m, t, r, missing, now)
		}
	case now.Sub(m.since) >= m.patience() && m.compare(at, r, now):
		return l.startRow(at, m, t, r, missing, now)
	}
	return m
}

// waits reports whether a row of a few requests has just begun, so that no Envoys are compared yet.
func (m *mismatch) waits() bool { return m.counts == nil }

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
	m := &mismatch{threshold: t, since: now, at: now, every: before.every, least: missing, ended: at.ended(),
		completed: r.Completions}
	if !t.few || before.reports > 0 || now.Sub(at.contradicted) < strictFor {
		l.collect(at, m, before, now)
	}
	m.note(at, missing, now)
	return m
}

// collect finds the counts to compare: of accounts with more requests than are tolerated, or, where few are in
// question, with any.
func (l *Ledger) collect(at *address, m, before *mismatch, now time.Time) {
	more := int32(tolerated)
	if m.threshold.few {
		more = 0
	}
	m.counts = []*reportedCount{}
	for _, s := range at.slots {
		for _, e := range l.countedBy(s.cluster).envoys {
			a := e.accounts[s]
			if a == nil || !a.watched || a.count.InFlight() <= more || len(m.counts) == maxCounts {
				continue
			}
			c := &reportedCount{account: a, least: a.count.InFlight(), ended: a.ended}
			if i := slices.IndexFunc(before.counts, func(b *reportedCount) bool { return b.account == a }); i >= 0 {
				c.contradicted = before.counts[i].contradicted
			} else if now.Sub(e.contradicted) < strictFor && float64(c.least) > m.threshold.tolerated {
				c.contradicted = now
			}
			m.counts = append(m.counts, c)
		}
	}
}

// note adds one more report.
func (m *mismatch) note(at *address, missing float64, now time.Time) {
	if now.After(m.at) {
		m.at, m.every = now, now.Sub(m.at)
	}
	m.reports++
	m.inFlight += at.inFlight()
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

// patience returns how long a row must be: longer than a gauge lags, and longer than the time between two reports of an
// Envoy that is counted by them.
func (m *mismatch) patience() time.Duration {
	longest := m.threshold.lasts
	for _, c := range m.counts {
		if e := c.account.envoy; e.basis() == flight.ByReports {
			longest = max(longest, 5*e.asked/2)
		}
	}
	return longest
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
		if m.threshold.few && others < minEnds {
			continue
		}
		if others < 1 && c.account.slot.answers.ofOthers(c.account).after(at.matched) {
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
		if c.contradicted.IsZero() {
			c.contradicted = now
		}
		c.account.envoy.contradicted, at.contradicted = now, now
		explained += float64(c.least)
	}
	return compared || !m.threshold.few || len(m.counts) == 0
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

func (c *reportedCount) isContradicted() bool { return !c.contradicted.IsZero() }

// sweepMismatches ends those of endpoints that have stopped reporting.
func (l *Ledger) sweepMismatches(now time.Time) {
	for at, both := range l.mismatches {
		if m := cmp.Or(both.many, both.few); now.Sub(m.at) > max(reportsEnd, 3*m.every) {
			l.endMismatch(at)
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

// inFlight returns the count over all clusters of an endpoint.
func (a *address) inFlight() (sum int64) {
	for _, s := range a.slots {
		sum += s.inFlight
	}
	return sum
}

// ended returns how many requests to an endpoint have ended, over all its clusters.
func (a *address) ended() (sum uint64) {
	for _, s := range a.slots {
		sum += s.sums.Ended
	}
	return sum
}
