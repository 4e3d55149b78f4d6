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

	InFlight float64 // requests that the proxies have there; 0 where that count may leak
	Present  bool    // some are, by a count that may leak

	Reported time.Time // of the last report that could be compared with that count
	Shown    float64   // requests in it, by a gauge; 0 where there is none
	NotShown float64   // requests in flight then that it does not show
	// ShowsNothing means that the gauge is a constant and so no evidence, and ShowsIdle that a fresh one shows none.
	ShowsNothing, ShowsIdle bool
	ReadAt                  time.Time // of the last report
	Changed                 bool      // it is not the same as the one before, besides its times
	Claims                  bool      // it claims requests, or a full KV cache

	Progress bool    // the report shows that something was done
	Steps    bool    // such progress is that of an iteration, and not that a request ends
	Done     float64 // requests that were answered without an error, by the proxies or the server
	Alive    bool    // some were answered, if only with errors
	Ended    Ends    // requests, as the proxies report it
	Proof    Proof   // what they prove
	Logged   bool    // an access log reports it: a load report counts a 4xx as a success

	Sent, Sized, Bytes float64 // requests that began, those of a known size, and their bytes
	Sizes              bool    // the proxies report sizes

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
	ejections int       // in a row, without recovery between them
	proof     Proof     // of recovery, since the last change of the state
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
}

// A Pool is what the trackers of a pool have in common.
type Pool struct {
	panics  bool // most seem to be outliers
	since   time.Time
	ends    Ends    // of the last requests, at all endpoints
	arrived float64 // requests, at all endpoints
}

const (
	// improbable is −ln 1e-4: what is less probable by chance is significant.
	improbable = 9.2
	rounding   = 1e-6 // of differences of sums
	memory     = 10 * time.Minute
	longest    = time.Hour
	unobserved = 2 * time.Second // a time between two steps that is no wait for reports: there are several a second

	leastTrust = 0.1
)

// Step takes in a sample of each endpoint and moves their states.
func (p *Pool) Step(now time.Time, o Params, in Traffic, pool []Endpoint) {
	for i := range pool {
		e := &pool[i]
		e.observeTrial(now, &o, &in)
		e.stall.observe(now, &e.Sample, max(unobserved, o.StalledAfter), o.Hold)
	}
	p.findOutliers(now, &o, pool)
	for i := range pool {
		e := &pool[i]
		e.move(now, min(o.Dwell, longest), p.panics)
		e.Trust = 1
		if e.State == Probing && !p.panics {
			e.Trust = leastTrust
		}
		e.Blind = e.State == Probing && !e.Logged
	}
	p.findUnused(now, in.InForce, pool)
}

// findOutliers finds the endpoints that stall or fail. While that is more than half of a pool, the fault is more likely
// in the reports or in the requests. If none is healthy, outliers are as good as any other.
func (p *Pool) findOutliers(now time.Time, o *Params, pool []Endpoint) {
	const window = 200 // requests
	var all Ends
	most := 0.0
	pauses := make([]float64, 0, len(pool))
	for i := range pool {
		e := &pool[i]
		all = all.plus(e.Ended, 1)
		most = max(most, e.stall.answers.longest)
		if pause := e.stall.reports.longest; pause > 0 {
			pauses = append(pauses, pause)
		}
	}
	typical := lowerMedian(pauses)
	outliers, healthy, awake := 0, 0, 0
	for i := range pool {
		e := &pool[i]
		if e.Asleep {
			continue
		}
		awake++
		e.streak.extend(&e.Sample, all, p.ends)
		e.found = trouble{e.stall.finding(now, &e.Sample, o.StalledAfter, most, typical), e.stall.progress}
		if e.found.reason != "" {
			e.found.reason = "stalled since " + e.clocks() + ": " + e.found.reason
		} else {
			e.found = trouble{e.streak.finding(e.State == Probing, e.InFlight), now}
		}
		switch {
		case e.found.reason != "" || e.streak.fails():
			outliers++
		case e.State == Healthy:
			healthy++
		}
	}
	p.ends = p.ends.plus(all, math.Exp(-all.requests()/window))
	on := len(pool) > 1 && (2*outliers > awake || healthy == 0)
	if on != p.panics && (p.since.IsZero() || now.Sub(p.since) >= o.Dwell) {
		p.panics, p.since = on, now
	}
}

// clocks is since when the endpoint stalls: where it was tried again meanwhile, both times.
func (e *Endpoint) clocks() string {
	if e.State == Healthy {
		return clock(e.found.since)
	}
	return clock(e.found.since) + ", and not healthy since " + clock(e.Began)
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05Z") }

// move moves the endpoint between the states. An ejected endpoint gets no requests, so whether it recovered shows only
// once it is probed; each time it is ejected again soon, the next probe comes later.
func (e *Endpoint) move(now time.Time, dwell time.Duration, panics bool) {
	const (
		forgetAfter = time.Minute // in the healthy state
		doublings   = 5
	)
	e.proof = Proof{e.proof.Answered || e.Proof.Answered, e.proof.Completed || e.Proof.Completed}
	held := now.Sub(e.since)
	switch found := e.found.reason != ""; {
	case e.Sample.Asleep:
		e.forgive(now) // what it did not answer and failed
		e.become(Asleep, now)
		e.ejections = 0
	case e.State == Asleep:
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
		e.Reason = e.found.reason
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

func (e *Endpoint) become(s State, now time.Time) { e.State, e.since, e.proof = s, now, Proof{} }

// lowerMedian is the median, and the lower one of two; 0 of none. It reorders its argument.
func lowerMedian(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[(len(values)-1)/2]
}

// fade is what is left of a value after a time, by that time constant.
func fade(value float64, after, tau time.Duration) float64 {
	return value * math.Exp(-max(0, after).Seconds()/tau.Seconds())
}
