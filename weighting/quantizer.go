package weighting

import (
	"math"
	"time"
)

// dropQuantizer turn a share to refuse, which drifts, into few steps, for each of them is
// a push, and remember them.
type dropQuantizer struct {
	past  [32]dropStep // a ring
	n     int
	apart time.Time // since when the share wanted has been off the step; zero while it is not
	above bool      // it was above
}

type dropStep struct {
	since time.Time
	drop  float64
}

// Steps are in the logarithm of what is accepted.
const (
	fineStep   = 0.025 // is taken when it has been wanted for long enough
	coarseStep = 0.15  // is taken at once
	longEnough = time.Second
)

func (s *dropQuantizer) last() dropStep {
	if s.n == 0 {
		return dropStep{}
	}
	return s.past[(s.n-1)%len(s.past)]
}

// climb goes towards the share wanted if that is worth a step: at once where it is
// far above, after a while where it is not, and down no faster than fall, in shares
// per second.
func (s *dropQuantizer) update(want, fall float64, now time.Time) {
	last := s.last()
	off := math.Log(accepting(last.drop) / accepting(want))
	switch above := off > 0; {
	case !(math.Abs(off) >= fineStep) && (want > 0 || last.drop == 0):
		s.apart = time.Time{}
		return
	case s.apart.IsZero() || above != s.above:
		s.apart, s.above = now, above
	}
	switch lasting := now.Sub(s.apart) >= longEnough; {
	case off >= coarseStep, lasting && off > 0:
		s.step(want, now)
	case lasting:
		s.step(max(want, last.drop-fall*now.Sub(last.since).Seconds()), now)
	}
}

func (s *dropQuantizer) step(drop float64, now time.Time) {
	const resolution = 1e4
	s.past[s.n%len(s.past)] = dropStep{now, math.Round(drop*resolution) / resolution}
	s.n++
	s.apart = time.Time{}
}

// leastAccepted bounds what is told of a share refused from what still arrives.
const leastAccepted = 0.02

func accepting(drop float64) float64 { return max(leastAccepted, 1-drop) }

// accepted is the mean share accepted between two times.
func (s *dropQuantizer) accepted(from, to time.Time) float64 {
	whole := to.Sub(from).Seconds()
	if whole <= 0 {
		return accepting(s.last().drop)
	}
	var refused float64 // share times seconds
	end := to
	for back := 1; back <= min(s.n, len(s.past)) && end.After(from); back++ {
		step := s.past[(s.n-back)%len(s.past)]
		begin := later(step.since, from)
		if begin.Before(end) {
			refused += step.drop * end.Sub(begin).Seconds()
			end = begin
		}
	}
	return accepting(refused / whole)
}
