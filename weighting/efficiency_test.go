package weighting

import "testing"

// Where an iteration seems to take as long whatever its tokens are, a rate without bounds would let any prompt be
// computed at once.
func TestAnIterationTakesNoLongerThanAThousandTokens(t *testing.T) {
	var e efficiency
	for _, tokens := range []float64{10_000, 30_000, 10_000, 30_000} {
		e.add(10, tokens, 10)
	}
	c, ok := e.cost()
	want(t, "a cost is known", ok, true)
	wantNear(t, "tokens that take as long as an iteration", c.iteration/c.token, 1000, 1e-9)
	wantNear(t, "seconds of all that was done", c.iteration*e.iterations+c.token*e.tokens, e.seconds, 1e-9)
}
