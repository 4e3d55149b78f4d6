package ledger

import (
	"strings"
	"time"
)

// Reports is an open stream of load reports. The newest of an Envoy counts: one
// that opens before the old one is seen to break takes over from it.
type Reports struct {
	ledger *Ledger
	envoy  *envoy // nil for one too many, and after Close
	later  bool   // there was a report over this stream

	reckoned time.Time // when the sums of requests issued were last compared
	due      bool      // with this report they are
}

// Reporting notes that an Envoy opened a stream of load reports and was asked
// for one every interval. What one Envoy too many says is ignored.
func (l *Ledger) Reporting(who Envoy, interval time.Duration, now time.Time) *Reports {
	l.mu.Lock()
	defer l.release()
	r := &Reports{ledger: l, envoy: l.envoyFor(who, now)}
	if r.envoy != nil {
		r.envoy.reports, r.envoy.asked = r, interval
		l.hear(r.envoy, now)
	}
	return r
}

// Report takes in one report. interval is what the Envoy is asked for now. An
// endpoint that is left out has no requests in progress. Of the first report of a
// stream only the gauge counts: its counters go back to a time that nobody here
// knows.
func (r *Reports) Report(now time.Time, interval time.Duration, clusters []ClusterLoad) {
	l := r.ledger
	l.mu.Lock()
	defer l.release()
	if !l.counts(r, now) {
		return
	}
	e := r.envoy
	e.asked = interval
	issued := l.tally(e, clusters, r.later)
	if e.basis() != byEvents && r.later {
		e.rate.over(now, now.Sub(e.lastReport), float64(issued))
	}
	e.lastReport, e.progress = now, 0
	if r.due = now.Sub(r.reckoned) >= reckonPeriod || now.Before(r.reckoned); r.due {
		r.reckoned = now
	}
	l.hear(e, now)
	l.eachAccount(e, l.apply)
	r.later = true
	if !e.reported {
		l.epoch++
		l.restate(e, func() { e.reported = true })
	}
	l.judge(e, now, true)
}

// counts says whether the stream is the one that counts. One that was taken over from
// counts again when the newer one has ended before it: otherwise an Envoy that shares
// its id and address with one that left would never be heard again.
func (l *Ledger) counts(r *Reports, now time.Time) bool {
	if r.envoy == nil {
		return false
	}
	if r.envoy.reports == nil {
		e := l.envoyFor(r.envoy.who, now) // the one before may be gone with the newer stream
		if e == nil || e.reports != nil {
			return false
		}
		r.envoy, r.later, e.reports = e, false, r
	}
	return r.envoy.reports == r
}

// tally adds up what a report says, by address: one endpoint may be in several
// clusters of an Envoy. It returns the number of requests issued.
func (l *Ledger) tally(e *envoy, clusters []ClusterLoad, counters bool) (issued int64) {
	for i := range clusters {
		c := &clusters[i]
		if counters {
			l.noteDropped(e, c)
		}
		for _, load := range c.Endpoints {
			a := l.accountWith(e, l.addresses[load.Address])
			if a == nil {
				continue
			}
			a.next.inProgress = plus(a.next.inProgress, load.InProgress, maxInProgress)
			if counters {
				a.next.issued = plus(a.next.issued, load.Issued, maxIssued)
				issued += int64(min(load.Issued, maxIssued))
			}
		}
	}
	return issued
}

// noteDropped counts what was shed. A cluster has variants, NAME/…, in EDS.
func (l *Ledger) noteDropped(e *envoy, load *ClusterLoad) {
	if load.Dropped == 0 {
		return
	}
	c := l.clusters[load.Cluster]
	if c == nil {
		name, _, _ := strings.Cut(load.Cluster, "/")
		if c = l.clusters[name]; c == nil {
			return
		}
	}
	if _, watches := c.watchers[e.who]; watches {
		c.dropped += min(load.Dropped, maxIssued)
		l.changed(c)
	}
}

// apply takes the tally into the account.
func (l *Ledger) apply(a *account) {
	t := a.next
	a.next = tally{}
	before := a.inProgress
	a.inProgress = t.inProgress
	a.envoy.progress += int(t.inProgress)
	if a.envoy.basis() == byEvents {
		l.reconcile(a)
		if a.envoy.reports.later {
			l.reckon(a, t.issued)
		} else {
			a.gap, a.least, a.most = 0, 0, 0
		}
	} else {
		ended := max(0, before+t.issued-t.inProgress)
		l.credit(a, sums{issued: uint64(t.issued), ended: uint64(ended)})
	}
	l.settle(a)
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
	r.envoy = nil
	if e == nil || e.reports != r {
		return
	}
	l.restate(e, func() {
		e.reports, e.reported, e.silent, e.asked = nil, false, false, 0
		l.eachAccount(e, func(a *account) {
			a.inProgress = 0
			a.restart(0)
		})
		if e.mode == ModeReports {
			l.setMode(e, ModeBatched) // there is nothing else to count by
		}
	})
	l.epoch++
	l.eachAccount(e, l.settle)
	l.leaveIfGone(e)
}
