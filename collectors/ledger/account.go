package ledger

import (
	"time"

	"steelyard/weighting/flight"
)

// apply adds what a step of the counter changed to the member.
func (l *Ledger) apply(a *account, change *flight.Change) {
	for range change.Close {
		l.close(a.open.head)
	}
	a.envoy.totals.Reconciled += uint64(change.Corrected)
	a.ended += uint32(change.Sums.Ended)
	l.shift(a, change.InFlight)
	if change.Sums.Ended > 0 {
		l.confirm(a)
	}
	if a.watched && change.Sums != (flight.Sums{}) {
		a.member.sums.Add(&change.Sums)
		if change.Sums.Answered == 1 {
			a.member.took(change.Sums.Latency)
		}
		l.changed(a.member.cluster)
		l.noteTraffic(a)
	}
}

// took notes the time of an answer.
func (s *member) took(seconds float64) {
	if s.times == nil {
		s.times = &times{}
	}
	s.times.add(seconds)
}

// shift changes the member's number of requests in flight.
func (l *Ledger) shift(a *account, delta int32) {
	if a.watched && delta != 0 {
		a.member.inFlight += int64(delta)
		if !a.envoy.confirmed {
			a.member.addUnconfirmed(int64(delta))
		}
		l.changed(a.member.cluster)
	}
}

// noteTraffic marks the cluster as one with traffic.
func (l *Ledger) noteTraffic(a *account) {
	if a.watched {
		a.member.cluster.traffic = true
		l.setIdle(a.member.cluster, false)
	}
}

// watch makes the member count the account, or stop counting it.
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

// accountWith returns the account with an endpoint, which it adds if it is new; nil if there are too many.
func (l *Ledger) accountWith(e *envoy, s *member) *account {
	if a := e.account(s); a != nil {
		return a
	}
	if l.accounts >= l.room(e.node, maxAccounts) {
		return nil
	}
	l.accounts++
	a := &account{envoy: e, member: s, open: list{which: inAccount}}
	a.count.Switch(e.basis())
	_, a.watched = s.cluster.watchers[e.node]
	e.accounts[s] = a
	return a
}

// forget drops an account and all that it counts.
func (l *Ledger) forget(a *account) {
	l.clear(a)
	delete(a.envoy.accounts, a.member)
}

// clear takes back all that an account counts, before it is dropped.
func (l *Ledger) clear(a *account) {
	l.watch(a, false)
	l.dropAll(a)
	a.member.forgetAccount(a)
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

// seconds bounds a latency, so that a sum stays meaningful.
func seconds(d time.Duration) float64 { return min(max(d, 0), maxLatency).Seconds() }
