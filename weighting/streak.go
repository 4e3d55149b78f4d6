package weighting

// Outliers: endpoints that fail, or answer errors where others would not
//
// A failure is the endpoint's own: no connection, a reset, a 5xx. Any other error (404, 424, 429 or another 4xx, a gRPC
// status) may be the request's own: its client asks for a model that no server has, or for more than its quota. A
// streak begins with either, and lasts while the endpoint answers less than half of what the others would. In a streak
// it fails
//
//	by its failures   five, which the others fail so rarely that as few answers of n requests have a probability of
//	                  exp(−b) at most, b ≥ t
//	by its errors     c(S) ≥ t, and c(R) at least half of that
//
//	t    9.2 − 3·ln(o): the more errors the others have, too, the more streaks chance makes
//	o    the share that the others answered without an error, from the pool's last 200 requests before it on
//	b    n·KL(a/n, o), where both leave out the errors that may be the requests' own (Chernoff, binomial)
//	c(E) E − a − a·ln(E/a) for E above a: where E answers are expected of a Poisson process, as few as a have a
//	     probability of exp(−c(E)) at most (Chernoff)
//	a    requests that it answered without an error, or, for c, began to serve
//	R    o times its own requests
//	S    its share of the traffic times the answers of the pool, summed over the time
//
// The bound with R holds if requests are sent without regard to what is wrong with them. But bad ones come in bursts,
// to the endpoint that is the emptiest, or one client sends all of its own to one endpoint. So S is the first
// condition: bad requests come on top of those that the pool answers, of which an endpoint gets its share all the same.
// R only keeps an endpoint from being blamed for requests that it was not sent; half is five errors, because a proxy
// may eject the endpoint after them. An endpoint that is being probed needs half of the threshold of S.
//
// An engine that is full, and answers what it has no room for at once with an error, looks emptier than the others,
// gets more than it answers, and is found by that; where all are full, none is. Not to be distinguished from an
// endpoint that fails: one to which only such a client sends; and, for seconds, any one that such a client keeps busy
// while all others stop sending at once and their long requests are still being answered.

import (
	"fmt"
	"math"
)

// ends are requests by how they ended: failed, with an error that may be their own, or answered without one.
type ends struct{ failed, errors, answered float64 }

// plus adds ends, fading those before by a factor.
func (e ends) plus(d ends, keep float64) ends {
	return ends{e.failed*keep + d.failed, e.errors*keep + d.errors, e.answered*keep + d.answered}
}

func (e ends) minus(d ends) ends {
	return ends{e.failed - d.failed, e.errors - d.errors, e.answered - d.answered}
}

func (e *ends) wrong() float64    { return e.failed + e.errors }
func (e *ends) requests() float64 { return e.wrong() + e.answered }

// share is the part of so many requests that was answered; 1 while little is known.
func (e *ends) share(of float64) float64 { return (e.answered + 1) / (of + 1) }

// A streak is a run of requests of which an endpoint answers less than half of what the others would. It distinguishes
// an endpoint that fails (the process or the model is gone, the engine is full) from requests that fail on every one.
type streak struct {
	recent      ends // of the endpoint's own, the last few
	own, others ends
	share       float64 // of the answers of the whole pool, by the endpoint's shares of the traffic
	inFlight    float64 // at the beginning
}

// extend takes in what ended at the endpoint and in the whole pool since the last step, and what is in flight at the
// endpoint now. before is what ended in the pool until then; share is that of the traffic in force meanwhile.
func (s *streak) extend(own, pool, before ends, share, inFlight float64) {
	const (
		few    = 50  // requests
		memory = 100 // expected answers; from twice as many on, the past counts half
	)
	if s.own.requests() == 0 {
		if own.wrong() > 0 {
			own.answered = 0 // what was answered in the same step may have come before
			s.own, s.recent, s.others, s.inFlight = own, own, before, inFlight
		}
		return
	}
	s.recent = s.recent.plus(own, math.Exp(-own.requests()/few))
	keep := 1.0
	if s.share > 2*memory {
		keep = 0.5
	}
	s.own = s.own.plus(own, keep)
	s.others = s.others.plus(pool.minus(own), keep)
	s.share = s.share*keep + share*pool.answered
	if s.recent.answered >= s.recent.requests()*s.others.share(s.others.requests())/2 {
		*s = streak{}
	}
}

// fails reports whether the endpoint failed several requests, which may be no more than the others fail: five, no later
// than a proxy ejects it, and nothing more is seen.
func (s *streak) fails() bool { return s.own.failed >= 5 }

// finding describes what fails; empty where nothing does. An endpoint that is being probed has to prove that it
// recovered.
func (s *streak) finding(state health, inFlight float64) string {
	others := s.others.share(s.others.requests())
	least := improbable - 3*math.Log(others)
	answers := s.others.share(s.others.answered + s.others.failed)
	if s.fails() && tooFew(s.own.answered, s.own.failed, answers) >= least {
		return fmt.Sprintf("failing: %.0f of the last %.0f requests failed", s.own.failed,
			s.own.failed+s.own.answered)
	}
	few := least / 2
	if state == probing {
		least = few
	}
	served := s.own.answered + max(0, inFlight-s.inFlight) // or begins to serve
	if surprise(served, s.share) < least || surprise(served, s.own.requests()*others) < few {
		return ""
	}
	return fmt.Sprintf("failing: %.0f of the last %.0f requests ended in an error; other endpoints answer %.0f %%",
		s.own.wrong(), s.own.requests(), 100*others)
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
