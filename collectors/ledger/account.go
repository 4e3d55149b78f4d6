package ledger

import "time"

// An account is what one Envoy has with one endpoint. Accounts are as many as
// Envoys times endpoints, so they are kept small.
type account struct {
	envoy   *envoy
	address *address
	slots   []*slot // that the account counts in: of clusters that the Envoy watches

	open list // requests begun and not ended, oldest first

	counted    int32 // what the slots hold of it now
	begun      int32 // length of open
	difference int32 // in progress by the last report, less begun at that time
	correction int32 // added to begun

	inProgress int32 // by the last report
	gap        int32 // requests issued by the reports, less those counted as issued
	least      int32 // gap of the reports since it was last reckoned with
	most       int32
	unseen     int32 // counted as issued because reports say so, and not seen to begin
	owed       int32 // counted twice: as unseen, and later seen to begin
	next       tally // of the report that is being read
}

// A tally is what a report says of one address, over all clusters of an Envoy.
type tally struct{ inProgress, issued int32 }

// sums are cumulative.
type sums struct {
	issued, ended, failed, answered, bytes uint64
	latency                                float64 // seconds
}

func (s *sums) add(d *sums) {
	s.issued += d.issued
	s.ended += d.ended
	s.failed += d.failed
	s.answered += d.answered
	s.bytes += d.bytes
	s.latency += d.latency
}

// value is the number of requests in flight, by what the Envoy is counted by.
func (a *account) value() int32 {
	switch a.envoy.basis() {
	case byEvents:
		return max(0, a.begun+a.correction)
	case byReports:
		return a.inProgress
	}
	return 0
}

// settle brings the slots up to what the account says.
func (l *Ledger) settle(a *account) {
	value := a.value()
	delta := value - a.counted
	if delta == 0 {
		return
	}
	a.counted = value
	for _, s := range a.slots {
		s.inFlight += int64(delta)
		l.changed(s.cluster)
	}
}

// credit adds to the sums.
func (l *Ledger) credit(a *account, d sums) {
	if d == (sums{}) {
		return
	}
	for _, s := range a.slots {
		s.sums.add(&d)
		l.changed(s.cluster)
	}
}

func (l *Ledger) attach(a *account, s *slot) {
	a.slots = append(a.slots, s)
	if a.counted != 0 {
		s.inFlight += int64(a.counted)
		l.changed(s.cluster)
	}
}

func (l *Ledger) detach(a *account, s *slot) {
	before := len(a.slots)
	if a.slots = without(a.slots, s); len(a.slots) == before || a.counted == 0 {
		return
	}
	s.inFlight -= int64(a.counted)
	l.changed(s.cluster)
}

// account returns the account with an address, or nil.
func (e *envoy) account(a *address) *account {
	if e == nil || a == nil || a.number >= len(e.accounts) {
		return nil
	}
	return e.accounts[a.number]
}

// accountWith returns the account with an address, a new one if need be. It is nil
// for an address that is no endpoint, and for one too many.
func (l *Ledger) accountWith(e *envoy, a *address) *account {
	if acc := e.account(a); acc != nil || a == nil {
		return acc
	}
	if l.accounts >= l.room(e.who, maxAccounts) {
		return nil
	}
	l.accounts++
	acc := &account{envoy: e, address: a, open: list{which: inAccount}}
	for len(e.accounts) <= a.number {
		e.accounts = append(e.accounts, nil)
	}
	e.accounts[a.number] = acc
	for _, s := range a.slots {
		if _, watches := s.cluster.watchers[e.who]; watches {
			l.attach(acc, s)
		}
	}
	return acc
}

// forget drops an account with all it counts.
func (l *Ledger) forget(a *account) {
	for _, s := range a.slots {
		if a.counted != 0 {
			s.inFlight -= int64(a.counted)
			l.changed(s.cluster)
		}
	}
	a.slots, a.counted = nil, 0
	for a.open.head != nil {
		l.drop(a.open.head)
	}
	a.envoy.accounts[a.address.number] = nil
	l.accounts--
}

// restart has the account begin anew from what the last report said: unseen requests
// may be in progress, of which only the ends will be heard.
func (a *account) restart(unseen int32) {
	a.correction, a.difference = unseen, unseen
	a.gap, a.least, a.most, a.unseen = 0, 0, 0, 0
}

// reconcile compares the events with a report's gauge. Two differences of one
// sign in a row are a drift, and the smaller of them its size; a single one may be
// the race of an event with the report. The first report of a stream is believed at
// once: before it nothing vouched for the events.
func (l *Ledger) reconcile(a *account) {
	difference := a.inProgress - a.begun
	if !a.envoy.reports.later {
		a.difference = difference
	}
	before := a.correction
	a.correction = median(0, a.difference, difference)
	a.difference = difference
	a.envoy.reconciled += uint64(abs(a.correction - before))
	if lost := min(-a.correction, -before); lost > 0 {
		l.dropOldest(a, lost)
	}
}

// dropOldest ends requests whose ends were lost: too many for two reports.
func (l *Ledger) dropOldest(a *account, n int32) {
	n = min(n, a.begun)
	for range n {
		l.drop(a.open.head)
	}
	a.correction += n
	a.difference += n
	l.credit(a, sums{ended: uint64(n)})
}

// reckon adds the requests that began unseen to the sum of those issued. Like a
// difference of the gauge, a gap must outlast a report, and a log that lags
// more than that: it counts by what it was at all reports of a period. What was added
// and then seen to begin after all shows as a gap below zero. It is owed, since the sum
// must not fall.
func (l *Ledger) reckon(a *account, issued int32) {
	a.gap += issued
	a.least, a.most = min(a.least, a.gap), max(a.most, a.gap)
	if !a.envoy.reports.due {
		return
	}
	switch {
	case a.least > 0:
		l.issue(a, a.least)
		a.unseen += a.least
		a.gap -= a.least
	case a.most < 0:
		late := min(-a.most, a.unseen) // beyond that a report was lost, not an event
		a.unseen -= late
		a.owed += late
		a.gap -= a.most
	}
	a.least, a.most = a.gap, a.gap
}

// issue adds to the sum of requests issued what is not owed.
func (l *Ledger) issue(a *account, n int32) {
	paid := min(n, a.owed)
	a.owed -= paid
	l.credit(a, sums{issued: uint64(n - paid)})
}

func median(a, b, c int32) int32 { return max(min(a, b), min(max(a, b), c)) }

func abs(x int32) int32 { return max(x, -x) }

// seconds is a latency that can be added up.
func seconds(d time.Duration) float64 { return min(max(d, 0), maxLatency).Seconds() }
