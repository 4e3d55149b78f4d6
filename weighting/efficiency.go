package weighting

import "math"

// A stint is what an engine did in some time while it had requests.
type stint [4]float64

// The numbers of a stint: prompt tokens computed, iterations, tokens generated, seconds.
const (
	ofPrompts = iota
	ofIterations
	ofOutput
	ofSeconds
)

// costSpan is the seconds of one comparison of the time that an engine took with what it did: longer than most prompts
// are computed for (with less than four the rate was twice the true one), and short enough that workTau has some.
const costSpan = 8.0

// efficiency is how long an engine took for what it did while it had requests: the sums of a regression,
// fading with the time constant workTau.
type efficiency struct {
	sum      stint
	products [4]stint
}

// Budgets of noise: seconds that a speed stands on, and those of all engines together that a cost does.
const enough, enoughOfAll = 10.0, 20.0

// seconds is how long the sums are about.
func (e *efficiency) seconds() float64 { return e.sum[ofSeconds] }

// add takes in what an engine did.
func (e *efficiency) add(d *stint) {
	e.fade(math.Exp(-d[ofSeconds] / workTau.Seconds()))
	one := efficiency{sum: *d}
	for i := range d {
		for k := range d {
			one.products[i][k] = d[i] * d[k]
		}
	}
	e.plus(&one)
}

func (e *efficiency) fade(keep float64) {
	for i := range e.sum {
		e.sum[i] *= keep
		for k := range e.sum {
			e.products[i][k] *= keep
		}
	}
}

func (e *efficiency) plus(o *efficiency) {
	for i := range e.sum {
		e.sum[i] += o.sum[i]
		for k := range e.sum {
			e.products[i][k] += o.products[i][k]
		}
	}
}

// typical is what an engine of some relative speed did, as of a typical one, which would have taken speed times as
// long.
// Its products are those of what its own seconds alone do not explain, so they can be added to those of engines of
// any speed, before that is known.
func (e *efficiency) typical(speed float64) *efficiency {
	t := *e
	t.sum[ofSeconds] *= speed
	s := &e.products
	for i := range s {
		for k := range s {
			t.products[i][k] -= s[i][ofSeconds] * s[k][ofSeconds] / s[ofSeconds][ofSeconds]
		}
	}
	return &t
}

// A cost is what an engine's work takes, in seconds: a prompt token, an iteration, and a token of output.
type cost struct{ token, iteration, output float64 }

// of is the seconds that a stint takes.
func (c cost) of(d *stint) float64 {
	return c.token*d[ofPrompts] + c.iteration*d[ofIterations] + c.output*d[ofOutput]
}

// rate is prompt tokens per second; NaN while unknown.
func (c cost) rate() float64 {
	if c.token <= 0 {
		return math.NaN()
	}
	return 1 / c.token
}

// cost returns the cost of typical engines, the solution of least squares, in which the prompt tokens are what is
// explained, by the seconds, less those of the iterations and of the output. Of these numbers only the prompts are
// inexact, because one counts as a whole when its last token is computed. Where they explained the seconds, long
// prompts would make their cost too low by half.
//
// What is usual of an iteration and an output counts as far as the noise of the readings leaves them open: by the
// variance of what they leave unexplained, over that of the usual values, which is taken to be their square.
func (e *efficiency) cost() (c cost, ok bool) {
	const mostOfIteration, mostOfOutput = 1000.0, 10.0 // prompt tokens; bounds, or any rate may follow
	if e.seconds() < enoughOfAll {
		return cost{}, false
	}
	iteration, output := e.solve(e.unexplained(e.solve(0)))
	iteration, output = min(max(0, iteration), mostOfIteration), min(max(0, output), mostOfOutput)
	c.token = e.seconds() / (e.sum[ofPrompts] + iteration*e.sum[ofIterations] + output*e.sum[ofOutput])
	c.iteration, c.output = iteration*c.token, output*c.token
	return c, c.token > 0
}

// solve is what an iteration and an output take, in prompt tokens, given the variance of what they do not explain.
func (e *efficiency) solve(variance float64) (iteration, output float64) {
	const least = 1e-9 // of the products: a bound, so that there is a solution
	s := &e.products
	pullI, pullO := variance/(iterationTokens*iterationTokens), variance/(outputCost*outputCost)
	ii, io, oo := s[ofIterations][ofIterations], s[ofIterations][ofOutput], s[ofOutput][ofOutput]
	pullI, pullO = max(pullI, least*ii), max(pullO, least*oo)
	i, o := pullI*iterationTokens-s[ofIterations][ofPrompts], pullO*outputCost-s[ofOutput][ofPrompts]
	ii, oo = ii+pullI, oo+pullO
	if det := ii*oo - io*io; det > 0 {
		return (i*oo - o*io) / det, (o*ii - i*io) / det
	}
	return iterationTokens, outputCost
}

// unexplained is the variance of the prompt tokens of one comparison besides that.
func (e *efficiency) unexplained(iteration, output float64) float64 {
	comparisons := e.seconds() / costSpan
	return e.squares(stint{ofPrompts: 1, ofIterations: iteration, ofOutput: output}) / max(1, comparisons-3)
}

// squares is the sum of the squares of what remains of all stints, each number times its factor.
func (e *efficiency) squares(factors stint) (sum float64) {
	for i := range factors {
		for k := range factors {
			sum += factors[i] * factors[k] * e.products[i][k]
		}
	}
	return max(0, sum)
}

// speed is how fast the engine was, as a ratio to one of that cost, and the standard error of its logarithm, by what
// the single times were off.
func (e *efficiency) speed(c cost) (ratio, noise float64, ok bool) {
	const widest = 20 // ratio; a bound
	if e.seconds() < enough || c.token <= 0 {
		return 1, 0, false
	}
	ratio = min(max(c.of(&e.sum)/e.seconds(), 1.0/widest), widest)
	n := e.seconds() * e.seconds() / e.products[ofSeconds][ofSeconds] // comparisons
	if n < 2 {
		return ratio, math.Inf(1), true
	}
	off := e.squares(stint{c.token / ratio, c.iteration / ratio, c.output / ratio, -1}) // by its own cost
	return ratio, math.Sqrt(off*n/(n-1)) / e.seconds(), true
}
