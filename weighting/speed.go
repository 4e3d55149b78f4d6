package weighting

// Relative speed
//
// The speed of an endpoint is the ratio of its completions per busy slot-second to the pool's median, over about a
// minute. A deviation x of its logarithm is shrunk by max(0, 1 − 4σ²/x²) with σ² = 1/completions: within twice its own
// noise it counts as none (positive-part James–Stein; serviceRate.speed).
//
// A speed is trusted for as long as evidence supports it. While nothing completes it fades to 1 within a minute. It is
// learned by spans: of 5 s to a minute, until 20 requests were completed or expected. With n completions in a span and
// e expected at the known speed, a span with
//
//	2·(e − n + n·ln(n/e)) > 36
//
// does not count: if completions were a Poisson process, that would be six standard deviations, and most services come
// to three. If the next span agrees with it, what was known is forgotten. And what is known never weighs more than four
// minutes like the span that is added. So a counter that was wrong once teaches nothing, and one that was wrong for
// long is forgotten after two spans.
//
// A sum of requests, or of their seconds, that rises by more than a million a second, beyond a first million, is no
// reading (Possible): no model server does that, however small its requests are.

import (
	"math"
	"time"
)

// A pace is what an endpoint completes for each busy slot-second, over about the last minute. It is learned by spans of
// some seconds. A span that contradicts what is known (a counter that was wrong for a moment) does not count, unless
// the next one agrees with it: then the machine has changed, or what was known was wrong, and is forgotten.
type pace struct {
	known   serviceRate // usual, with the current span as far as that agrees
	usual   serviceRate // of the spans that count
	span    serviceRate // the current one
	seconds float64
	other   serviceRate // the span before, where it did not count
	at      time.Time   // of the last completion
}

// add takes in what was done in some time that ended at now.
func (s *pace) add(now time.Time, completions, busy float64, dt time.Duration) {
	if completions > 0 {
		s.at = now
	}
	s.usual.add(0, 0, dt)
	s.span.completions += completions
	s.span.busy += busy
	s.seconds += dt.Seconds()
	agrees := s.span.agrees(s.usual)
	if s.complete() {
		s.close(agrees)
		agrees = true
	}
	s.known = s.usual
	if agrees {
		s.known.add(s.span.completions, s.span.busy, 0)
	}
}

// close ends the span.
func (s *pace) close(agrees bool) {
	span, seconds := s.span, s.seconds
	s.span, s.seconds = serviceRate{}, 0
	switch {
	case agrees:
	case s.other.busy > 0 && span.agrees(s.other):
		s.usual = s.other
	default:
		s.other = span
		return
	}
	s.other = serviceRate{}
	s.usual.weigh(span, seconds)
	s.usual.add(span.completions, span.busy, 0)
}

// weigh limits the weight of what is known to a few minutes like the span: a counter that was wrong may have reported
// the work of hours.
func (w *serviceRate) weigh(span serviceRate, seconds float64) {
	const few = 4
	if _, ok := span.rate(); !ok {
		return
	}
	if most := span.busy * few * speedTau.Seconds() / seconds; w.busy > most {
		w.completions *= most / w.busy
		w.busy = most
	}
}

// complete reports whether the span is long enough to be compared.
func (s *pace) complete() bool {
	const (
		shortest, longest = 5, 60 // seconds
		enough            = 20    // completions, seen and expected: a budget of noise, a quarter
	)
	expected := s.span.completions
	if rate, ok := s.usual.rate(); ok {
		expected = rate * s.span.busy
	}
	return s.seconds >= longest || s.seconds >= shortest && s.span.completions+expected >= enough
}

// agrees reports whether what was done may be chance if the usual rate holds, or no usual rate is known. If completions
// were a Poisson process, they would be less than six standard deviations off, by the likelihood ratio, which holds for
// few of them, too. Most services vary more than that, and come to three.
func (w serviceRate) agrees(usual serviceRate) bool {
	const improbable = 6 * 6 // a budget, of six standard deviations
	rate, ok := usual.rate()
	if !ok {
		return true
	}
	expected := rate * w.busy
	ratio := expected - w.completions
	if w.completions > 0 {
		ratio += w.completions * math.Log(w.completions/max(expected, 1e-9))
	}
	return 2*ratio <= improbable
}

// unsupported is how much of a speed has faded because nothing completed since, within a minute.
func (s *pace) unsupported(now time.Time) float64 {
	return min(1, max(0, now.Sub(s.at).Seconds())/speedTau.Seconds())
}

// serviceRate is what a server has done in about the last minute. Both sums fade with the time constant speedTau, so
// their ratio weighs the recent past most.
type serviceRate struct {
	completions float64 // requests
	busy        float64 // slot-seconds
}

func (w *serviceRate) add(completions, busy float64, dt time.Duration) {
	keep := math.Exp(-dt.Seconds() / speedTau.Seconds())
	w.completions = w.completions*keep + completions
	w.busy = w.busy*keep + busy
}

// rate is completions per busy slot-second; false while too little is known.
func (w *serviceRate) rate() (float64, bool) {
	const (
		fewest  = 10  // completions: a budget of noise, a third
		extreme = 1e9 // per second; a bound, and its inverse is the other end
	)
	if w.completions < fewest || w.busy <= 0 {
		return 0, false
	}
	return min(max(w.completions/w.busy, 1/extreme), extreme), true
}

// speed is the ratio to the typical rate, shrunk towards 1 by how much of the deviation its own noise explains
// (speed.go).
func (w *serviceRate) speed(typical float64) float64 {
	const widest = 20 // ratio; a bound
	rate, ok := w.rate()
	if !ok || !(typical > 0) {
		return 1
	}
	return min(max(shrunk(rate/typical, 4/w.completions), 1.0/widest), widest)
}

// shrunk is a ratio without what its noise explains: the variance of its logarithm (positive-part James–Stein).
func shrunk(ratio, variance float64) float64 {
	x := math.Log(ratio)
	return math.Exp(x * max(0, 1-variance/(x*x)))
}
