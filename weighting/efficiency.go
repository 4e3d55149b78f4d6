package weighting

import "math"

// efficiency is how long an engine took for what it did while it had requests: the sums of a regression
// of seconds on iterations and tokens, fading with the time constant workTau (package comment).
type efficiency struct {
	iterations, tokens, seconds          float64
	ii, it, tt, iterationTime, tokenTime float64 // sums of products
}

// enough is the seconds that a speed stands on.
const enough = 5.0

// add takes in what an engine did in some seconds.
func (e *efficiency) add(iterations, tokens, seconds float64) {
	e.fade(math.Exp(-seconds / workTau.Seconds()))
	e.plus(&efficiency{
		iterations: iterations, tokens: tokens, seconds: seconds,
		ii: iterations * iterations, it: iterations * tokens, tt: tokens * tokens,
		iterationTime: iterations * seconds, tokenTime: tokens * seconds,
	}, 1)
}

func (e *efficiency) fade(keep float64) {
	for _, sum := range []*float64{
		&e.iterations, &e.tokens, &e.seconds, &e.ii, &e.it, &e.tt, &e.iterationTime, &e.tokenTime,
	} {
		*sum *= keep
	}
}

// plus adds what an engine of some relative speed did: a typical one would have taken speed times as long.
func (e *efficiency) plus(o *efficiency, speed float64) {
	e.iterations += o.iterations
	e.tokens += o.tokens
	e.seconds += o.seconds * speed
	e.ii += o.ii
	e.it += o.it
	e.tt += o.tt
	e.iterationTime += o.iterationTime * speed
	e.tokenTime += o.tokenTime * speed
}

// A cost is what an engine's work takes, in seconds.
type cost struct{ iteration, token float64 }

// rate is prompt tokens per second; NaN while unknown.
func (c cost) rate() float64 {
	if c.token <= 0 {
		return math.NaN()
	}
	return 1 / c.token
}

// cost is the least-squares solution. A pull of a hundredth towards an iteration that takes as long as 200
// tokens, about where the arithmetic of a GPU takes as long as reading the weights, decides where the readings cannot
// tell the two apart.
func (e *efficiency) cost() (c cost, ok bool) {
	const tokens, pull = 200.0, 0.01
	ridge := pull * e.ii
	ii, it, tt := e.ii+ridge, e.it-ridge*tokens, e.tt+ridge*tokens*tokens
	det := ii*tt - it*it
	if e.seconds < enough || !(det > 0) {
		return cost{}, false
	}
	c = cost{(e.iterationTime*tt - e.tokenTime*it) / det, (e.tokenTime*ii - e.iterationTime*it) / det}
	if c.iteration < 0 {
		c = cost{0, e.tokenTime / e.tt}
	}
	return c, c.token > 0
}

// speed is how fast the engine was, as a ratio to one of that cost.
func (e *efficiency) speed(c cost) (float64, bool) {
	const widest = 20 // ratio
	if e.seconds < enough || c.token <= 0 {
		return 1, false
	}
	return min(max((c.iteration*e.iterations+c.token*e.tokens)/e.seconds, 1.0/widest), widest), true
}
