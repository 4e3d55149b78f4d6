package tracing

import (
	"slices"
	"sync"
	"time"

	"steelyard/weighting"
)

const (
	// patience is how long a trace waits for the answers of Envoys.
	patience = 2 * time.Second
	// mostPerSecond and mostOpen bound the traces that begin in a second, and those that wait for answers.
	mostPerSecond, mostOpen = 10, 64
	// mostScrapes and mostAnswers bound the spans of one trace.
	mostScrapes, mostAnswers = 32, 64
)

// A Recorder collects what becomes the traces. Its methods can be called from any goroutine, and do not block. Those of
// a nil Recorder do nothing.
type Recorder struct {
	draw func() bool // whether a push is traced
	sink *sink

	mu      sync.Mutex
	scrapes map[string]*recent // by cluster
	open    []*trace           // in the order in which they began
	second  time.Time          // in which the latest began
	begun   int                // in that second
	skipped uint64             // because of the bounds
}

// recent has the latest scrapes since the latest push.
type recent struct {
	scrapes [mostScrapes]scraped
	count   int // of all since then
}

// A trace is one push while it waits for answers.
type trace struct {
	cluster    string
	scrapes    []scraped
	scrapeSum  int // with those that were left out
	decided    bool
	at         time.Time // when the step began
	reason     string
	endpoints  int
	overloaded int
	arrivals   float64 // per second; NaN unknown
	horizon    time.Duration
	drop       float64

	pushBegan, pushEnded time.Time // pushEnded is zero while the push is under way
	version              string
	failure              string // why the push failed

	answers     []answered
	acks, nacks int // with those that were left out
}

type scraped struct {
	address    string
	began, end time.Time
	failure    string
}

type answered struct {
	version, node string
	nack          bool
	message       string
	at            time.Time
}

// Scraped records one scrape: the middle of its exchange, how long that took, and why it failed, if it did.
func (r *Recorder) Scraped(cluster, address string, middle time.Time, took time.Duration, failure string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.scrapes[cluster]
	if s == nil {
		s = &recent{}
		r.scrapes[cluster] = s
	}
	s.scrapes[s.count%mostScrapes] = scraped{address, middle.Add(-took / 2), middle.Add(took / 2), failure}
	s.count++
}

// take returns the scrapes that ended before a push, and forgets all.
func (s *recent) take() (out []scraped, count int) {
	if s == nil {
		return nil, 0
	}
	count = s.count
	for i := max(0, count-mostScrapes); i < count; i++ {
		out = append(out, s.scrapes[i%mostScrapes])
	}
	s.count = 0
	return out, count
}

// A Push is one that is traced. The methods of a nil Push do nothing.
type Push struct {
	recorder *Recorder
	trace    *trace
}

// Publishing is called before a push. It returns nil if that is not traced.
func (r *Recorder) Publishing(cluster string, at time.Time) *Push {
	if r == nil {
		return nil
	}
	drawn := r.draw()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !drawn || !r.admit(at) {
		if s := r.scrapes[cluster]; s != nil {
			s.count = 0
		}
		return nil
	}
	t := &trace{cluster: cluster, pushBegan: at}
	t.scrapes, t.scrapeSum = r.scrapes[cluster].take()
	r.open = append(r.open, t)
	return &Push{r, t}
}

// admit reports whether the bounds leave room for a trace.
func (r *Recorder) admit(at time.Time) bool {
	if at.Sub(r.second) >= time.Second {
		r.second, r.begun = at, 0
	}
	if r.begun >= mostPerSecond || len(r.open) >= mostOpen {
		r.skipped++
		return false
	}
	r.begun++
	return true
}

// Published records the outcome of the push: the version in force, or why there is no new one. Envoys may have answered
// by then.
func (p *Push) Published(version string, err error, at time.Time) {
	if p == nil {
		return
	}
	p.recorder.mu.Lock()
	defer p.recorder.mu.Unlock()
	t := p.trace
	t.version, t.pushEnded = version, at
	early := t.answers
	t.answers = nil
	if err != nil {
		t.version, t.failure = "", err.Error() // that in force is of an earlier push
	}
	for _, a := range early {
		if a.version == t.version {
			t.answer(a)
		}
	}
}

// Decided records the step that led to the latest push of the cluster.
func (r *Recorder) Decided(cluster string, d *weighting.Decision, reason string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range slices.Backward(r.open) {
		if t.cluster != cluster {
			continue
		}
		if !t.decided {
			t.decide(d, reason)
		}
		return
	}
}

func (t *trace) decide(d *weighting.Decision, reason string) {
	t.decided, t.at, t.reason = true, d.At, reason
	t.endpoints, t.arrivals, t.horizon, t.drop = len(d.Endpoints), d.ArrivalRate, d.Horizon, d.DropFraction
	for i := range d.Endpoints {
		if d.Endpoints[i].Overloaded {
			t.overloaded++
		}
	}
}

// Answered records an Envoy's ACK, or its NACK with the message.
func (r *Recorder) Answered(cluster, version, node string, nack bool, message string, at time.Time) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.open {
		if t.cluster == cluster && (t.version == version || t.pushEnded.IsZero()) {
			t.answer(answered{version, node, nack, message, at})
		}
	}
}

// answer counts those of a push that has ended.
func (t *trace) answer(a answered) {
	if len(t.answers) < mostAnswers {
		t.answers = append(t.answers, a)
	}
	switch {
	case t.pushEnded.IsZero():
	case a.nack:
		t.nacks++
	default:
		t.acks++
	}
}

// Forget drops what is kept of a cluster that is no longer configured.
func (r *Recorder) Forget(cluster string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.scrapes, cluster)
}

// due takes the traces that began at a time or before, and whose push has ended.
func (r *Recorder) due(until time.Time) (out []*trace) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open = slices.DeleteFunc(r.open, func(t *trace) bool {
		isDue := !t.pushBegan.After(until) && !t.pushEnded.IsZero()
		if isDue {
			out = append(out, t)
		}
		return isDue
	})
	return out
}
