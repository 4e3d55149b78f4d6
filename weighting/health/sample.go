package health

import (
	"math"
	"time"
)

// Params are what an operator may set.
type Params struct {
	StalledAfter time.Duration // 0: nothing stalls
	Dwell        time.Duration // a flag stays for as long
	Hold, Decay  time.Duration // ages from which on a report is late, and not used
	Pause        time.Duration // usual between two steps, where a push takes long
}

// unobserved is the time between two steps from which on it was no wait for reports: there are several a second, unless
// the budget of a large pool has fewer.
func (p *Params) unobserved() time.Duration { return max(2*time.Second, 2*p.Pause) }

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
	Worked  time.Time // when its process last answered or reported progress; zero: never
}

const (
	// falseAlarm is the budget of each detector, −ln of a probability (1e-4): it finds what chance explains with less.
	falseAlarm = 9.2
	rounding   = 1e-6             // of differences of sums
	memory     = 10 * time.Minute // in which what is usual fades
	longest    = time.Hour        // bound on what an operator may set, and on what a body may take
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

// fade is what is left of a value after a time, by that time constant.
func fade(value float64, after, tau time.Duration) float64 {
	return value * math.Exp(-max(0, after).Seconds()/tau.Seconds())
}
