package ledger

import "time"

// An account is what one Envoy has with one endpoint of one cluster. Accounts are as
// many as Envoys times endpoints, so they are kept small.
type account struct {
	envoy   *envoy
	slot    *slot
	watched bool   // the Envoy watches the slot's cluster: the slot counts it
	removed bool   // from its Envoy's accounts
	ended   uint32 // requests, as credited; it begins anew at zero when it is full

	open list // requests begun and not ended, oldest first

	counted    int32 // what the slot holds of it now, if it is watched
	begun      int32 // length of open
	closed     int32 // of the Envoy's closed requests, those of the account
	difference int32 // in progress by the last reports, less begun at that time
	correction int32 // added to begun
	low, high  int32 // difference, since each stream of reports has last told

	inProgress int32 // by the last report of each stream that counts
	unended    int32 // in the sum of requests issued, and not in that of the ended
	gap        int32 // requests issued by the reports, less those counted as issued
	least      int32 // gap of the reports since it was last reckoned with
	most       int32
	unseen     int32 // counted as issued because reports say so, and not seen to begin
	owed       int32 // counted twice: as unseen, and later seen to begin
	next       tally // of the report that is being read
}

// A tally is what a report says of one endpoint, over all clusters of an Envoy that
// are meant by it.
type tally struct{ inProgress, issued, succeeded, errors int32 }

// sums are cumulative.
type sums struct {
	issued, ended, failed, errors, succeeded, answered uint64
	latency                                            float64 // seconds

	sized uint64  // of issued, those whose size is known
	bytes float64 // of their bodies; a float64, since it must not wrap around whatever sizes are made up
}

func (s *sums) add(d *sums) {
	s.issued += d.issued
	s.ended += d.ended
	s.failed += d.failed
	s.errors += d.errors
	s.succeeded += d.succeeded
	s.answered += d.answered
	s.latency += d.latency
	s.sized += d.sized
	s.bytes += d.bytes
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

// believed is how many requests are in flight, without those that nobody believes in.
func (s *slot) believed() int64 {
	n := s.inFlight
	for _, a := range s.disputed {
		if a.watched {
			n -= int64(a.counted)
		}
	}
	return n
}

// settle brings the slot up to what the account says.
func (l *Ledger) settle(a *account) {
	value := a.value()
	delta := value - a.counted
	if delta == 0 {
		return
	}
	a.counted = value
	l.shift(a, delta)
}

// shift changes what the slot counts.
func (l *Ledger) shift(a *account, delta int32) {
	if a.watched && delta != 0 {
		a.slot.inFlight += int64(delta)
		l.changed(a.slot.cluster)
	}
}

// credit adds to the sums.
func (l *Ledger) credit(a *account, d sums) {
	a.unended = kept(int64(a.unended) + int64(d.issued) - int64(d.ended))
	a.ended += uint32(d.ended)
	if a.watched && d != (sums{}) {
		a.slot.sums.add(&d)
		l.changed(a.slot.cluster)
		l.noteTraffic(a)
	}
}

// noteTraffic has the cluster be one with traffic.
func (l *Ledger) noteTraffic(a *account) {
	if a.watched {
		a.slot.cluster.traffic = true
		l.setIdle(a.slot.cluster, false)
	}
}

// watch has the slot count the account, or not any more.
func (l *Ledger) watch(a *account, watched bool) {
	if a.watched == watched {
		return
	}
	if watched {
		a.watched = true
		l.shift(a, a.counted)
		return
	}
	l.shift(a, -a.counted)
	a.watched = false
}

// account returns the account with an endpoint, or nil.
func (e *envoy) account(s *slot) *account {
	if e == nil {
		return nil
	}
	return e.accounts.of(s)
}

// accountWith returns the account with an endpoint, a new one if need be. It is nil
// for one too many.
func (l *Ledger) accountWith(e *envoy, s *slot) *account {
	if a := e.account(s); a != nil {
		return a
	}
	if l.accounts >= l.room(e.who, maxAccounts) {
		return nil
	}
	l.accounts++
	a := &account{envoy: e, slot: s, open: list{which: inAccount}}
	_, a.watched = s.cluster.watchers[e.who]
	e.accounts.add(a)
	return a
}

// forget drops an account with all it counts.
func (l *Ledger) forget(a *account) {
	l.clear(a)
	a.envoy.accounts.remove(a)
}

// clear takes back all that an account counts, before it is dropped.
func (l *Ledger) clear(a *account) {
	l.watch(a, false)
	l.dropAll(a)
	a.slot.unaccuse(a)
	for _, r := range a.envoy.reports {
		r.setGauge(a, 0)
	}
	l.accounts--
}

// dropAll forgets the requests of an account: their ends will not be told.
func (l *Ledger) dropAll(a *account) {
	for a.open.head != nil {
		l.drop(a.open.head)
	}
	for r := a.envoy.closed.head; r != nil && a.closed > 0; {
		next := r.links[inAccount].next
		if r.key.account == a {
			l.drop(r)
		}
		r = next
	}
}

// restart has the account begin anew from what the last report said: unseen requests
// may be in progress, of which only the ends will be heard.
func (a *account) restart(unseen int32) {
	a.correction, a.difference = unseen, unseen
	a.low, a.high = 0, 0
	a.reckonAnew()
	a.unseen = 0
}

// reconcile compares the events with the gauges of the reports. Two differences of one
// sign in a row are a drift, and the smaller of them its size; a single one may be
// the race of an event with the report. The first report of a stream is believed at
// once: before it nothing vouched for the events. Where several streams tell of the
// Envoy, each is behind the events by its own age: then a difference is the smallest
// of a round, in which each of them told.
func (l *Ledger) reconcile(a *account, r *round) {
	difference := a.inProgress - a.begun
	if r.begins {
		a.low, a.high = difference, difference
	}
	a.low, a.high = min(a.low, difference), max(a.high, difference)
	if !r.ends {
		return
	}
	difference = median(0, a.low, a.high)
	if r.first {
		a.difference = difference
		a.unended = kept(int64(a.unended) + int64(max(0, difference-a.correction))) // issued, and nobody here knows when
	}
	before := a.correction
	a.correction = median(0, a.difference, difference)
	a.difference = difference
	a.envoy.reconciled += uint64(abs(a.correction - before))
	if lost := min(-a.correction, -before); lost > 0 {
		l.closeOldest(a, lost)
	}
}

// closeOldest ends requests whose ends were lost: too many for two reports.
func (l *Ledger) closeOldest(a *account, n int32) {
	n = min(n, a.begun)
	for range n {
		l.close(a.open.head)
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
func (l *Ledger) reckon(a *account, issued int32, due bool) {
	a.gap = kept(int64(a.gap) + int64(issued))
	a.least, a.most = min(a.least, a.gap), max(a.most, a.gap)
	if !due {
		return
	}
	switch {
	case a.least > 0:
		l.issue(a, a.least, Size{})
		a.unseen = kept(int64(a.unseen) + int64(a.least))
		a.gap -= a.least
	case a.most < 0:
		late := min(-a.most, a.unseen) // beyond that a report was lost, not an event
		a.unseen -= late
		a.owed = kept(int64(a.owed) + int64(late))
		a.gap -= a.most
	}
	a.least, a.most = a.gap, a.gap
}

// reckonAnew forgets what the reports said of requests issued.
func (a *account) reckonAnew() { a.gap, a.least, a.most = 0, 0, 0 }

// report takes in what a report alone says: requests issued, but for those that were
// seen to begin before the log ended, and as ended whatever else is not in progress. How
// requests ended counts unless the log told of the same ones.
func (l *Ledger) report(a *account, t tally, logged bool) {
	issued := kept(max(0, int64(t.issued)+int64(a.gap)))
	a.reckonAnew()
	l.credit(a, sums{issued: uint64(issued)})
	if !logged {
		l.credit(a, sums{succeeded: uint64(t.succeeded), errors: uint64(t.errors)})
	}
	l.credit(a, sums{ended: uint64(max(0, a.unended-a.inProgress))})
}

// issue adds requests to the sums of those issued, each with a body of this size. So many as are owed
// add nothing: they are in the sums as requests of unknown size.
func (l *Ledger) issue(a *account, n int32, body Size) {
	paid := min(n, a.owed)
	a.owed -= paid
	d := sums{issued: uint64(n - paid)}
	if body.Known {
		d.sized, d.bytes = d.issued, float64(d.issued)*float64(body.Bytes)
	}
	l.credit(a, d)
}

// kept is a number that an account can keep: whoever sends more made it up.
func kept(n int64) int32 { return int32(max(-maxKept, min(maxKept, n))) }

func median(a, b, c int32) int32 { return max(min(a, b), min(max(a, b), c)) }

func abs(x int32) int32 { return max(x, -x) }

// seconds is a latency that can be added up.
func seconds(d time.Duration) float64 { return min(max(d, 0), maxLatency).Seconds() }
