package ledger

import (
	"time"
)

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
		c.record.rotate(now)
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
