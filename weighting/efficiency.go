package weighting

import "math"

// efficiency is how long an engine took for what it did while it had requests: the sums of a regression
// of seconds on iterations and tokens, fading with the time constant workTau.
type efficiency struct {
	iterations, tokens, seconds          float64
	ii, it, tt, iterationTime, tokenTime float64 // sums of products
	timeTime                             float64
}

// Seconds that a speed stands on, and those of all engines together that a cost does.
const enough, enoughOfAll = 10.0, 20.0

// add takes in what an engine did in some seconds.
func (e *efficiency) add(iterations, tokens, seconds float64) {
	e.fade(math.Exp(-seconds / workTau.Seconds()))
	e.plus(&efficiency{
		iterations: iterations, tokens: tokens, seconds: seconds,
		ii: iterations * iterations, it: iterations * tokens, tt: tokens * tokens,
		iterationTime: iterations * seconds, tokenTime: tokens * seconds, timeTime: seconds * seconds,
	}, 1)
}

func (e *efficiency) fade(keep float64) {
	for _, sum := range []*float64{
		&e.iterations, &e.tokens, &e.seconds, &e.ii, &e.it, &e.tt, &e.iterationTime, &e.tokenTime, &e.timeTime,
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
	e.timeTime += o.timeTime * speed * speed
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

// cost is the least-squares solution. A slight pull towards an iteration that takes as long as iterationTokens decides
// where the readings cannot tell the two apart. Where they hardly can, as most of the time goes into output, a stronger
// pull would make of 25 tokens on a small engine more than 100, and the prefill rate four times too high. An iteration
// takes no longer than most tokens, though each prompt be one.
func (e *efficiency) cost() (c cost, ok bool) {
	const tokens, pull, most = iterationTokens, 0.0003, 1000.0
	ridge := pull * e.ii
	ii, it, tt := e.ii+ridge, e.it-ridge*tokens, e.tt+ridge*tokens*tokens
	det := ii*tt - it*it
	if e.seconds < enoughOfAll || !(det > 0) {
		return cost{}, false
	}
	c = cost{(e.iterationTime*tt - e.tokenTime*it) / det, (e.tokenTime*ii - e.iterationTime*it) / det}
	switch {
	case c.iteration < 0:
		c = cost{0, e.tokenTime / e.tt}
	case c.iteration > most*c.token:
		token := e.seconds / (most*e.iterations + e.tokens)
		c = cost{most * token, token}
	}
	return c, c.token > 0
}

// speed is how fast the engine was, as a ratio to one of that cost, and the standard error of its logarithm, by what
// the single times were off.
func (e *efficiency) speed(c cost) (ratio, noise float64, ok bool) {
	const widest = 20 // ratio
	if e.seconds < enough || c.token <= 0 {
		return 1, 0, false
	}
	ratio = min(max((c.iteration*e.iterations+c.token*e.tokens)/e.seconds, 1.0/widest), widest)
	i, t := c.iteration/ratio, c.token/ratio // its own cost
	off := e.timeTime - 2*(i*e.iterationTime+t*e.tokenTime) + i*i*e.ii + 2*i*t*e.it + t*t*e.tt
	n := e.seconds * e.seconds / e.timeTime // comparisons
	if n < 2 {
		return ratio, math.Inf(1), true
	}
	return ratio, math.Sqrt(max(0, off)*n/(n-1)) / e.seconds, true
}
