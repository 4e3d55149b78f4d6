package health

import (
	"math"
	"slices"
	"time"
)

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

// A detector finds one kind of trouble by the samples of an endpoint. It is a value, and what it finds, chance explains
// with a probability of falseAlarm at most; of an endpoint that is probed, half of that is enough. A report that
// contradicts the proxies for long needs no such budget.
type detector interface {
	observe(in *Sample, c *common)
	// finding says what is wrong, and since when, of an endpoint with that verdict before; empty where nothing is.
	finding(in *Sample, before *Verdict, c *common) (reason string, since time.Time)
}

// detectors are in the order in which their findings count.
func (t *Tracker) detectors() [2]detector { return [...]detector{&t.stall, &t.streak} }

// leastTrust is the part of its capacity that an endpoint on probation has, as a new one.
const leastTrust = 0.1

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
		switch {
		case e.Begins:
			e.Worked = time.Time{}
		case e.Alive || e.Progress:
			e.Worked = now
		}
		e.observeTrial(&c)
		e.use.observe(&e.Sample, &c)
		for _, d := range e.detectors() {
			d.observe(&e.Sample, &c)
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

// observeTrial begins and ends a trial, and doubts the report.
func (e *Endpoint) observeTrial(c *common) {
	const least, usual = 30 * time.Second, time.Minute // no flag is shorter than the dwell
	e.trial.observe(c.now, &e.Sample, &c.Traffic, max(least, c.Dwell), max(usual, c.Dwell), c.unobserved())
	if e.Tried = 0; e.trial.on {
		part := e.Part
		if !c.Counted {
			part /= 2
		}
		e.Tried = min(part, 1/(within.Seconds()*c.PerSecond))
	}
	starved := e.trial.part >= 1 && c.now.Sub(e.trial.since) >= c.Decay
	e.doubt.observe(&e.Sample, starved, c.Decay)
	e.Doubted, e.Stuck = time.Time{}, e.doubt.refuted
	if e.doubt.on {
		e.Doubted = e.doubt.since
	}
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
			if reason, since := d.finding(&e.Sample, &e.Verdict, c); e.found.reason == "" {
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

// findUnused finds the endpoints that the proxies do not use. At least one is used.
func (p *Pool) findUnused(pool []Endpoint) {
	none, unused := false, 0
	for i := range pool {
		none = none || pool[i].use.none
	}
	if none {
		p.expectGaps(pool)
	}
	for i := range pool {
		e := &pool[i]
		if e.Unused = e.use.none && e.State != Ejected && e.Share > 0 && !e.Absent; e.Unused {
			unused++
		}
	}
	for i := range pool {
		if e := &pool[i]; unused == len(pool) {
			e.Unused = false
		} else if e.Unused {
			e.Tried = 0
		}
	}
}

// expectGaps takes endpoints as used from which no more is missing than may come later, because requests gather. One
// that was not used and is again is no reason to wait longer for the only other one.
func (p *Pool) expectGaps(pool []Endpoint) {
	const longer = 1.5 // than a typical gap
	usual := longer * p.typical(pool, func(t *Tracker) float64 { return t.use.gap })
	for i := range pool {
		u := &pool[i].use
		if u.none = u.none && u.due >= usual; u.none && u.found == 0 {
			u.found = u.due
		}
	}
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
