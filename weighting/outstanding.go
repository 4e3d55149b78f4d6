package weighting

import (
	"math"
	"time"
)

// outstanding is an account of the prompt tokens that one endpoint has not computed yet: what began
// there, by guess, less what it computed since.
type outstanding struct {
	at     time.Time // of tokens; zero before the first step
	tokens float64   // prompt tokens, guessed
	rate   float64   // prompt tokens per second that it computes while it has any
	spread float64   // prompt tokens, where requests are only expected to begin; else 0
	held   smoothed  // prompt tokens per second that it computed while requests waited; none while none wait

	open   float64    // requests that began and whose prompts are not computed, as far as it is known
	recent [64]guess  // the last that began; a ring
	next   int        // of recent
	source WorkSource // as of the last step
}

// A guess is requests that began together, and their prompt tokens.
type guess struct{ requests, tokens float64 }

// hold notes at what rate prompts are computed while requests wait: an engine that holds them back because its KV
// cache is short, or because only so many may run, computes them later than it could.
func (o *outstanding) hold(d *tokenGrowth, waits bool) {
	const tau = 2 * time.Second // a memory: prompts count when their last token is computed
	if !waits {
		o.held = smoothed{}
		return
	}
	o.held.add(d.computed/d.seconds, time.Duration(d.seconds*float64(time.Second)), tau)
}

// pace sets the rate: what an engine can compute where that is known, and no more than what it was seen to compute
// while requests wait, as long as that was recent.
func (o *outstanding) pace(able float64, recent bool) {
	const soon = 1e9 // tokens per second, a bound: without a rate, nothing is left at the next step
	o.rate = soon
	if !math.IsNaN(able) {
		o.rate = able
	}
	if recent {
		o.rate = min(o.rate, o.held.or(o.rate))
	}
}

// begin adds requests that begin, of so many prompt tokens by guess, or takes out those that the engine refused.
func (o *outstanding) begin(requests, tokens float64) {
	o.tokens, o.open = max(0, o.tokens+tokens), max(0, o.open+requests)
	if requests <= 0 {
		return
	}
	last := &o.recent[o.next%len(o.recent)]
	if last.requests >= 1 { // expected ones come in parts
		o.next++
		last = &o.recent[o.next%len(o.recent)]
		*last = guess{}
	}
	last.requests, last.tokens = last.requests+requests, last.tokens+tokens
}

// drain takes off what was computed until then.
func (o *outstanding) drain(to time.Time) {
	if to.After(o.at) {
		o.tokens = o.left(o.tokens, to.Sub(o.at))
		o.at = to
	}
}

// left is what is left of so many prompt tokens after some time. Where requests are only expected to begin, the tokens
// are a mean over what may be outstanding, which is often nothing: the engine computes with the probability
// tokens / (tokens + spread), as one does at which requests arrive at random, and not until the mean is 0.
func (o *outstanding) left(tokens float64, after time.Duration) float64 {
	more := o.spread + o.rate*after.Seconds() - tokens // x of them are left: x² + more·x = tokens·spread
	return max(0, math.Sqrt(more*more+4*tokens*o.spread)-more) / 2
}

// last is the prompt tokens of the last n requests that began. Of those before the ring each counts as a mean one.
func (o *outstanding) last(n, mean float64) (tokens float64) {
	for back := 0; back < len(o.recent) && n > 0; back++ {
		g := o.recent[(o.next-back+len(o.recent))%len(o.recent)]
		if g.requests == 0 {
			break
		}
		part := min(1, n/g.requests)
		tokens, n = tokens+part*g.tokens, n-part*g.requests
	}
	return tokens + max(0, n)*mean
}

// correct bounds the account by a reading of an engine and of the requests waiting and present (NaN unknown). Engines
// take prompts up in order, so the requests that wait are those that began last: not less than these are outstanding,
// and no more than those that are not computed. What is not computed for long is forgotten: its client gave up, or
// still sends it, or its engine counts tokens when a request ends.
func (o *outstanding) correct(d *tokenGrowth, waiting, present, mean float64) {
	const tau = 10.0 // seconds; with 60, the p99 is 1.24 times as long where tokens are counted at the end
	o.open = waiting + max(0, o.open-d.first-waiting)*math.Exp(-d.seconds/tau)
	open := o.open
	if present < open {
		open = present
	}
	o.tokens = max(o.last(waiting, mean), min(o.tokens, o.last(max(open, waiting), mean)))
}
