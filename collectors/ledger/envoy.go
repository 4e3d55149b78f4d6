package ledger

import (
	"time"

	"steelyard/internal/api"
	"steelyard/weighting/flight"
)

// An envoy is an Envoy that has a stream.
type envoy struct {
	node     Envoy
	accounts map[*member]*account
	requests map[key]*request
	open     int  // requests, with the closed ones
	closed   list // requests whose ends seem lost, and may come after all
	closings int  // length of closed

	services map[string]service // cluster by the Envoy's own name, where that misleads
	streams  int                // of the access log
	reports  []*Reports         // the open streams of load reports, oldest first
	counting int                // of them, those whose gauges count
	first    bool               // in this round there was the first report of a stream
	silent   bool
	progress int  // requests in progress by the last reports, over all endpoints
	unlogged bool // its reports showed requests, and no log did
	wide     bool // its log has requests to other addresses, too
	grouped  Reporters

	came       time.Time // or may be confirmed again
	confirmed  bool      // a request of its ended where an endpoint completed some since; see mismatch.go
	overstated overstated

	unbatched time.Time   // when Steelyard asked it to stop batching its entries
	early     map[key]int // ends since then without a beginning, which may be in the last batch

	mode  Mode
	calm  time.Time // since when the rate is low enough for a mode before this one
	rate  rate
	asked time.Duration // interval of reports

	lastEvent, lastReport, lastMessage time.Time
	totals                             api.Entries
}

// A service is what an Envoy's own name for a cluster stands for.
type service struct {
	name   string    // of a cluster here; empty: it is none of them
	hashes bool      // it chooses endpoints by a hash, and not by the weights
	named  time.Time // in the latest report
}

// overstated is about a load report with more requests of an endpoint than there can be.
type overstated struct {
	address       string // of the endpoint of the latest one
	requests      uint64
	since, latest time.Time
}

// overstate notes such a report.
func (e *envoy) overstate(address string, requests uint64, now time.Time) {
	o := &e.overstated
	if now.Sub(o.latest) > rowPause {
		o.since = now
	}
	o.address, o.requests, o.latest = address, requests, now
}

// reported reports whether there are load reports to count by.
func (e *envoy) reported() bool { return e.counting > 0 }

// reportsOnly reports whether load reports are the only source of the Envoy's requests. An Envoy without requests has
// no log either, but more frequent reports of it would show nothing sooner.
func (e *envoy) reportsOnly() bool { return e.mode == ModeReports || e.streams == 0 && e.unlogged }

// basis returns what the Envoy is counted by. Events take precedence over reports, which are older. A silent Envoy is
// not counted at all.
func (e *envoy) basis() flight.Basis {
	switch {
	case e.silent:
		return flight.ByNothing
	case e.streams > 0 && e.mode != ModeReports:
		return flight.ByLog
	case e.reported():
		return flight.ByReports
	}
	return flight.ByNothing
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

// patience returns how long an Envoy, or one of its streams, may send nothing.
func (e *envoy) patience() time.Duration { return max(silentAfter, silentIntervals*e.asked) }

// Tick finds what changes with time and without a message: Envoys and streams that became silent, request rates that
// fell, clusters without traffic, and endpoints that stopped reporting. It also prepares what the next reads need. Call
// it about four times a second.
func (l *Ledger) Tick(now time.Time) {
	l.mu.Lock()
	defer l.release()
	for _, e := range l.envoys {
		limit := e.patience()
		if len(e.reports) > 0 && !e.silent && now.Sub(e.lastMessage) > limit {
			l.restate(e, func() { e.silent = true })
		}
		if e.counting > 1 {
			l.stopSilent(e, now.Add(-limit))
		}
		if e.mode == ModeBatched {
			l.chooseMode(e, now, false)
		}
		if len(e.early) > 0 && !e.unbatching(now) {
			e.early = nil
		}
	}
	for _, c := range l.clusters {
		l.sweepTraffic(c, now)
		c.rotateTimes(now)
	}
	l.sweepReports(now)
	for _, c := range l.clusters { // after all that changes the epochs
		c.counted = l.countedBy(c)
	}
}

// sweepTraffic finds out whether a cluster is idle. While a watcher reports nothing, it may have requests.
func (l *Ledger) sweepTraffic(c *cluster, now time.Time) {
	if c.traffic {
		c.traffic, c.quiet = false, now
		return
	}
	w := l.countedBy(c)
	all := len(w.envoys) == len(c.watchers)
	if !all || c.quiet.IsZero() || now.Before(c.quiet) {
		c.quiet = now
	}
	if quiet := now.Sub(c.quiet); !all || !c.idle && quiet >= idleAfter {
		l.setIdle(c, all && quiet >= idleReports*w.slowest())
	}
}
