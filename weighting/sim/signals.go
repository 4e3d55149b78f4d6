package sim

import (
	"math/rand/v2"
	"time"
)

// delays are those of messages to the control plane: one half fixed, one half
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
	streams []ring[logEntry]
	counts  [][]count // by Envoy and pod
}

// A logEntry says that a request began or ended.
type logEntry struct {
	at      instant // when it arrives
	pod     int32
	end     bool
	begun   instant // of an end: when its beginning was reported
	bytes   float64 // content-length of the request; 0 where there is none
	latency instant // of an end
}

// A count is what one Envoy's entries say of one pod, corrected by its gauges as
// package collectors/ledger does: by the median of none and the last two
// differences, so that a lasting drift is mended within two reports and a race is
// not taken for one.
type count struct {
	open       int32 // begun and not ended
	correction int32
	difference int32 // of gauge and open, at the last report
}

func (c *count) value() int32 { return max(0, c.open+c.correction) }

func newEntries(c *control) entries {
	n, pods := len(c.w.envoys), len(c.w.pods)
	e := entries{
		c: c, delays: delays{float64(c.o.SignalDelay), source(c.w.s.Seed, streamSignals)},
		loss: c.o.Loss, lose: source(c.w.s.Seed, streamLoss),
		streams: make([]ring[logEntry], n), counts: make([][]count, n),
	}
	for i := range e.counts {
		e.counts[i] = make([]count, pods)
	}
	return e
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
	w, stream := l.c.w, &l.streams[envoy]
	e.at = w.now + l.delays.next()
	if n := stream.len(); n > 0 {
		e.at = max(e.at, stream.last().at)
	}
	stream.push(e)
	w.set(w.lanes.entries+lane(envoy), stream.first().at)
}

// deliver takes in the entry of an Envoy that has arrived.
func (l *entries) deliver(envoy lane) {
	w, stream := l.c.w, &l.streams[envoy]
	e := stream.pop()
	if stream.len() > 0 {
		w.set(w.lanes.entries+envoy, stream.first().at)
	} else {
		w.set(w.lanes.entries+envoy, never)
	}
	k := &l.counts[envoy][e.pod]
	was := k.value()
	p := &l.c.proxies[e.pod]
	switch {
	case !e.end:
		k.open++
		p.issued++
		if e.bytes > 0 {
			p.sized++
			p.bytes += e.bytes
		}
	case e.begun != never && e.begun >= l.c.since:
		k.open = max(0, k.open-1)
		p.over(e.latency)
	case k.correction > 0:
		k.correction--
		k.difference--
		p.over(e.latency)
	}
	p.inFlight += float64(k.value() - was)
	l.c.poke() // counts or sums: something changed
}

// reconcile compares the counts of an Envoy with its gauges.
func (l *entries) reconcile(envoy int, gauges []int32) {
	for pod := range gauges {
		k := &l.counts[envoy][pod]
		if gauges[pod] == k.open && k.difference == 0 && k.correction == 0 {
			continue
		}
		was, before := k.value(), k.correction
		difference := gauges[pod] - k.open
		k.correction, k.difference = median(0, k.difference, difference), difference
		if lost := min(-k.correction, -before, k.open); lost > 0 { // requests whose ends were lost
			k.open -= lost
			k.correction += lost
			k.difference += lost
			l.c.proxies[pod].ended += float64(lost)
		}
		if change := k.value() - was; change != 0 {
			l.c.proxies[pod].inFlight += float64(change)
			l.c.poke()
		}
	}
}

// median of three.
func median(a, b, c int32) int32 { return max(min(a, b), min(max(a, b), c)) }

// reset forgets all, as a new process does.
func (l *entries) reset() {
	for i := range l.streams {
		l.streams[i] = ring[logEntry]{}
		l.c.w.set(l.c.w.lanes.entries+lane(i), never)
		clear(l.counts[i])
	}
}

// reports are the load reports: gauges of each Envoy, at phases of their own.
type reports struct {
	c        *control
	delays   delays
	interval instant
	buffers  []loadReport // by Envoy: the one on its way
	arrived  []instant    // the latest of each; 0 before the first
	weights  []float64    // of the Envoys, by their requests
	gauges   [][]int32    // the latest of each, by pod
	issued   [][]int32
}

type loadReport struct {
	taken          instant
	gauges, issued []int32
}

func newReports(c *control) reports {
	n, pods := len(c.w.envoys), len(c.w.pods)
	r := reports{
		c: c, delays: delays{float64(c.o.SignalDelay), source(c.w.s.Seed, streamSignals+1<<32)},
		interval: at(c.o.ReportInterval), arrived: make([]instant, n),
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
	n := instant(len(r.buffers))
	for i := range n {
		r.c.w.set(r.c.w.lanes.report+lane(i), r.c.w.now+r.interval*(i+1)/n)
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
	r.arrived[envoy] = c.w.now
	if c.o.Source == AccessLog {
		c.entries.reconcile(int(envoy), b.gauges)
		return
	}
	for pod := range b.gauges {
		p := &c.proxies[pod]
		if change := b.gauges[pod] - r.gauges[envoy][pod]; change != 0 {
			p.inFlight += float64(change)
			c.poke()
		}
		if issued := b.issued[pod] - r.issued[envoy][pod]; issued != 0 {
			p.issued += float64(issued)
			c.poke()
		}
	}
	copy(r.gauges[envoy], b.gauges)
	copy(r.issued[envoy], b.issued)
}

// age is the mean age of the latest reports, each weighed by the requests of its
// Envoy; false before all have come.
func (r *reports) age() (time.Duration, bool) {
	var sum float64
	for i, t := range r.arrived {
		if t == 0 {
			return 0, false
		}
		sum += r.weights[i] * float64(r.c.w.now-t)
	}
	return time.Duration(sum), true
}

// reset forgets what was reported. Issued counts start again with the stream.
func (r *reports) reset() {
	clear(r.arrived)
	for i := range r.gauges {
		clear(r.gauges[i])
		copy(r.issued[i], r.c.w.envoys[i].issued)
	}
}
