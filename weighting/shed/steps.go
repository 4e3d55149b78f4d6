package shed

import (
	"math"
	"time"
)

// dropQuantizer turns a drop fraction that drifts into few steps, because each of them is a push, and remembers them.
// It rises by 2.5 % of what is accepted once that has been wanted for a second, by 15 % at once; it falls by MaxDrop in
// ten seconds at most, unless a slot is free.
type dropQuantizer struct {
	past  [32]dropStep // a ring
	n     int
	apart time.Time // since when the fraction wanted has differed from the step; zero while it does not
	above bool      // the fraction wanted was above the step
}

type dropStep struct {
	since time.Time
	drop  float64
}

// Steps are in the logarithm of what is accepted.
const (
	fineStep   = 0.025 // is taken once it has been wanted for longEnough
	coarseStep = 0.15  // is taken at once
	longEnough = time.Second
)

func (s *dropQuantizer) last() dropStep {
	if s.n == 0 {
		return dropStep{}
	}
	return s.past[(s.n-1)%len(s.past)]
}

// update moves towards the fraction wanted if that is worth a step: at once where it is far above, after a while where
// it is not, and down no faster than fall, in fractions per second.
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

// leastAccepted bounds how much is inferred about the refused share from what still arrives.
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
		begin := step.since
		if begin.Before(from) {
			begin = from
		}
		if begin.Before(end) {
			refused += step.drop * end.Sub(begin).Seconds()
			end = begin
		}
	}
	return accepting(refused / whole)
}
