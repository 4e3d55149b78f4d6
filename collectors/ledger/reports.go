package ledger

import (
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"steelyard/weighting/flight"
)

// Reporting notes that an Envoy opened a stream of load reports and was asked for one every interval. If there are too
// many Envoys, it is ignored.
func (l *Ledger) Reporting(node Envoy, interval time.Duration, now time.Time) *Reports {
	l.mu.Lock()
	defer l.release()
	r := &Reports{ledger: l, envoy: l.envoyFor(node, now), opened: now, lastReport: now}
	if e := r.envoy; e != nil {
		if r.process = e.process(); r.process == none {
			r.envoy = nil
			return r
		}
		e.reports, e.asked = append(e.reports, r), interval
		l.regroup(e)
		l.noteMessage(e, now)
	}
	return r
}

// none is no stream's process.
const none = 255

// process returns the smallest number that no open stream of load reports has.
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

// ReportersWith counts the streams of load reports with this Envoy's, and reports whether its reports are its only
// source and whether it watches a cluster. An Envoy without a stream counts as if it had one and watched a cluster: it
// may be about to subscribe.
func (l *Ledger) ReportersWith(node Envoy) (all Reporters, reportsOnly, watches bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	all = l.reporters
	e := l.envoys[node]
	opened := e != nil && len(e.reports) > 0
	reportsOnly = e != nil && e.reportsOnly()
	watches = l.watching[node] != nil
	switch {
	case opened && watches:
	case reportsOnly:
		all.ReportsOnly++
	default:
		all.WithAccessLog++
	}
	return all, reportsOnly, watches || !opened
}

// Asked notes that the Envoy was asked for a report every interval from now on.
func (r *Reports) Asked(interval time.Duration) {
	r.ledger.mu.Lock()
	defer r.ledger.release()
	if r.envoy != nil {
		r.envoy.asked = interval
	}
}

// Report takes in one report. An endpoint that is left out has no requests in progress. Of the first report of a stream
// only the gauge counts, because its counters reach back to an unknown time. Report returns whether the Envoy watches a
// cluster.
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
	issued, elsewhere := l.tally(r, clusters, now)
	if e.basis() != flight.ByLog && r.later {
		logged := issued
		if e.wide {
			logged += elsewhere
		}
		e.rate.over(now, now.Sub(e.lastReport), float64(logged))
	}
	e.lastReport, r.lastReport = now, now
	l.noteMessage(e, now)
	l.count(r, now)
	if !r.counts {
		l.epoch++
		l.restate(e, func() { r.counts, e.counting = true, e.counting+1 })
	}
	r.later = true
	if e.streams == 0 && (issued > 0 || e.progress > 0) {
		e.unlogged = true
	}
	l.regroup(e)
	l.chooseMode(e, now, true)
	r.logged = false // if the log ends with this report, it ends between two
	return l.watching[e.node] != nil
}

// replace stops counting the older streams that sent nothing since this one opened, and for longer than a report may be
// late: this one has taken their place. A stream of another process reports again, and then counts again.
func (l *Ledger) replace(r *Reports, now time.Time) {
	late := r.envoy.asked / 10
	for _, old := range r.envoy.reports {
		if old != r && old.counts && !old.lastReport.After(r.opened) && now.Sub(old.lastReport) > r.envoy.asked+late {
			l.stop(old)
		}
	}
}

// stopSilent stops counting the streams that sent nothing since then, while there is another.
func (l *Ledger) stopSilent(e *envoy, since time.Time) {
	for _, r := range e.reports {
		if r.counts && e.counting > 1 && r.lastReport.Before(since) {
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
		for _, a := range e.accounts {
			change := a.count.Leave(r.process, e.counting, logged)
			l.apply(a, &change)
		}
		r.counts = false
		if e.counting == 0 && e.mode == ModeReports {
			l.setMode(e, ModeBatched) // there is nothing else to count by
		}
	})
}

// most returns how many requests the report may have of an endpoint. An Envoy that logs spends 60 µs of CPU on each, so
// this is what six cores do for one model server, and more than any answers. A report has the requests since the last
// one, or of an interval, if that one came late; one that was not heard for long has them of no more than a few
// intervals.
func (r *Reports) most(now time.Time) uint64 {
	asked := r.envoy.asked
	since := min(now.Sub(r.lastReport), max(silentIntervals*asked, reportsEnd))
	return uint64(maxPerSecond * max(since, asked, time.Millisecond).Seconds())
}

// tally adds up a report by endpoint, because an endpoint may be in several clusters of an Envoy. It returns the number
// of requests issued to endpoints of clusters here, and to other addresses. Counters of more requests than there can be
// are left out, and are a dispute.
func (l *Ledger) tally(r *Reports, clusters []ClusterLoad, now time.Time) (issued, elsewhere int64) {
	e, most := r.envoy, r.most(now)
	for i := range clusters {
		c := &clusters[i]
		l.learn(e, c, now)
		if r.later && c.Dropped <= most {
			l.noteDropped(e, c)
		}
		for j := range c.Endpoints {
			load := c.Endpoints[j]
			at := l.addresses[load.Address]
			if over := max(load.Issued, load.Succeeded, load.Errors) > most; over || !r.later {
				if over && r.later && at != nil {
					e.overstate(load.Address, load.Issued, now)
				}
				load.Issued, load.Succeeded, load.Errors = 0, 0, 0
			}
			if at == nil {
				elsewhere += int64(load.Issued)
				continue
			}
			l.tallyOne(e, at, c.Cluster, &load)
			issued += int64(load.Issued)
		}
	}
	return issued, elsewhere
}

// tallyOne adds a report about one endpoint to the cluster with a name in EDS, or to all of the endpoint's clusters if
// none has it.
func (l *Ledger) tallyOne(e *envoy, at *address, name string, load *EndpointLoad) {
	meant := at.servedBy(name)
	for _, s := range at.members {
		if meant != nil && s.cluster != meant {
			continue
		}
		a := l.accountWith(e, s)
		if a == nil {
			continue
		}
		a.next.inProgress = plus(a.next.inProgress, load.InProgress, maxInProgress)
		a.next.issued = plus(a.next.issued, load.Issued, math.MaxInt32)
		a.next.succeeded = plus(a.next.succeeded, load.Succeeded, math.MaxInt32)
		a.next.errors = plus(a.next.errors, load.Errors, math.MaxInt32)
		if hashes(name) && load.Issued > 0 {
			l.hashed[a] = plus(l.hashed[a], load.Issued, math.MaxInt32)
		}
	}
}

// learn keeps the EDS name of a cluster of the Envoy, where the Envoy's own name for it, which is in the entries of its
// log, would be taken for another cluster or for none.
func (l *Ledger) learn(e *envoy, c *ClusterLoad, now time.Time) {
	means, before := l.clusterOf(c.Cluster), len(e.services)
	switch _, kept := e.services[c.Name]; {
	case c.Name == "" || l.clusterOf(c.Name) == means && hashes(c.Name) == hashes(c.Cluster):
		delete(e.services, c.Name)
	case !kept && (before >= maxServices || l.services >= l.room(e.node, maxServicesTotal)):
	default:
		if e.services == nil {
			e.services = make(map[string]service)
		}
		s := service{named: now, hashes: hashes(c.Cluster)}
		if means != nil {
			s.name = means.name // our own string
		}
		e.services[c.Name] = s
	}
	l.services += len(e.services) - before
}

// unlearn makes room: a report names all clusters that the Envoy has, so a name that was in no report for a while has
// been removed from its configuration.
func (l *Ledger) unlearn(e *envoy, now time.Time) {
	before := len(e.services)
	if before < maxServices && l.services < l.room(e.node, maxServicesTotal) {
		return
	}
	since := now.Add(-e.patience())
	maps.DeleteFunc(e.services, func(_ string, s service) bool { return s.named.Before(since) })
	l.services += len(e.services) - before
}

// clusterOf returns the cluster with a name in EDS, its own or a variant, NAME/…; nil if there is none.
func (l *Ledger) clusterOf(name string) *cluster {
	if c := l.clusters[name]; c != nil {
		return c
	}
	base, _, _ := strings.Cut(name, "/")
	return l.clusters[base]
}

// hashes reports whether a name in EDS is that of the members without weights, for policies that hash.
func hashes(name string) bool { return strings.HasSuffix(name, "/members") }

// noteDropped counts the requests that were shed.
func (l *Ledger) noteDropped(e *envoy, load *ClusterLoad) {
	if load.Dropped == 0 {
		return
	}
	c := l.clusterOf(load.Cluster)
	if c == nil {
		return
	}
	if _, watches := c.watchers[e.node]; watches {
		c.dropped += load.Dropped
		l.changed(c)
	}
}

// count adds the tallies of a report to the accounts.
func (l *Ledger) count(r *Reports, now time.Time) {
	e := r.envoy
	due := now.Sub(r.compared) >= flight.ComparePeriod || now.Before(r.compared)
	if due {
		r.compared = now
	}
	report := flight.Report{
		Process: r.process, Processes: e.processes(r, now), Joins: !r.later || !r.counts, First: !r.later,
		Round: e.advanceRound(r), Due: due, Logged: r.logged,
	}
	if report.Processes > 1 && e.counting == 1 {
		e.share()
	}
	e.progress = 0
	for _, a := range e.accounts {
		t := a.next
		a.next = tally{}
		report.InProgress, report.Issued, report.Hashed = t.inProgress, t.issued, l.hashed[a]
		report.Succeeded, report.Errors = t.succeeded, t.errors
		change := a.count.Report(&report)
		l.apply(a, &change)
		if a.watched && change.Sums.Succeeded > change.Sums.Errors {
			a.filterFailures(now, &flight.Sums{Answered: 1}) // no log shows the answer
		}
		e.progress += int(a.count.InProgress())
	}
	clear(l.hashed)
}

// processes returns how many streams report, with the one that reports now and those that were opened recently: the
// requests of a process are in the log before its first report, which comes an interval after it opened its stream.
func (e *envoy) processes(reporting *Reports, now time.Time) (n int) {
	for _, r := range e.reports {
		if r == reporting || r.counts || !r.later && now.Sub(r.opened) <= e.patience() {
			n++
		}
	}
	return n
}

// share makes the accounts of an Envoy note which process reported until now, before others do.
func (e *envoy) share() {
	for _, r := range e.reports {
		if r.counts {
			for _, a := range e.accounts {
				a.count.Share(r.process)
			}
		}
	}
}

// advanceRound adds a report to the round of the Envoy's processes, and returns where in the round the report is.
func (e *envoy) advanceRound(r *Reports) flight.Round {
	e.first = e.first || !r.later
	round := flight.Round{Begins: !r.reported, Ends: true, First: e.first}
	for _, other := range e.reports {
		if other != r && other.counts {
			round.Begins = round.Begins && !other.reported
			round.Ends = round.Ends && other.reported
		}
	}
	r.reported = true
	if round.Ends {
		e.first = false
		for _, other := range e.reports {
			other.reported = false
		}
	}
	return round
}

// plus adds up to a limit.
func plus(sum int32, n uint64, limit int32) int32 {
	return int32(min(int64(limit), int64(sum)+int64(min(n, uint64(limit)))))
}

// Close ends the stream, and with it the counts that came over it.
func (r *Reports) Close() {
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
