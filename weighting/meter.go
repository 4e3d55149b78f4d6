package weighting

import (
	"math"
	"time"
)

// smoothed is a mean over time that forgets: both sums fade with the time
// constant, so the mean is unbiased from its first sample on, and uneven
// intervals weigh by their length.
type smoothed struct {
	sum     float64 // value · seconds
	seconds float64
}

// add counts x for an interval of dt. A gap longer than tau weighs as tau: what
// happened in it is not known that well.
func (s *smoothed) add(x float64, dt, tau time.Duration) {
	keep := math.Exp(-dt.Seconds() / tau.Seconds())
	weight := min(dt, tau).Seconds()
	s.sum = s.sum*keep + x*weight
	s.seconds = s.seconds*keep + weight
}

// over reports whether the mean stands on at least this much time.
func (s *smoothed) over(least time.Duration) bool {
	return s.seconds > 0 && s.seconds >= least.Seconds()
}

// or returns the mean, or other where there is none.
func (s *smoothed) or(other float64) float64 {
	if s.over(0) {
		return s.sum / s.seconds
	}
	return other
}

// Time constants. Rates follow a change of traffic within seconds; speed is a
// property of the machine and takes a minute; the difference of the two signals
// must outlast the noise of single pairs and still follow a drift.
const (
	rateTau      = 3 * time.Second
	windowTau    = 5 * time.Second
	speedTau     = 60 * time.Second
	unproxiedTau = 2 * time.Second
)

// progress is what a server did between two of its reports.
type progress struct {
	elapsed      time.Duration
	completions  float64 // NaN where unknown
	queueSeconds float64
	busySeconds  float64
}

// between compares two reports by the clock of whichever counter moved on.
func between(old, seen *ServerReport) (progress, bool) {
	p := progress{
		completions:  rise(old.Completions, seen.Completions),
		queueSeconds: rise(old.QueueSeconds, seen.QueueSeconds),
		busySeconds:  rise(old.BusySeconds, seen.BusySeconds),
	}
	for _, pair := range [][2]Reading{
		{old.Completions, seen.Completions}, {old.BusySeconds, seen.BusySeconds},
		{old.Running, seen.Running}, {old.Queue, seen.Queue},
	} {
		if pair[0].Known() && pair[1].At.After(pair[0].At) {
			p.elapsed = pair[1].At.Sub(pair[0].At)
			return p, true
		}
	}
	return p, false
}

// rise is how much a sum grew; NaN where that cannot be told.
func rise(old, seen Reading) float64 {
	if !old.Known() || !seen.Known() || seen.Value < old.Value {
		return math.NaN()
	}
	return seen.Value - old.Value
}
