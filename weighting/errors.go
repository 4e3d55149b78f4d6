package weighting

import (
	"fmt"
	"math"
)

// ends are requests by how they ended: with an error of whatever kind, or answered without one.
type ends struct{ errors, answered float64 }

func (e *ends) add(d ends) {
	e.errors += d.errors
	e.answered += d.answered
}

func (e *ends) requests() float64 { return e.errors + e.answered }

// answeredShare is the share that was answered; 1 while little is known.
func (e *ends) answeredShare() float64 { return (e.answered + 1) / (e.requests() + 1) }

// A streak is a run of requests of which an endpoint answers less than half of what the others
// would. It tells an endpoint that fails (the model is gone, the engine is full) from requests that
// fail wherever they go: package comment.
type streak struct {
	recent      ends // of the endpoint's own, the last few
	own, others ends
	share       float64 // of the answers of the whole pool, by the endpoint's shares of the traffic
	inFlight    float64 // at the beginning
}

// extend takes in what ended at the endpoint and in the whole pool since the last step, and in
// flight at the endpoint now. share is that of the traffic in force meanwhile.
func (s *streak) extend(own, pool ends, share, inFlight float64) {
	const (
		few    = 50  // requests
		memory = 100 // answers to be expected; what is behind twice as many has half the weight
	)
	if s.own.errors == 0 {
		first := ends{errors: own.errors} // what was answered in the same step may have come before
		s.own, s.recent, s.inFlight = first, first, inFlight
		return
	}
	keep := math.Exp(-own.requests() / few)
	s.recent = ends{s.recent.errors*keep + own.errors, s.recent.answered*keep + own.answered}
	s.own.add(own)
	s.others.add(ends{pool.errors - own.errors, pool.answered - own.answered})
	s.share += share * pool.answered
	if s.recent.answered >= s.recent.requests()*s.others.answeredShare()/2 {
		*s = streak{}
	}
	if s.share > 2*memory {
		half := func(e ends) ends { return ends{e.errors / 2, e.answered / 2} }
		s.own, s.others, s.share = half(s.own), half(s.others), s.share/2
	}
}

// byOthers is what the others would have answered of the endpoint's requests.
func (s *streak) byOthers() float64 {
	return s.own.requests() * s.others.answeredShare()
}

// served is what the endpoint answered, and what it began to serve since: in flight now beyond
// what was at the beginning.
func (s *streak) served(inFlight float64) float64 {
	return s.own.answered + max(0, inFlight-s.inFlight)
}

// surprise is −ln of a bound on the probability that a number that is Poisson is as small: by
// Chernoff.
func surprise(number, expected float64) float64 {
	switch {
	case number >= expected:
		return 0
	case number == 0:
		return expected
	}
	return expected - number - number*math.Log(expected/number)
}

// errs says how the endpoint answers with errors what others answer; nothing, if it is empty. The
// more others answer with errors, too, the more streaks chance makes; and one that was ill until
// now has to prove that it is not.
func (c *outlier) errorReason() string {
	const chance = 3
	s := &c.streak
	if s.own.errors == 0 {
		return ""
	}
	others := s.others.answeredShare()
	least := improbable - chance*math.Log(others)
	few := least / 2 // five errors: a proxy may eject the endpoint then, and send it no more
	if c.state == probing {
		least = few
	}
	served := s.served(c.inFlight)
	if surprise(served, s.share) < least || surprise(served, s.byOthers()) < few {
		return ""
	}
	return fmt.Sprintf("failing: %.0f of the last %.0f requests ended in an error, of which others answer %.0f %%",
		s.own.errors, s.own.requests(), 100*others)
}

// unlogged reports whether the proxies tell of errors by load reports alone, which take a 4xx for
// a success.
func (c *outlier) reportsOnly() bool { return c.proxies.Errors.Known() && !c.proxies.Answered.Known() }

// unproven is said of an endpoint that was flagged for errors while a log told of them, and is to
// be tried when none does.
func (c *outlier) unproven() bool { return c.state == probing && c.ejectedForErrors && c.reportsOnly() }
