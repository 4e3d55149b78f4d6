package weighting

import (
	"math"
	"time"
)

// smoothed is a mean over time that forgets: both sums fade with the time constant, so the mean is unbiased from its
// first sample on, and uneven intervals weigh by their length.
type smoothed struct {
	sum     float64 // value · seconds
	seconds float64
}

// add counts x for an interval of dt, and nothing where x is unknown. A gap longer than tau weighs as tau: what
// happened in it is not known that well.
func (s *smoothed) add(x float64, dt, tau time.Duration) {
	if math.IsNaN(x) {
		return
	}
	keep := math.Exp(-dt.Seconds() / tau.Seconds())
	weight := min(dt, tau).Seconds()
	s.sum = s.sum*keep + x*weight
	s.seconds = s.seconds*keep + weight
}

// fade reduces the weight of the mean while nothing is added.
func (s *smoothed) fade(dt, tau time.Duration) {
	keep := math.Exp(-dt.Seconds() / tau.Seconds())
	s.sum *= keep
	s.seconds *= keep
}

// over reports whether the mean covers at least this much time.
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

// Memories. Rates follow a change of traffic within seconds; speed is a property of the machine and takes a minute; the
// difference of the two signals must outlast the noise of single pairs and still follow a drift.
const (
	rateTau      = 3 * time.Second
	windowTau    = 5 * time.Second
	speedTau     = 60 * time.Second
	unproxiedTau = 2 * time.Second
)

// Possible reports whether a sum of requests, or of their seconds, at one endpoint can have risen by so
// much in that time. No model server completes a million requests a second, however small they are; nor do
// requests that waited or ran for a million seconds together end within one.
func Possible(growth float64, elapsed time.Duration) bool {
	const perSecond = 1e6 // a bound
	return growth <= perSecond*(elapsed.Seconds()+1)
}

// highest is the highest of some values of the last span of time, or up to two.
type highest struct {
	recent, before float64
	since          time.Time // of this span
}

func (h *highest) note(value float64, at time.Time, span time.Duration) {
	if at.Sub(h.since) >= span {
		h.recent, h.before, h.since = 0, h.recent, at
	}
	h.recent = max(h.recent, value)
}

func (h *highest) most() float64 { return max(h.recent, h.before) }

// or is x, or the other value where x is unknown.
func or(x, other float64) float64 {
	if math.IsNaN(x) {
		return other
	}
	return x
}

// orZero is x, or no contribution where x is unknown.
func orZero(x float64) float64 { return or(x, 0) }
