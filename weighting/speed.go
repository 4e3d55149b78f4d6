package weighting

import (
	"math"
	"time"
)

// A pace is what an endpoint completes for each slot-second, of about the last minute. It is
// learned by spans of some seconds. One that contradicts what is known (a counter that was wrong for a
// moment) does not count, unless the next says the same: then the machine has changed, or what was known was wrong,
// and nothing of it is left.
type pace struct {
	known   serviceRate // usual, with the span as far as that agrees
	usual   serviceRate // spans that count
	span    serviceRate // what is told of now
	seconds float64
	other   serviceRate // the span before, where it did not count
	at      time.Time   // of the last completion
}

// add takes in what was done in a time that ended at now.
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

// weigh has what is known weigh no more than a few minutes like the span: a counter that was wrong may have
// told of the work of hours.
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

// tells reports whether the span is long enough to be compared.
func (s *pace) complete() bool {
	const (
		shortest, longest = 5, 60 // seconds
		enough            = 20    // completions, seen and expected
	)
	expected := s.span.completions
	if rate, ok := s.usual.rate(); ok {
		expected = rate * s.span.busy
	}
	return s.seconds >= longest || s.seconds >= shortest && s.span.completions+expected >= enough
}

// agrees reports whether what was done may be chance where the usual is right, or nothing usual is known:
// were completions a Poisson process, they would be less than six standard deviations off (by the likelihood
// ratio, which holds for few of them, too). Most services vary more than that, and come to three.
func (w serviceRate) agrees(usual serviceRate) bool {
	const improbable = 6 * 6
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

// unsupported is how much of a speed has faded because nothing was completed since, within a minute.
func (s *pace) unsupported(now time.Time) float64 {
	return min(1, max(0, now.Sub(s.at).Seconds())/speedTau.Seconds())
}
