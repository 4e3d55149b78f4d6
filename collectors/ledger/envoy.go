package ledger

import (
	"time"

	"steelyard/weighting/flight"
)

// overstate notes such a report.
func (e *envoy) overstate(address string, requests uint64, now time.Time) {
	o := &e.overstated
	if now.Sub(o.latest) > rowPause {
		o.since = now
	}
	o.address, o.requests, o.latest = address, requests, now
}

// envoyFor returns the Envoy, which it adds if it is new; nil if there are too many.
func (l *Ledger) envoyFor(node Envoy, now time.Time) *envoy {
	e := l.envoys[node]
	if e == nil {
		if len(l.envoys) >= l.room(node, maxEnvoys) {
			return nil
		}
		e = &envoy{node: node, accounts: make(map[*member]*account), requests: make(map[key]*request),
			closed: list{which: inAccount}, lastMessage: now, came: now}
		l.envoys[node] = e
		l.epoch++
	}
	return e
}

// restate changes something that the Envoy's basis depends on, and converts its counts to the new basis.
func (l *Ledger) restate(e *envoy, change func()) {
	before := e.basis()
	change()
	after := e.basis()
	if before == after {
		return
	}
	l.epoch++
	for _, r := range e.reports {
		r.logged = r.logged || before == flight.ByLog
	}
	for _, a := range e.accounts {
		if before == flight.ByLog && after == flight.ByReports {
			l.dropAll(a)
		}
		change := a.count.Switch(after)
		l.apply(a, &change)
	}
}

// noteMessage notes that an Envoy sent something.
func (l *Ledger) noteMessage(e *envoy, now time.Time) {
	e.lastMessage = now
	if e.silent {
		l.restate(e, func() { e.silent = false })
	}
}

// leaveIfGone forgets an Envoy without streams.
func (l *Ledger) leaveIfGone(e *envoy) {
	if e.streams > 0 || len(e.reports) > 0 {
		return
	}
	for _, a := range e.accounts {
		l.clear(a)
	}
	clear(e.accounts)
	if e.mode != ModeEvents {
		l.generation.Add(1)
	}
	delete(l.envoys, e.node)
	l.services -= len(e.services)
	add(&l.left, &e.totals)
	l.epoch++
}

// regroup updates in which of the Reporters the Envoy's streams are counted.
func (l *Ledger) regroup(e *envoy) {
	l.reporters.WithAccessLog -= e.grouped.WithAccessLog
	l.reporters.ReportsOnly -= e.grouped.ReportsOnly
	switch {
	case l.watching[e.node] == nil:
		e.grouped = Reporters{}
	case e.reportsOnly():
		e.grouped = Reporters{ReportsOnly: len(e.reports)}
	default:
		e.grouped = Reporters{WithAccessLog: len(e.reports)}
	}
	l.reporters.WithAccessLog += e.grouped.WithAccessLog
	l.reporters.ReportsOnly += e.grouped.ReportsOnly
}
