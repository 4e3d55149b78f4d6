package ledger

import (
	"cmp"
	"slices"
	"time"

	"steelyard/weighting"
	"steelyard/weighting/flight"
)

// batchedAge is the most that a batched Envoy's entries are late: its logger's
// flush interval. One that sends nothing for that time has nothing in its buffer.
const batchedAge = time.Second

// heard is which of a cluster's watchers are counted. It changes far less often than the counts.
type heard struct {
	epoch, trafficEpoch     uint64 // of the ledger, that it is of
	counted                 []*envoy
	events, reports, silent int
	clusters, busy          int  // that they watch, and of those with traffic: of the median watcher
	widest, widestBusy      int  // the most of any
	late                    bool // the counts of one are older than the events of this moment
	reconciled              int  // of those counted, the ones that have load reports, too
}

// exact reports whether no count can drift for long: all have load reports.
func (h *heard) exact() bool { return len(h.counted) > 0 && h.reconciled == len(h.counted) }

// heardBy returns which of the cluster's watchers are counted. It is a function of the ledger's state, and
// kept until that changes.
func (l *Ledger) heardBy(c *cluster) *heard {
	before := c.heard.Load()
	if before != nil && before.epoch == l.epoch && before.trafficEpoch == l.trafficEpoch {
		return before
	}
	h := &heard{epoch: l.epoch, trafficEpoch: l.trafficEpoch}
	if before != nil && before.epoch == l.epoch {
		*h = *before
		h.trafficEpoch = l.trafficEpoch
	} else {
		l.hearAll(c, h)
	}
	l.measure(c, h)
	c.heard.Store(h)
	return h
}

// measure finds how many clusters the watchers watch. Of an even number of them, the median is the smaller of the two
// in the middle.
func (l *Ledger) measure(c *cluster, h *heard) {
	clusters, busy := make([]int, 0, len(c.watchers)), make([]int, 0, len(c.watchers))
	for node := range c.watchers {
		w := l.watching[node]
		clusters, busy = append(clusters, w.clusters), append(busy, w.busy)
	}
	if len(clusters) == 0 {
		return
	}
	slices.Sort(clusters)
	slices.Sort(busy)
	last := len(clusters) - 1
	h.clusters, h.busy = clusters[last/2], busy[last/2]
	h.widest, h.widestBusy = clusters[last], busy[last]
}

// hearAll goes through the watchers.
func (l *Ledger) hearAll(c *cluster, h *heard) {
	for node := range c.watchers {
		e := l.envoys[node]
		if e == nil {
			continue
		}
		switch e.basis() {
		case flight.ByLog:
			h.events++
			h.late = h.late || e.mode == ModeBatched
			if e.reported() {
				h.reconciled++
			}
		case flight.ByReports:
			h.reports++
			h.reconciled++
			h.late = true
		default:
			if e.silent {
				h.silent++
			}
			continue
		}
		h.counted = append(h.counted, e)
	}
}

// asOf is when the sums of a cluster were true: now, less the mean age of its Envoys' counts,
// each weighed by its request rate. What a count misses is what
// arrived since: rate times age, summed over the Envoys.
func (h *heard) asOf(now time.Time) time.Time {
	if len(h.counted) == 0 {
		return time.Time{}
	}
	if !h.late {
		return now
	}
	return now.Add(-h.mean(now, func(e *envoy) time.Duration { return e.age(now) }))
}

// slowest is the longest time between two reports of one that is counted by them.
func (h *heard) slowest() (longest time.Duration) {
	for _, e := range h.counted {
		if e.basis() == flight.ByReports {
			longest = max(longest, e.asked)
		}
	}
	return longest
}

// interval is the mean time between two readings.
func (h *heard) interval(now time.Time) time.Duration {
	if h.reports == 0 {
		return 0
	}
	return h.mean(now, func(e *envoy) time.Duration {
		if e.basis() == flight.ByReports {
			return e.asked
		}
		return 0
	})
}

// ageAt is how old the sums are.
func (h *heard) ageAt(now time.Time) time.Duration {
	if at := h.asOf(now); !at.IsZero() {
		return now.Sub(at)
	}
	return 0
}

// rate is the requests per second of all that are counted.
func (h *heard) rate(now time.Time) (perSecond float64) {
	for _, e := range h.counted {
		perSecond += e.rate.now(now)
	}
	return perSecond
}

// mean weighs the Envoys that are counted by their request rates: one without traffic
// misses nothing.
func (h *heard) mean(now time.Time, of func(*envoy) time.Duration) time.Duration {
	const idle = 0.01 // requests per second, so that there is always a weight
	var weights, sum float64
	for _, e := range h.counted {
		weight := e.rate.now(now) + idle
		weights += weight
		sum += weight * of(e).Seconds()
	}
	return time.Duration(sum / weights * float64(time.Second))
}

// age is how old the counts of an Envoy are.
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
// It writes over previous, which is the reader's last reading or nil. A reading is newer than that, even
// where the Envoys with the newest reports have left: it holds what changed since, and readers
// go by its time.
func (l *Ledger) Read(name string, now time.Time, previous []flight.Counts) []flight.Counts {
	l.mu.RLock()
	defer l.mu.RUnlock()
	into := previous[:0]
	c := l.clusters[name]
	if c == nil {
		return into
	}
	h := l.heardBy(c)
	at := h.asOf(now)
	if next := asOf(previous).Add(1); !at.IsZero() && at.Before(next) && !next.After(now) {
		at = next
	}
	var logged time.Time
	if h.events > 0 {
		logged = at
	}
	for _, s := range c.members {
		into = append(into, flight.Counts{
			Address:       s.address,
			InFlight:      reading(float64(s.undisputed()), at),
			Exact:         h.exact(),
			ResponseBytes: weighting.Reading{Value: s.bytes.value, At: s.bytes.at},
			FailedShare:   weighting.Reading{Value: s.failed.value, At: s.failed.at},
			Proxies: weighting.ProxyReport{
				Issued:         reading(float64(s.sums.Issued), at),
				Ended:          reading(float64(s.sums.Ended), at),
				Failed:         reading(float64(s.sums.Failed), logged),
				Errors:         reading(float64(s.sums.Errors), at),
				Succeeded:      reading(float64(s.sums.Succeeded), at),
				LatencySeconds: reading(s.sums.Latency, logged),
				Answered:       reading(float64(s.sums.Answered), logged),
				Partial:        h.events > 0 && h.reports > 0,
				Sized:          reading(float64(s.sums.Sized), at),
				SizedBytes:     reading(s.sums.Bytes, at),
			},
		})
	}
	return into
}

// A Part is what the Envoys here have at one endpoint, whether they are counted at present or not.
type Part struct {
	Address  string
	InFlight int64
	Sums     flight.Sums
}

// Parts returns those of a cluster, in the order given to SetMembers, written over previous.
func (l *Ledger) Parts(name string, previous []Part) []Part {
	l.mu.RLock()
	defer l.mu.RUnlock()
	into := previous[:0]
	if c := l.clusters[name]; c != nil {
		for _, s := range c.members {
			into = append(into, Part{Address: s.address, InFlight: s.undisputed(), Sums: s.sums})
		}
	}
	return into
}

// asOf is when a reading was true: all of it at the same moment.
func asOf(reading []flight.Counts) time.Time {
	if len(reading) == 0 {
		return time.Time{}
	}
	return reading[0].InFlight.At
}

func reading(value float64, at time.Time) weighting.Reading {
	if at.IsZero() {
		return weighting.Reading{}
	}
	return weighting.Reading{Value: value, At: at}
}

// Cluster is the status of a cluster.
func (l *Ledger) Cluster(name string, now time.Time) ClusterStatus {
	l.mu.RLock()
	defer l.mu.RUnlock()
	c := l.clusters[name]
	if c == nil {
		return ClusterStatus{}
	}
	h := l.heardBy(c)
	return ClusterStatus{
		Watchers: len(c.watchers), Events: h.events, Reports: h.reports, Silent: h.silent,
		Clusters: h.clusters, Busy: h.busy, Widest: h.widest, WidestBusy: h.widestBusy, Idle: c.idle,
		Reconciled: h.reconciled, Rate: h.rate(now), Age: h.ageAt(now),
		Interval: h.interval(now),
		Dropped:  c.dropped, IgnoredEntries: c.ignored,
	}
}

// Envoys is the status of all Envoys that have a stream, sorted.
func (l *Ledger) Envoys(now time.Time) []EnvoyStatus {
	all := l.statuses(now)
	slices.SortFunc(all, func(a, b EnvoyStatus) int {
		return cmp.Or(cmp.Compare(a.Envoy.NodeID, b.Envoy.NodeID), cmp.Compare(a.Envoy.Host, b.Envoy.Host),
			cmp.Compare(a.Envoy.Certificate, b.Envoy.Certificate))
	})
	return all
}

// Totals are sums over all Envoys since the start, also over those that have left.
// None of them goes back.
type Totals struct {
	Events     uint64 // access log entries
	Ignored    uint64 // of them, about addresses that are none of the Envoy's endpoints
	Unpaired   uint64 // ends without a beginning
	Reconciled uint64 // requests that load reports added to or took from the counts by access logs
}

func (t *Totals) add(e *envoy) {
	t.Events += e.events
	t.Ignored += e.ignored
	t.Unpaired += e.unpaired
	t.Reconciled += e.reconciled
}

// Totals sums up all Envoys.
func (l *Ledger) Totals() Totals {
	l.mu.RLock()
	defer l.mu.RUnlock()
	t := l.left
	for _, e := range l.envoys {
		t.add(e)
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
			RequestRate: e.rate.now(now), OpenRequests: e.open - e.closings,
			Events: e.events, Ignored: e.ignored, Unpaired: e.unpaired,
			Reconciled: e.reconciled, Unrecorded: e.unrecorded,
			LastEvent: e.lastEvent, LastReport: e.lastReport,
			ReportInterval: e.asked, Streams: e.streams, ReportStreams: e.counting,
		})
	}
	return all
}
