package modelsim

import (
	"container/list"
	"slices"
	"sync"
	"time"
)

// A station is the queueing half of a server: slots, and one FIFO queue in
// front of them. It does nothing between events, which are arrivals, requests
// that leave early, and one timer for each request in execution.
type station struct {
	slots int

	mu       sync.Mutex
	speed    float64
	waiting  list.List // of *job, in order of arrival
	running  map[*job]struct{}
	frozenAt time.Time // zero while the station is not frozen
	totals   totals
	usage    usage
}

// A job is one request at the station.
type job struct {
	work    time.Duration // seconds of service at speed 1
	fails   bool          // executes and then counts as a failure
	arrived time.Time
	started time.Time     // when its slot was free, however late the timer fired
	due     time.Time     // end of service
	place   *list.Element // in the queue; nil once started
	timer   *time.Timer
	done    chan struct{} // closed when executed
}

// totals are sums over the requests that the station is done with.
type totals struct {
	served  uint64 // executed successfully
	failed  uint64 // executed, with a failure as the answer
	aborted uint64 // given up by their clients

	queueTime histogram // of the requests executed
	busyTime  histogram
	totalTime histogram
}

func newStation(slots int, speed float64, t totals) *station {
	return &station{slots: slots, speed: speed, running: make(map[*job]struct{}, slots), totals: t}
}

// arrive starts a request or lines it up. Its done channel closes at the end of
// its service.
func (s *station) arrive(work time.Duration, fails bool) *job {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := &job{work: work, fails: fails, arrived: time.Now(), done: make(chan struct{})}
	s.usage.advance(j.arrived, len(s.running), s.waiting.Len())
	if len(s.running) < s.slots {
		s.start(j, j.arrived)
	} else {
		j.place = s.waiting.PushBack(j)
	}
	return j
}

// start begins the service of a job at the given moment, which is in the past
// by as much as the timer of the job before it was late.
func (s *station) start(j *job, at time.Time) {
	j.place = nil
	j.started = at
	j.due = at.Add(time.Duration(float64(j.work) / s.speed))
	s.running[j] = struct{}{}
	if s.frozenAt.IsZero() {
		s.arm(j)
	}
}

func (s *station) arm(j *job) {
	j.timer = time.AfterFunc(time.Until(j.due), func() { s.finish(j) })
}

// finish ends the service of a job whose timer fired. The timer may have raced
// with a freeze or with the client's going away; then there is nothing to do.
func (s *station) finish(j *job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.running[j]; !ok || !s.frozenAt.IsZero() || time.Until(j.due) > 0 {
		return
	}
	s.usage.advance(time.Now(), len(s.running), s.waiting.Len())
	s.usage.count(j.fails)
	delete(s.running, j)
	s.totals.count(j)
	close(j.done)
	s.startNext(j.due)
}

// startNext gives a slot that became free at the given moment to the request
// that has waited longest.
func (s *station) startNext(free time.Time) {
	front := s.waiting.Front()
	if front == nil {
		return
	}
	next := s.waiting.Remove(front).(*job)
	if next.arrived.After(free) {
		free = next.arrived
	}
	s.start(next, free)
}

// leave removes a request that waits or executes. One that is done stays done.
func (s *station) leave(j *job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.usage.advance(time.Now(), len(s.running), s.waiting.Len())
	if j.place != nil {
		s.waiting.Remove(j.place)
		j.place = nil
		s.totals.aborted++
		return
	}
	if _, ok := s.running[j]; !ok {
		return
	}
	if j.timer != nil {
		j.timer.Stop()
	}
	delete(s.running, j)
	s.totals.aborted++
	s.startNext(time.Now())
}

func (s *station) setSpeed(speed float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.speed = speed
}

// freeze stops all execution: requests arrive and nothing completes.
func (s *station) freeze() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.frozenAt.IsZero() {
		return
	}
	s.frozenAt = time.Now()
	for j := range s.running {
		j.timer.Stop()
	}
}

// thaw goes on where freeze stopped: what was left of each service still is.
func (s *station) thaw() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.frozenAt.IsZero() {
		return
	}
	now, since := time.Now(), s.frozenAt
	s.frozenAt = time.Time{}
	for j := range s.running {
		if j.started.After(since) {
			j.due = j.due.Add(now.Sub(j.started))
		} else {
			j.due = j.due.Add(now.Sub(since))
		}
		s.arm(j)
	}
}

// stop disarms every timer; no job completes from here on.
func (s *station) stop() { s.freeze() }

// report returns what the station reports in a response.
func (s *station) report(o ORCA) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.usage.advance(time.Now(), len(s.running), s.waiting.Len())
	return s.usage.header(s.slots, o)
}

// A state is a server at one moment, as it shows itself.
type state struct {
	waiting, running int
	totals
	kvUsage float64 // 0..1; with slots, 0.8 when all are taken
	tokens  *tokens // of an engine; nil with slots
}

func (s *station) inFlight() int {
	st := s.state()
	return st.waiting + st.running
}

func (s *station) state() state {
	s.mu.Lock()
	defer s.mu.Unlock()
	return state{waiting: s.waiting.Len(), running: len(s.running), totals: s.totals.clone(),
		kvUsage: 0.8 * float64(len(s.running)) / float64(s.slots)}
}

func (t *totals) count(j *job) {
	if j.fails {
		t.failed++
	} else {
		t.served++
	}
	t.queueTime.observe(j.started.Sub(j.arrived))
	t.busyTime.observe(j.due.Sub(j.started))
	t.totalTime.observe(j.due.Sub(j.arrived))
}

func (t totals) clone() totals {
	t.queueTime.counts = slices.Clone(t.queueTime.counts)
	t.busyTime.counts = slices.Clone(t.busyTime.counts)
	t.totalTime.counts = slices.Clone(t.totalTime.counts)
	return t
}

// A histogram is a Prometheus histogram of durations; without bounds it is only
// their number and sum.
type histogram struct {
	bounds []float64 // upper, in seconds, ascending; never written
	counts []uint64  // per bound, not cumulative
	n      uint64
	sum    time.Duration
}

func newHistogram(bounds []float64) histogram {
	return histogram{bounds: bounds, counts: make([]uint64, len(bounds))}
}

func (h *histogram) observe(d time.Duration) {
	h.n++
	h.sum += d
	if i, _ := slices.BinarySearch(h.bounds, d.Seconds()); i < len(h.bounds) {
		h.counts[i]++
	}
}

// observeNumber adds a value that is not a time: a unit counts as a second.
func (h *histogram) observeNumber(n int) { h.observe(time.Duration(n) * time.Second) }

// atMost returns the cumulative count of the bucket with this upper bound.
func (h *histogram) atMost(bound float64) uint64 {
	if bound > h.bounds[len(h.bounds)-1] {
		return h.n
	}
	var n uint64
	for i, b := range h.bounds {
		if b <= bound {
			n += h.counts[i]
		}
	}
	return n
}
