package ledger

import (
	"slices"
	"time"

	"steelyard/internal/api"
	"steelyard/internal/envoyid"
	"steelyard/weighting"
	"steelyard/weighting/flight"
)

// batchedAge is the most that a batched Envoy's entries are late: its logger's flush interval. If it sends nothing for
// that time, it has nothing in its buffer.
const batchedAge = time.Second

// exact reports whether no count can drift for long: all have load reports.
func (w *countedWatchers) exact() bool { return len(w.envoys) > 0 && w.Reconciled == len(w.envoys) }

// countedBy returns the cluster's watchers that are counted. They are a function of the ledger's state: those of the
// last Tick, and after a change since then those that a read finds by itself, because a read writes nothing.
func (l *Ledger) countedBy(c *cluster) *countedWatchers {
	before := c.counted
	if before.epoch == l.epoch && before.trafficEpoch == l.trafficEpoch {
		return before
	}
	w := &countedWatchers{}
	if before.epoch == l.epoch {
		*w = *before
	} else {
		l.countWatchers(c, w)
	}
	w.epoch, w.trafficEpoch = l.epoch, l.trafficEpoch
	l.measure(c, w)
	return w
}

// measure finds how many clusters the watchers watch. The median of an even number is the smaller of the two in the
// middle.
func (l *Ledger) measure(c *cluster, w *countedWatchers) {
	clusters, busy := make([]int, 0, len(c.watchers)), make([]int, 0, len(c.watchers))
	for node := range c.watchers {
		subscribed := l.watching[node]
		clusters, busy = append(clusters, subscribed.clusters), append(busy, subscribed.busy)
	}
	if len(clusters) == 0 {
		return
	}
	slices.Sort(clusters)
	slices.Sort(busy)
	last := len(clusters) - 1
	w.Clusters, w.BusyClusters = clusters[last/2], busy[last/2]
	w.Widest, w.WidestBusy = clusters[last], busy[last]
}

// countWatchers finds what each watcher is counted by.
func (l *Ledger) countWatchers(c *cluster, w *countedWatchers) {
	w.Proxies, w.Watching = len(c.watchers), len(c.watchers)
	for node := range c.watchers {
		e := l.envoys[node]
		if e == nil {
			continue
		}
		switch e.basis() {
		case flight.ByLog:
			w.Events++
			w.late = w.late || e.mode == ModeBatched
			if e.reported() {
				w.Reconciled++
			}
		case flight.ByReports:
			w.Reports++
			w.Reconciled++
			w.late = true
		default:
			continue // it is silent, or has reported nothing yet
		}
		w.envoys = append(w.envoys, e)
	}
}

// asOf returns when the sums of a cluster were true: now, less the mean age of its Envoys' counts, each weighed by its
// request rate. What the sums lack is what arrived since: rate times age, summed over the Envoys.
func (w *countedWatchers) asOf(now time.Time) time.Time {
	if len(w.envoys) == 0 {
		return time.Time{}
	}
	if !w.late {
		return now
	}
	return now.Add(-w.mean(now, func(e *envoy) time.Duration { return e.age(now) }))
}

// slowest returns the longest time between two reports of any Envoy that is counted by them.
func (w *countedWatchers) slowest() (longest time.Duration) {
	for _, e := range w.envoys {
		if e.basis() == flight.ByReports {
			longest = max(longest, e.asked)
		}
	}
	return longest
}

// interval returns the mean time between two readings of an Envoy.
func (w *countedWatchers) interval(now time.Time) time.Duration {
	if w.Reports == 0 {
		return 0
	}
	return w.mean(now, func(e *envoy) time.Duration {
		if e.basis() == flight.ByReports {
			return e.asked
		}
		return 0
	})
}

// ageAt returns how old the sums are.
func (w *countedWatchers) ageAt(now time.Time) time.Duration {
	if at := w.asOf(now); !at.IsZero() {
		return now.Sub(at)
	}
	return 0
}

// rate returns the requests per second of all Envoys that are counted.
func (w *countedWatchers) rate(now time.Time) (perSecond float64) {
	for _, e := range w.envoys {
		perSecond += e.rate.now(now)
	}
	return perSecond
}

// mean returns a mean over the Envoys that are counted, weighed by their request rates: the counts of one without
// traffic lack nothing.
func (w *countedWatchers) mean(now time.Time, of func(*envoy) time.Duration) time.Duration {
	const idle = 0.01 // requests per second, so that there is always a weight
	var weights, sum float64
	for _, e := range w.envoys {
		weight := e.rate.now(now) + idle
		weights += weight
		sum += weight * of(e).Seconds()
	}
	return time.Duration(sum / weights * float64(time.Second))
}

// age returns how old the counts of an Envoy are.
func (e *envoy) age(now time.Time) time.Duration {
	switch {
	case e.basis() == flight.ByReports:
		return max(0, now.Sub(e.lastReport))
	case e.mode == ModeBatched:
		return min(batchedAge, max(0, now.Sub(e.lastEvent)))
	}
	return 0
}

// Read returns what is known of each endpoint of a cluster, in the order given to SetMembers.
// In-flight counts and sums are unknown while no watcher is counted; what only access logs show (failures,
// time to last byte, answers) while no watcher is counted by its log. The averages are as of the newest end
// in them.
//
// It overwrites previous, which is the reader's last reading or nil. The new reading has a later time, even if the
// Envoys with the newest reports have left: it contains what changed since, and readers compare times.
func (l *Ledger) Read(name string, now time.Time, previous []flight.Counts) []flight.Counts {
	l.mu.RLock()
	defer l.mu.RUnlock()
	into := previous[:0]
	c := l.clusters[name]
	if c == nil {
		return into
	}
	w := l.countedBy(c)
	at := w.asOf(now)
	if next := asOf(previous).Add(1); !at.IsZero() && at.Before(next) && !next.After(now) {
		at = next
	}
	var logged time.Time
	if w.Events > 0 {
		logged = at
	}
	for _, s := range c.members {
		counts := flight.Counts{
			Address:       s.address,
			InFlight:      flight.Reading(float64(s.countedInFlight()), at),
			Exact:         w.exact(),
			ResponseBytes: weighting.Reading{Value: s.bytes.value, At: s.bytes.at},
			FailedShare:   weighting.Reading{Value: s.failed.value, At: s.failed.at},
			Proxies:       s.sums.Report(at, logged),
		}
		counts.Proxies.Partial = w.Events > 0 && w.Reports > 0
		into = append(into, counts)
	}
	return into
}

// Parts returns what this replica's Envoys have at each endpoint of a cluster, whether they are counted at present or
// not, in the order given to SetMembers. It overwrites previous.
func (l *Ledger) Parts(name string, previous []flight.Part) []flight.Part {
	l.mu.RLock()
	defer l.mu.RUnlock()
	into := previous[:0]
	if c := l.clusters[name]; c != nil {
		for _, s := range c.members {
			into = append(into, flight.Part{Address: s.address, InFlight: s.countedInFlight(), Sums: s.sums})
		}
	}
	return into
}

// asOf returns when a reading was true: all of it at the same moment.
func asOf(reading []flight.Counts) time.Time {
	if len(reading) == 0 {
		return time.Time{}
	}
	return reading[0].InFlight.At
}

// Cluster returns the status of a cluster.
func (l *Ledger) Cluster(name string, now time.Time) ClusterStatus {
	l.mu.RLock()
	defer l.mu.RUnlock()
	c := l.clusters[name]
	if c == nil {
		return ClusterStatus{}
	}
	w := l.countedBy(c)
	s := w.ClusterStatus
	s.Rate, s.Age, s.Interval = w.rate(now), w.ageAt(now), w.interval(now)
	s.Idle, s.Dropped = c.idle, c.dropped
	return s
}

// Envoys returns the status of all Envoys that have a stream, sorted.
func (l *Ledger) Envoys(now time.Time) []EnvoyStatus {
	all := l.statuses(now)
	slices.SortFunc(all, func(a, b EnvoyStatus) int { return envoyid.Compare(a.Envoy, b.Envoy) })
	return all
}

func add(to, of *api.Entries) {
	to.Received += of.Received
	to.Ignored += of.Ignored
	to.Unpaired += of.Unpaired
	to.Reconciled += of.Reconciled
}

// Totals returns the sums over all Envoys since the start, also over those that have left.
func (l *Ledger) Totals() api.Entries {
	l.mu.RLock()
	defer l.mu.RUnlock()
	t := l.left
	for _, e := range l.envoys {
		add(&t, &e.totals)
	}
	return t
}

func (l *Ledger) statuses(now time.Time) []EnvoyStatus {
	l.mu.RLock()
	defer l.mu.RUnlock()
	all := make([]EnvoyStatus, 0, len(l.envoys))
	for _, e := range l.envoys {
		all = append(all, EnvoyStatus{
			Envoy: e.node, Mode: e.mode, Silent: e.silent,
			RequestRate: e.rate.now(now), OpenRequests: e.open - e.closings, Entries: e.totals,
			LastEvent: e.lastEvent, LastReport: e.lastReport,
			ReportInterval: e.asked, Streams: e.streams, ReportStreams: e.counting,
		})
	}
	return all
}
