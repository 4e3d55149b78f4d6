package health

import (
	"fmt"
	"math"
	"time"
)

// A streak is a run of requests of which an endpoint answers less than half of what the others would. It distinguishes
// an endpoint that fails (the process or the model is gone, the engine is full) from requests that fail on every one.
type streak struct {
	recent      Ends // of the endpoint's own, the last few
	own, others Ends
	share       float64 // of the answers of the whole pool, by the endpoint's shares of the traffic
	inFlight    float64 // at the beginning
}

// observe takes in what ended at the endpoint and in the whole pool since the last step.
func (s *streak) observe(in *Sample, c *common) {
	const (
		few    = 50  // requests
		memory = 100 // expected answers; from twice as many on, the past counts half
	)
	own := in.Ended
	if s.own.requests() == 0 {
		if own.wrong() > 0 {
			own.Answered = 0 // what was answered in the same step may have come before
			s.own, s.recent, s.others, s.inFlight = own, own, c.were, in.InFlight
		}
		return
	}
	s.recent = s.recent.plus(own, math.Exp(-own.requests()/few))
	keep := 1.0
	if s.share > 2*memory {
		keep = 0.5
	}
	s.own = s.own.plus(own, keep)
	s.others = s.others.plus(c.ended.minus(own), keep)
	s.share = s.share*keep + in.Share*c.ended.Answered
	if s.recent.Answered >= s.recent.requests()*s.others.share(s.others.requests())/2 {
		*s = streak{}
	}
}

// fails reports whether the endpoint failed several requests, which may be no more than the others fail: five, no later
// than a proxy ejects it, and nothing more is seen.
func (s *streak) fails() bool { return s.own.Failed >= 5 }

// finding describes what fails; empty where nothing does. An endpoint that is being probed has to prove that it
// recovered.
func (s *streak) finding(in *Sample, before *Verdict, c *common) (string, time.Time) {
	others := s.others.share(s.others.requests())
	least := falseAlarm - 3*math.Log(others)
	answers := s.others.share(s.others.Answered + s.others.Failed)
	if s.fails() && tooFew(s.own.Answered, s.own.Failed, answers) >= least {
		return fmt.Sprintf("failing: %.0f of the last %.0f requests failed", s.own.Failed,
			s.own.Failed+s.own.Answered), c.now
	}
	few := least / 2
	if before.State == Probing {
		least = few
	}
	served := s.own.Answered + max(0, in.InFlight-s.inFlight) // or begins to serve
	if surprise(served, s.share) < least || surprise(served, s.own.requests()*others) < few {
		return "", c.now
	}
	return fmt.Sprintf("failing: %.0f of the last %.0f requests ended in an error; other endpoints answer %.0f %%",
		s.own.wrong(), s.own.requests(), 100*others), c.now
}

// surprise is −ln of a bound on the probability that a Poisson number is as small as this one (Chernoff).
func surprise(number, expected float64) float64 {
	switch {
	case number >= expected:
		return 0
	case number == 0:
		return expected
	}
	return expected - number - number*math.Log(expected/number)
}

// tooFew is −ln of a bound on the probability of as few answers among requests that are answered with a probability of
// p each (Chernoff).
func tooFew(answered, failed, p float64) float64 {
	n := answered + failed
	if answered >= n*p {
		return 0
	}
	b := failed * math.Log(failed/(n*(1-p))) // +Inf where the others fail none
	if answered > 0 {
		b += answered * math.Log(answered/(n*p))
	}
	return b
}
