package weighting

// Outliers: errors that the others would have answered
//
// Any error that is no failure of the endpoint (404, 424, 429 or another 4xx, a gRPC status) may be the request's own:
// its client asks for a model that no server has, or for more than its quota. So an error counts against an endpoint
// only where others would have answered, and it neither ends nor extends a row of failures. An endpoint fails with
// errors if, since they began, and while it answers less than half of what the others would,
//
//	c(S) ≥ 9.2 − 3·ln(o), and c(R) at least half of that
//
//	c(E) = E − a − a·ln(E/a), for E above a
//	a    requests that it answered without an error, or began to serve
//	o    the share that the others answered without an error
//	R    o times its own requests
//	S    its share of the traffic times the answers of the pool, summed over the time
//
// Where E answers are expected of a Poisson process, as few as a have a probability of exp(−c(E)) at most (Chernoff).
// The bound with R holds if requests are sent without regard to what is wrong with them. But bad ones come in bursts,
// to the endpoint that is the emptiest, or one client sends all of its own to one endpoint. So S is the first
// condition: bad requests come on top of those that the pool answers, of which an endpoint gets its share all the same.
// R only keeps an endpoint from being blamed for requests that it was not sent; half is five errors, because a proxy
// may eject the endpoint after them. An endpoint that is being probed needs half of the threshold of S.
//
// An engine that is full, and answers what it has no room for at once with an error, looks emptier than the others,
// gets more than it answers, and is found by that; where all are full, none is. The threshold rises with −ln(o) because
// chance makes more such streaks where all answer many requests with errors. Not to be distinguished from an endpoint
// that fails: one to which only such a client sends; and, for seconds, any one that such a client keeps busy while all
// others stop sending at once and their long requests are still being answered.

import (
	"fmt"
	"math"
)

// ends are requests by how they ended: with an error of any kind, or answered without one.
type ends struct{ errors, answered float64 }

func (e *ends) add(d ends) {
	e.errors += d.errors
	e.answered += d.answered
}

func (e *ends) requests() float64 { return e.errors + e.answered }

// answeredShare is the share that was answered; 1 while little is known.
func (e *ends) answeredShare() float64 { return (e.answered + 1) / (e.requests() + 1) }

// A streak is a run of requests of which an endpoint answers less than half of what the others would. It distinguishes
// an endpoint that fails (the model is gone, the engine is full) from requests that fail on every endpoint.
type streak struct {
	recent      ends // of the endpoint's own, the last few
	own, others ends
	fresh       ends    // of the endpoint's own, since its state changed
	share       float64 // of the answers of the whole pool, by the endpoint's shares of the traffic
	inFlight    float64 // at the beginning
}

// extend takes in what ended at the endpoint and in the whole pool since the last step, and what is in flight at the
// endpoint now. share is that of the traffic in force meanwhile.
func (s *streak) extend(own, pool ends, share, inFlight float64) {
	const (
		few    = 50  // requests
		memory = 100 // expected answers; from twice as many on, the past counts half
	)
	if s.own.errors == 0 {
		first := ends{errors: own.errors} // what was answered in the same step may have come before
		s.own, s.recent, s.fresh, s.inFlight = first, first, first, inFlight
		return
	}
	keep := math.Exp(-own.requests() / few)
	s.recent = ends{s.recent.errors*keep + own.errors, s.recent.answered*keep + own.answered}
	s.own.add(own)
	s.fresh.add(own)
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

// errorReason describes the errors on requests that others answer; empty where there are none. The more errors the
// others have, too, the more streaks chance makes. An endpoint that is being probed has to prove that it recovered.
// One whose flag fell is flagged again only when most of what ended since are errors: its answers take their time.
func (o *outlier) errorReason() string {
	const chance = 3
	s := &o.streak
	if s.own.errors == 0 || o.state != ejected && s.fresh.errors <= s.fresh.answered {
		return ""
	}
	others := s.others.answeredShare()
	least := improbable - chance*math.Log(others)
	few := least / 2 // five errors: a proxy may eject the endpoint then, and send nothing more
	if o.state == probing {
		least = few
	}
	served := s.served(o.inFlight)
	if surprise(served, s.share) < least || surprise(served, s.byOthers()) < few {
		return ""
	}
	return fmt.Sprintf("failing: %.0f of the last %.0f requests ended in an error; other endpoints answer %.0f %%",
		s.own.errors, s.own.requests(), 100*others)
}

// unproven reports whether the endpoint was ejected for errors that an access log reported, and is to be probed while
// there is no access log.
func (o *outlier) unproven() bool { return o.state == probing && o.ejectedForErrors && o.reportsOnly }
