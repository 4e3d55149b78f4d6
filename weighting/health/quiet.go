package health

import "time"

// A quiet is how much has waited since something came, and how much does so usually.
type quiet struct {
	pending    float64 // F
	times, sum float64 // how often something came, and F until then, fading
	longest    float64 // F that ended, fading
}

// end ends it: something came n times, so long after the last one.
func (s *quiet) end(n float64, after time.Duration) {
	const tau = time.Minute
	if s.pending > 0 {
		s.times, s.sum = fade(s.times, after, tau)+n, fade(s.sum, after, tau)+s.pending
		s.longest = max(s.pending, fade(s.longest, after, memory))
	}
	s.pending = 0
}

// mean is F for each time that something came.
func (s *quiet) mean() float64 { return s.sum / s.times }

// known reports whether there is a mean.
func (s *quiet) known() bool {
	const fewest = 20
	return s.times >= fewest
}

// improbable reports whether chance does not explain that nothing comes.
func (s *quiet) improbable() bool { return s.known() && s.pending >= falseAlarm*s.mean() }
