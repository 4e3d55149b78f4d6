package health

import (
	"math"
	"slices"
	"time"
)

// Params are what an operator may set.
type Params struct {
	StalledAfter time.Duration // 0: nothing stalls
	Dwell        time.Duration // a flag stays for as long
	Hold, Decay  time.Duration // ages from which on a report is late, and not used
}

// Traffic is what comes to the pool.
type Traffic struct {
	PerSecond float64
	Counted   bool          // by counters: moves of gauges miss what comes and goes between two readings
	InForce   time.Duration // a share that was decided for so long is in force
}

// A Sample is what is known of one endpoint since the step before. The zero Sample is of one of which nothing is known.
type Sample struct {
	Asleep bool // it takes no requests
	Absent bool // it is new, or refuses connections
	Kept   bool // an operator decided its share

	Report
	Requests
	Given
}

// A Report is what the last one of the server shows.
type Report struct {
	ReadAt   time.Time
	Changed  bool // it is not the same as the one before, besides its times
	Begins   bool // another process answers than before
	Claims   bool // it claims requests, or a full KV cache
	Progress bool // something was done since the one before
	Steps    bool // such progress is that of an iteration, and not that a request ends

	// The last one that could be compared with the requests in flight.
	Reported time.Time
	Shown    float64 // requests, by a gauge; 0 where there is none
	NotShown float64 // requests in flight then that it does not show
	// ShowsNothing means that the gauge is a constant and so no evidence, and ShowsIdle that a fresh one shows none.
	ShowsNothing, ShowsIdle bool
}

// Requests are what becomes of them, as the proxies report it.
type Requests struct {
	InFlight float64 // now; 0 where that count may leak
	Present  bool    // some are in flight, by a count that may leak

	Done   float64 // answered without an error, by the proxies or the server
	Alive  bool    // some were answered, if only with errors
	Ended  Ends
	Proof  Proof // by those
	Logged bool  // an access log reports them: a load report counts a 4xx as a success

	Sent, Sized, Bytes float64 // those that began, those of a known size, and their bytes
	Sizes              bool    // the proxies report sizes
}

// Given is what the endpoint should get, and what came.
type Given struct {
	Share  float64   // of the traffic, by the decision in force; 0 where a flag keeps requests away
	Part   float64   // of the pool's capacity
	Came   float64   // requests that arrived by the weights
	CameAt time.Time // the reading of those
	Any    bool      // one arrived, by whatever shows it
}

// Ends are requests by how they ended: failed, with an error that may be their own, or answered without one.
type Ends struct{ Failed, Errors, Answered float64 }

// plus adds ends, fading those before by a factor.
func (e Ends) plus(d Ends, keep float64) Ends {
	return Ends{e.Failed*keep + d.Failed, e.Errors*keep + d.Errors, e.Answered*keep + d.Answered}
}

func (e Ends) minus(d Ends) Ends {
	return Ends{e.Failed - d.Failed, e.Errors - d.Errors, e.Answered - d.Answered}
}

func (e *Ends) wrong() float64    { return e.Failed + e.Errors }
func (e *Ends) requests() float64 { return e.wrong() + e.Answered }

// share is the part of so many requests that was answered; 1 while little is known.
func (e *Ends) share(of float64) float64 { return (e.Answered + 1) / (of + 1) }

// Good reports whether more were answered than not.
func (e *Ends) Good() bool { return e.Answered > e.wrong()+rounding }

// A Proof is evidence that an endpoint recovered. It takes both.
type Proof struct{ Answered, Completed bool }

func (p Proof) whole() bool { return p.Answered && p.Completed }

// State is how an endpoint treats the requests that it has.
type State int

// The states.
const (
	Healthy State = iota
	Ejected       // it stalls or fails: flagged, and its share is the floor
	Probing       // it was ejected, and nothing shows whether it recovered
	Asleep        // its engine sleeps
)

// A Verdict is what follows for an endpoint.
type Verdict struct {
	State   State
	Reason  string    // of the ejection
	Began   time.Time // since then it has not been healthy, where it is not
	Trust   float64   // part of its capacity
	Blind   bool      // it is probed where nothing shows that it answers with errors
	Unused  bool      // the proxies send nothing there, whatever its share
	Tried   float64   // share of what the others get, in a trial; else 0
	Doubted time.Time // since when its report stands still, where that is doubted; else zero
	Stuck   bool      // that report is wrong
}

// A Tracker follows one endpoint.
type Tracker struct {
	Verdict

	since     time.Time // of the state
	stalled   bool      // it answered nothing when it was ejected
	ejections int       // in a row, without recovery between them
	proof     Proof     // of recovery, since the last change of the state
	another   bool      // process answers since then
	stall     stall
	streak    streak
	use       use
	trial     trial
	doubt     doubt
}

// An Endpoint is one of a step.
type Endpoint struct {
	*Tracker
	Sample

	found trouble
}

// trouble is why an endpoint seems to stall or fail, and since when; zero where it does not.
type trouble struct {
	reason string
	since  time.Time
	stalls bool
}

// A Pool is what the trackers of a pool have in common.
type Pool struct {
	panics  bool // most seem to be outliers
	since   time.Time
	ends    Ends    // of the last requests, at all endpoints
	arrived float64 // requests, at all endpoints

	values []float64 // of a median, overwritten by the next
}

// Clone is the same pool, for trackers that are copies.
func (p *Pool) Clone() Pool {
	c := *p
	c.values = nil
	return c
}

const (
	// falseAlarm is the budget of each detector, −ln of a probability (1e-4): it finds what chance explains with less.
	falseAlarm = 9.2
	rounding   = 1e-6             // of differences of sums
	memory     = 10 * time.Minute // in which what is usual fades
	longest    = time.Hour        // bound on what an operator may set, and on what a body may take
	unobserved = 2 * time.Second  // between two steps, this is no wait for reports: there are several a second

	leastTrust = 0.1 // part of its capacity, as of a new endpoint
)

// common is what a step knows of the pool as a whole.
type common struct {
	Params
	Traffic
	now         time.Time
	ended, were Ends    // requests, at all endpoints: since the step before, and the last ones until then
	arrived     float64 // requests, at all endpoints: cumulative
	answers     quiet   // of all endpoints together
	silence     float64 // the longest that ended with an answer, in request-seconds
	pause       float64 // the longest without progress, of a typical endpoint; seconds
}

// A detector finds one kind of trouble by the samples of an endpoint. It is a value, and what it finds, chance explains
// with a probability of falseAlarm at most.
type detector interface {
	observe(e *Endpoint, c *common)
	// finding says what is wrong, and since when; empty where nothing is.
	finding(e *Endpoint, c *common) (reason string, since time.Time)
}

// detectors are in the order in which their findings count.
func (t *Tracker) detectors() [2]detector { return [...]detector{&t.stall, &t.streak} }

// Step takes in a sample of each endpoint and moves their states.
func (p *Pool) Step(now time.Time, o Params, in Traffic, pool []Endpoint) {
	const window = 200 // requests
	o.Dwell = min(o.Dwell, longest)
	c := common{Params: o, Traffic: in, now: now, were: p.ends}
	for i := range pool {
		c.ended = c.ended.plus(pool[i].Ended, 1)
		p.arrived += pool[i].Came
	}
	c.arrived = p.arrived
	p.ends = p.ends.plus(c.ended, math.Exp(-c.ended.requests()/window))
	for i := range pool {
		e := &pool[i]
		e.observeTrial(&c)
		e.use.observe(e, &c)
		for _, d := range e.detectors() {
			d.observe(e, &c)
		}
		c.silence = max(c.silence, e.stall.answers.longest)
		c.answers.times, c.answers.sum = c.answers.times+e.stall.answers.times, c.answers.sum+e.stall.answers.sum
	}
	c.pause = p.typical(pool, func(t *Tracker) float64 { return t.stall.reports.longest })
	p.findOutliers(&c, pool)
	for i := range pool {
		e := &pool[i]
		e.move(now, o.Dwell, p.panics)
		e.Trust = 1
		if e.State == Probing && !p.panics {
			e.Trust = leastTrust
		}
		e.Blind = e.State == Probing && !e.Logged
	}
	p.findUnused(pool)
}

// findOutliers finds the endpoints that stall or fail. While that is more than half of a pool, the fault is more likely
// in the reports or in the requests. If none is healthy, outliers are as good as any other.
func (p *Pool) findOutliers(c *common, pool []Endpoint) {
	outliers, healthy, awake := 0, 0, 0
	for i := range pool {
		e := &pool[i]
		e.found = trouble{}
		if e.Asleep {
			continue
		}
		awake++
		for _, d := range e.detectors() {
			if reason, since := d.finding(e, c); e.found.reason == "" {
				e.found = trouble{reason, since, d == detector(&e.stall)}
			}
		}
		switch {
		case e.found.reason != "" || e.streak.fails():
			outliers++
		case e.State == Healthy:
			healthy++
		}
	}
	on := len(pool) > 1 && (2*outliers > awake || healthy == 0)
	if on != p.panics && (p.since.IsZero() || c.now.Sub(p.since) >= c.Dwell) {
		p.panics, p.since = on, c.now
	}
}

// move moves the endpoint between the states. An ejected endpoint gets no requests, so whether it recovered shows only
// once it is probed; each time it is ejected again soon, the next probe comes later.
func (e *Endpoint) move(now time.Time, dwell time.Duration, panics bool) {
	const (
		forgetAfter = time.Minute // in the healthy state
		doublings   = 5
	)
	e.proof = Proof{e.proof.Answered || e.Proof.Answered, e.proof.Completed || e.Proof.Completed}
	e.another = e.another || e.Begins
	held := now.Sub(e.since)
	switch found := e.found.reason != ""; {
	case e.Sample.Asleep:
		e.forgive(now) // what it did not answer and failed
		e.become(Asleep, now)
		e.ejections = 0
	case e.State == Asleep:
		e.become(Healthy, now)
	case e.another && e.stalled && e.State != Healthy && e.InFlight < 1: // what hung is gone
		e.forgive(now)
		e.become(Healthy, now)
	case panics && e.State == Ejected: // at once, because the fault is not the endpoint's; the evidence stays until
		e.become(Probing, now) // an answer refutes it, or the pool would seem healthy a moment later
		e.ejections = 0
	case e.State == Ejected && e.trial.begins(now):
		e.forgive(now)
		e.become(Probing, now)
	case e.trial.on && e.trial.since.Equal(e.since): // found before it got the request of this trial
	case e.State != Ejected && found && !panics:
		if e.State == Healthy {
			e.Began = e.found.since
			if held > forgetAfter {
				e.ejections = 0
			}
		}
		e.ejections = min(e.ejections+1, doublings)
		e.Reason, e.stalled = e.found.reason, e.found.stalls
		e.become(Ejected, now)
	case e.State == Ejected && held < dwell<<(e.ejections-1):
	case e.State != Healthy && e.proof.whole() && !(found && e.State == Ejected):
		e.become(Healthy, now)
	case e.State == Ejected && e.InFlight < 1:
		e.forgive(now)
		e.become(Probing, now)
	}
}

// forgive forgets why the endpoint was ejected, to see how it behaves now. Old requests do not count again.
func (e *Endpoint) forgive(now time.Time) {
	e.stall.restart(now)
	e.stall.hidden = max(0, e.stall.inFlight-e.stall.shown)
	e.streak = streak{}
}

func (e *Endpoint) become(s State, now time.Time) {
	e.State, e.since, e.proof, e.another = s, now, Proof{}, false
}

// typical is the median of a value over the endpoints that have one, and the lower one of two; 0 where none has.
func (p *Pool) typical(pool []Endpoint, of func(*Tracker) float64) float64 {
	p.values = p.values[:0]
	for i := range pool {
		if value := of(pool[i].Tracker); value > 0 {
			p.values = append(p.values, value)
		}
	}
	if len(p.values) == 0 {
		return 0
	}
	slices.Sort(p.values)
	return p.values[(len(p.values)-1)/2]
}

// fade is what is left of a value after a time, by that time constant.
func fade(value float64, after, tau time.Duration) float64 {
	return value * math.Exp(-max(0, after).Seconds()/tau.Seconds())
}
