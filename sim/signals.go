package sim

import (
	"math/rand/v2"
	"time"

	"steelyard/weighting/flight"
)

// delays are how long messages to the control plane take: one half fixed, one half
// exponential.
type delays struct {
	mean   float64 // nanoseconds
	random *rand.Rand
}

func (d *delays) next() instant {
	return instant(d.mean / 2 * (1 + d.random.ExpFloat64()))
}

// entries are the access logs of the Envoys: one stream each, in order.
type entries struct {
	c       *control
	delays  delays
	loss    float64
	lose    *rand.Rand
	streams []mailbox[logEntry] // by Envoy
}

// A logEntry says that a request began or ended.
type logEntry struct {
	pod     int32
	end     bool
	begun   instant // of an end: when its beginning was reported
	bytes   float64 // content-length of the request; 0 where there is none
	latency instant // of an end
}

func newEntries(c *control) entries {
	l := entries{
		c: c, delays: delays{float64(c.o.SignalDelay), source(c.w.s.Seed, streamSignals)},
		loss: c.o.Loss, lose: source(c.w.s.Seed, streamLoss),
	}
	for i := range c.w.envoys {
		l.streams = append(l.streams, newMailbox[logEntry](c.w.calendar, c.w.lanes.entries+lane(i)))
	}
	return l
}

// begun and ended write an entry, unless it gets lost.
func (l *entries) begun(r *request) {
	if l.c.away || l.lost() {
		return
	}
	r.begun = l.c.w.now
	l.write(r.envoy, logEntry{pod: r.pod, bytes: r.bytes})
}

func (l *entries) ended(r *request) {
	if l.c.away || l.lost() {
		return
	}
	l.write(r.envoy, logEntry{pod: r.pod, end: true, begun: r.begun, bytes: r.bytes, latency: l.c.w.now - r.arrived})
}

func (l *entries) lost() bool { return l.loss > 0 && l.lose.Float64() < l.loss }

func (l *entries) write(envoy int32, e logEntry) {
	l.streams[envoy].send(l.c.w.now+l.delays.next(), e)
}

// deliver takes in the entry that has arrived from an Envoy.
func (l *entries) deliver(envoy lane) {
	e := l.streams[envoy].receive()
	k := &l.c.counts[envoy][e.pod]
	switch {
	case !e.end:
		l.c.counted(e.pod, k.Begin(flight.Beginning{Size: e.size(), Reported: l.c.reports.arrived[envoy] > 0}))
	case e.begun != never && e.begun >= l.c.since:
		l.c.counted(e.pod, k.End(flight.Open, e.sums()))
	default:
		l.c.counted(e.pod, k.End(flight.Unpaired, e.sums()))
	}
	l.c.active() // counts or sums: something changed
}

// size returns the size of the request's body.
func (e *logEntry) size() flight.Size {
	return flight.Size{Bytes: uint64(e.bytes), Known: e.bytes > 0}
}

// sums are what an end adds.
func (e *logEntry) sums() flight.Sums {
	return flight.Sums{Ended: 1, Succeeded: 1, Answered: 1, Latency: float64(e.latency) / 1e9}
}

// reset forgets what is on its way, as when the streams break.
func (l *entries) reset() {
	for _, i := range l.c.envoys {
		l.streams[i].clear()
	}
}

// reports are the load reports: gauges of each Envoy, at phases of their own.
type reports struct {
	c        *control
	delays   delays
	interval instant
	buffers  []loadReport // by Envoy: the one on its way
	arrived  []instant    // the latest of each; 0 before the first
	compared []instant    // when the sums of requests issued were
	weights  []float64    // of the Envoys, by their requests
	gauges   [][]int32    // the latest of each, by pod
	issued   [][]int32    // until then
}

type loadReport struct {
	taken          instant
	gauges, issued []int32
}

func newReports(c *control) reports {
	n, pods := len(c.w.envoys), len(c.w.pods)
	r := reports{
		c: c, delays: delays{float64(c.o.SignalDelay), source(c.w.s.Seed, streamSignals+1<<32)},
		interval: at(c.o.ReportInterval), arrived: make([]instant, n), compared: make([]instant, n),
	}
	for range n {
		r.buffers = append(r.buffers, loadReport{gauges: make([]int32, pods), issued: make([]int32, pods)})
		r.gauges = append(r.gauges, make([]int32, pods))
		r.issued = append(r.issued, make([]int32, pods))
	}
	before := 0.0
	for _, share := range c.w.arrivals.shares {
		r.weights = append(r.weights, share-before)
		before = share
	}
	return r
}

// plan spreads the first reports over the interval.
func (r *reports) plan() {
	n := instant(len(r.c.envoys))
	for k, i := range r.c.envoys {
		r.c.w.set(r.c.w.lanes.report+lane(i), r.c.w.now+r.interval*instant(k+1)/n)
	}
}

// report reads an Envoy's gauges. The next one waits until this one has arrived.
func (r *reports) report(envoy lane) {
	w, e, b := r.c.w, r.c.w.envoys[envoy], &r.buffers[envoy]
	b.taken = w.now
	copy(b.gauges, e.active)
	copy(b.issued, e.issued)
	arrives := w.now + r.delays.next()
	w.set(w.lanes.reported+envoy, arrives)
	w.set(w.lanes.report+envoy, max(w.now+r.interval, arrives+1))
}

// deliver takes in the report of an Envoy that has arrived.
func (r *reports) deliver(envoy lane) {
	c, b := r.c, &r.buffers[envoy]
	c.w.set(c.w.lanes.reported+envoy, never)
	if c.away || b.taken < c.since {
		return
	}
	first := r.arrived[envoy] == 0
	report := flight.Report{
		Processes: 1, Joins: first, First: first, Round: flight.Round{Begins: true, Ends: true, First: first},
		Due: c.w.now-r.compared[envoy] >= at(flight.ComparePeriod), Logged: c.o.Source == AccessLog,
	}
	if report.Due {
		r.compared[envoy] = c.w.now
	}
	r.arrived[envoy] = c.w.now
	for pod, gauge := range b.gauges {
		report.InProgress, report.Issued = gauge, b.issued[pod]-r.issued[envoy][pod]
		report.Succeeded = report.Issued + r.gauges[envoy][pod] - gauge
		change := c.counts[envoy][pod].Report(&report)
		c.counted(int32(pod), change)
		if change.InFlight != 0 || change.Sums != (flight.Sums{}) {
			c.active()
		}
	}
	copy(r.gauges[envoy], b.gauges)
	copy(r.issued[envoy], b.issued)
}

// age is the mean age of the latest reports, each weighed by the requests of its
// Envoy; false before all have come.
func (r *reports) age() (time.Duration, bool) {
	var sum, weights float64
	for _, i := range r.c.envoys {
		if r.arrived[i] == 0 {
			return 0, false
		}
		sum += r.weights[i] * float64(r.c.w.now-r.arrived[i])
		weights += r.weights[i]
	}
	return time.Duration(sum / weights), true
}

// reset forgets what was reported. Issued counts start again with the stream.
func (r *reports) reset() {
	clear(r.arrived)
	clear(r.compared)
	for i := range r.gauges {
		clear(r.gauges[i])
		copy(r.issued[i], r.c.w.envoys[i].issued)
	}
}
