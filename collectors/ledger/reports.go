package ledger

import (
	"maps"
	"slices"
	"strings"
	"time"

	"steelyard/weighting/flight"
)

// Reports is an open stream of load reports. An Envoy has one; several are of Envoys that
// share a node id behind one address, and then they add up, or one is left over from
// before its Envoy opened the next.
type Reports struct {
	ledger  *Ledger
	envoy   *envoy // nil for one too many, and after Close
	process uint8  // tells it from the other streams of its Envoy
	counts  bool   // what it tells is in the Envoy's accounts
	later   bool   // there was a report over this stream
	told    bool   // in this round
	logged  bool   // since the last report a log told of the same requests, too

	opened, heard time.Time
	compared      time.Time // when the sums of requests issued were last compared
}

// Reporters are the open streams of load reports of Envoys that watch a cluster, by whether
// a log tells of the same requests. Others do not count: they would make these report more
// seldom, and anybody can invent them.
type Reporters struct {
	Beside int // a log that does, or the Envoy has no requests
	Alone  int // there is nothing but the reports
}

// Reporting notes that an Envoy opened a stream of load reports and was asked
// for one every interval. What one Envoy too many says is ignored.
func (l *Ledger) Reporting(who Envoy, interval time.Duration, now time.Time) *Reports {
	l.mu.Lock()
	defer l.release()
	r := &Reports{ledger: l, envoy: l.envoyFor(who, now), opened: now, heard: now}
	if e := r.envoy; e != nil {
		if r.process = e.process(); r.process == none {
			r.envoy = nil
			return r
		}
		e.reports, e.asked = append(e.reports, r), interval
		l.regroup(e)
		l.hear(e, now)
	}
	return r
}

// none is the process of no stream.
const none = 255

// process is the smallest number that no open stream of load reports has.
func (e *envoy) process() (smallest uint8) {
	for smallest < none && slices.ContainsFunc(e.reports, func(r *Reports) bool { return r.process == smallest }) {
		smallest++
	}
	return smallest
}

// Reporters counts the streams of load reports.
func (l *Ledger) Reporters() Reporters {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.reporters
}

// ReportersWith counts them with this Envoy, and says whether its reports are alone and
// whether it watches a cluster. One without a stream is taken for one that does, and has
// a stream: it may be about to subscribe.
func (l *Ledger) ReportersWith(who Envoy) (all Reporters, alone, watches bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	all = l.reporters
	e := l.envoys[who]
	opened := e != nil && len(e.reports) > 0
	alone = e != nil && e.alone()
	watches = l.watching[who] != nil
	switch {
	case opened && watches:
	case alone:
		all.Alone++
	default:
		all.Beside++
	}
	return all, alone, watches || !opened
}

// regroup counts the Envoy's streams of load reports for what they are now.
func (l *Ledger) regroup(e *envoy) {
	l.reporters.Beside -= e.grouped.Beside
	l.reporters.Alone -= e.grouped.Alone
	switch {
	case l.watching[e.who] == nil:
		e.grouped = Reporters{}
	case e.alone():
		e.grouped = Reporters{Alone: len(e.reports)}
	default:
		e.grouped = Reporters{Beside: len(e.reports)}
	}
	l.reporters.Beside += e.grouped.Beside
	l.reporters.Alone += e.grouped.Alone
}

// Asked notes that the Envoy was asked for a report every interval from now on.
func (r *Reports) Asked(interval time.Duration) {
	r.ledger.mu.Lock()
	defer r.ledger.release()
	if r.envoy != nil {
		r.envoy.asked = interval
	}
}

// Report takes in one report. An endpoint that is left out has no requests in progress.
// Of the first report of a stream only the gauge counts: its counters go back to a time
// that nobody here knows. It says whether the Envoy watches a cluster.
func (r *Reports) Report(now time.Time, clusters []ClusterLoad) (watches bool) {
	l := r.ledger
	l.mu.Lock()
	defer l.release()
	e := r.envoy
	if e == nil {
		return false
	}
	if !r.later {
		l.replace(r, now)
	}
	l.unlearn(e, now)
	issued, elsewhere := l.tally(e, clusters, r.later, now)
	if e.basis() != flight.ByLog && r.later {
		logged := issued
		if e.wide {
			logged += elsewhere
		}
		e.rate.over(now, now.Sub(e.lastReport), float64(logged))
	}
	e.lastReport, r.heard = now, now
	l.hear(e, now)
	l.count(r, now)
	if !r.counts {
		l.epoch++
		l.restate(e, func() { r.counts, e.counting = true, e.counting+1 })
	}
	r.later = true
	if e.streams == 0 && (issued > 0 || e.progress > 0) {
		e.lone = true
	}
	l.regroup(e)
	l.judge(e, now, true)
	r.logged = false // if the log ends with this report, it ends between two
	return l.watching[e.who] != nil
}

// replace has the older streams count no more of which nothing was heard since this one
// opened, and for longer than a report may be late: it took their place. One that is another process's reports
// again, and counts again.
func (l *Ledger) replace(r *Reports, now time.Time) {
	late := r.envoy.asked / 10
	for _, old := range r.envoy.reports {
		if old != r && old.counts && !old.heard.After(r.opened) && now.Sub(old.heard) > r.envoy.asked+late {
			l.stop(old)
		}
	}
}

// stopSilent has the streams count no more of which nothing was heard since then, as long
// as there is another.
func (l *Ledger) stopSilent(e *envoy, since time.Time) {
	for _, r := range e.reports {
		if r.counts && e.counting > 1 && r.heard.Before(since) {
			l.stop(r)
		}
	}
}

// stop takes the gauges of a stream out of the accounts.
func (l *Ledger) stop(r *Reports) {
	if !r.counts {
		return
	}
	e := r.envoy
	l.epoch++
	l.restate(e, func() {
		e.counting--
		logged := e.streams > 0 && e.mode != ModeReports
		e.accounts.each(func(a *account) {
			change := a.count.Leave(r.process, e.counting, logged)
			l.apply(a, &change)
		})
		r.counts = false
		if e.counting == 0 && e.mode == ModeReports {
			l.setMode(e, ModeBatched) // there is nothing else to count by
		}
	})
}

// tally adds up what a report says, by endpoint: one may be in several clusters of an
// Envoy. It returns the number of requests issued, and of those to addresses that are
// nobody's here.
func (l *Ledger) tally(e *envoy, clusters []ClusterLoad, counters bool, now time.Time) (issued, elsewhere int64) {
	for i := range clusters {
		c := &clusters[i]
		l.learn(e, c, now)
		if counters {
			l.noteDropped(e, c)
		}
		for j := range c.Endpoints {
			load := &c.Endpoints[j]
			told := int64(0)
			if counters {
				told = int64(min(load.Issued, maxIssued))
			}
			at := l.addresses[load.Address]
			if at == nil {
				elsewhere += told
				continue
			}
			l.tallyOne(e, at, at.servedBy(c.Cluster), load, counters)
			issued += told
		}
	}
	return issued, elsewhere
}

// tallyOne adds up what a report says of one endpoint; meant is the cluster of it, nil
// for one that is not known here, which is all of them.
func (l *Ledger) tallyOne(e *envoy, at *address, meant *cluster, load *EndpointLoad, counters bool) {
	for _, s := range at.slots {
		if meant != nil && s.cluster != meant {
			continue
		}
		a := l.accountWith(e, s)
		if a == nil {
			continue
		}
		a.next.inProgress = plus(a.next.inProgress, load.InProgress, maxInProgress)
		if counters {
			a.next.issued = plus(a.next.issued, load.Issued, maxIssued)
			a.next.succeeded = plus(a.next.succeeded, load.Succeeded, maxIssued)
			a.next.errors = plus(a.next.errors, load.Errors, maxIssued)
		}
	}
}

// learn keeps by which name a cluster of the Envoy is known in EDS, where its own name for
// it, which entries of its log say, would be taken for another cluster or for none.
func (l *Ledger) learn(e *envoy, c *ClusterLoad, now time.Time) {
	means, before := l.served(c.Cluster), len(e.services)
	switch _, kept := e.services[c.Name]; {
	case c.Name == "" || l.served(c.Name) == means:
		delete(e.services, c.Name)
	case !kept && (before >= maxServices || l.services >= l.room(e.who, maxServicesTotal)):
	default:
		if e.services == nil {
			e.services = make(map[string]service)
		}
		s := service{told: now}
		if means != nil {
			s.name = means.name // our string, and not one that the Envoy made up
		}
		e.services[c.Name] = s
	}
	l.services += len(e.services) - before
}

// unlearn makes room: a report names all clusters that the Envoy has, so what none named
// for a while was removed from its configuration.
func (l *Ledger) unlearn(e *envoy, now time.Time) {
	before := len(e.services)
	if before < maxServices && l.services < l.room(e.who, maxServicesTotal) {
		return
	}
	since := now.Add(-e.patience())
	maps.DeleteFunc(e.services, func(_ string, s service) bool { return s.told.Before(since) })
	l.services += len(e.services) - before
}

// served is the cluster that has a name in EDS, its own or a variant, NAME/…; nil where
// none has.
func (l *Ledger) served(name string) *cluster {
	if c := l.clusters[name]; c != nil {
		return c
	}
	base, _, _ := strings.Cut(name, "/")
	return l.clusters[base]
}

// noteDropped counts what was shed.
func (l *Ledger) noteDropped(e *envoy, load *ClusterLoad) {
	if load.Dropped == 0 {
		return
	}
	c := l.served(load.Cluster)
	if c == nil {
		return
	}
	if _, watches := c.watchers[e.who]; watches {
		c.dropped += min(load.Dropped, maxIssued)
		l.changed(c)
	}
}

// count takes the tallies of a report into the accounts.
func (l *Ledger) count(r *Reports, now time.Time) {
	e := r.envoy
	due := now.Sub(r.compared) >= flight.ComparePeriod || now.Before(r.compared)
	if due {
		r.compared = now
	}
	report := flight.Report{
		Process: r.process, Processes: e.processes(r, now), Joins: !r.later || !r.counts, First: !r.later,
		Round: e.turn(r), Due: due, Logged: r.logged,
	}
	if report.Processes > 1 && e.counting == 1 {
		e.share()
	}
	e.progress = 0
	e.accounts.each(func(a *account) {
		t := a.next
		a.next = tally{}
		report.InProgress, report.Issued, report.Succeeded, report.Errors = t.inProgress, t.issued, t.succeeded, t.errors
		change := a.count.Report(&report)
		l.apply(a, &change)
		e.progress += int(a.count.InProgress())
	})
}

// processes is how many streams report, with the one that does now and those that were opened not long ago:
// the requests of a process are in the log before its first report, an interval after it opened its stream.
func (e *envoy) processes(reporting *Reports, now time.Time) (n int) {
	for _, r := range e.reports {
		if r == reporting || r.counts || !r.later && now.Sub(r.opened) <= e.patience() {
			n++
		}
	}
	return n
}

// share has the accounts of an Envoy note which process reported until now, before others do.
func (e *envoy) share() {
	for _, r := range e.reports {
		if r.counts {
			e.accounts.each(func(a *account) { a.count.Share(r.process) })
		}
	}
}

// turn says where in a round a report comes.
func (e *envoy) turn(r *Reports) flight.Round {
	e.first = e.first || !r.later
	turn := flight.Round{Begins: !r.told, Ends: true, First: e.first}
	for _, other := range e.reports {
		if other != r && other.counts {
			turn.Begins = turn.Begins && !other.told
			turn.Ends = turn.Ends && other.told
		}
	}
	r.told = true
	if turn.Ends {
		e.first = false
		for _, other := range e.reports {
			other.told = false
		}
	}
	return turn
}

// plus adds up to a limit.
func plus(sum int32, n uint64, limit int32) int32 {
	return min(limit, sum+int32(min(n, uint64(limit))))
}

// Close ends the stream, and with it the counts that came over it.
func (r *Reports) Close(now time.Time) {
	l := r.ledger
	l.mu.Lock()
	defer l.release()
	e := r.envoy
	if e == nil {
		return
	}
	l.stop(r)
	r.envoy = nil
	e.reports = slices.DeleteFunc(e.reports, func(other *Reports) bool { return other == r })
	if len(e.reports) == 0 {
		l.restate(e, func() { e.silent, e.asked = false, 0 })
	}
	l.epoch++
	l.regroup(e)
	l.leaveIfGone(e)
}
