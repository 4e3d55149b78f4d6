package ledger

import (
	"time"

	"steelyard/weighting/flight"
)

// An account is what one Envoy has with one endpoint of one cluster. Accounts are as
// many as Envoys times endpoints, so they are kept small.
type account struct {
	envoy *envoy
	slot  *slot
	count flight.Counter

	open   list   // requests begun and not ended, oldest first: as many as count has open
	closed int32  // of the Envoy's closed requests, those of the account
	ended  uint32 // requests, as in the sums; it begins again at zero when it is full

	next    tally // of the report that is being read
	watched bool  // the Envoy watches the slot's cluster: the slot counts it
	removed bool  // from its Envoy's accounts
	recent  outcomes
}

// A tally is a report about one endpoint, over all clusters of an Envoy that
// are meant by it.
type tally struct{ inProgress, issued, succeeded, errors int32 }

// undisputed is how many requests are in flight, without those that are disputed.
func (s *slot) undisputed() int64 {
	n := s.inFlight
	for _, a := range s.disputed {
		if a.watched {
			n -= int64(a.count.InFlight())
		}
	}
	return n
}

// apply takes what a step changed into the slot.
func (l *Ledger) apply(a *account, change *flight.Change) {
	for range change.Close {
		l.close(a.open.head)
	}
	a.envoy.reconciled += uint64(change.Corrected)
	a.ended += uint32(change.Sums.Ended)
	l.shift(a, change.InFlight)
	if a.watched && change.Sums != (flight.Sums{}) {
		a.slot.sums.Add(&change.Sums)
		if change.Sums.Answered == 1 {
			a.slot.took(change.Sums.Latency)
		}
		l.changed(a.slot.cluster)
		l.noteTraffic(a)
	}
}

// took notes the time of an answer.
func (s *slot) took(seconds float64) {
	if s.times == nil {
		s.times = &times{}
	}
	s.times.add(seconds)
}

// shift changes the number in flight that the slot counts.
func (l *Ledger) shift(a *account, delta int32) {
	if a.watched && delta != 0 {
		a.slot.inFlight += int64(delta)
		l.changed(a.slot.cluster)
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
		l.shift(a, a.count.InFlight())
		return
	}
	l.shift(a, -a.count.InFlight())
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
	if l.accounts >= l.room(e.node, maxAccounts) {
		return nil
	}
	l.accounts++
	a := &account{envoy: e, slot: s, open: list{which: inAccount}}
	a.count.Switch(e.basis())
	_, a.watched = s.cluster.watchers[e.node]
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
	l.accounts--
}

// dropAll forgets the requests of an account: their ends will not be logged.
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

// seconds is a latency that can be added up.
func seconds(d time.Duration) float64 { return min(max(d, 0), maxLatency).Seconds() }
