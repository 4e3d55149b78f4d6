package weighting

import (
	"math"
	"time"
)

// outstanding is an account of the prompt tokens that one endpoint has not computed yet: what began
// there, by guess, less what it computed since.
type outstanding struct {
	since  time.Time // the account began
	at     time.Time // of tokens; zero before the first step
	tokens float64   // prompt tokens, guessed
	rate   float64   // prompt tokens per second that it computes while it has any
	held   smoothed  // prompt tokens per second that it computed while requests waited; none while none wait
	spread float64   // prompt tokens, where requests are only expected to begin; else 0

	begun, guessed float64  // requests, and their prompt tokens: cumulative
	past           []moment // when requests began; a ring that grows to mostMoments
	next           int
	unseen         lows // requests begun, less those computed and those waiting: by readings

	source WorkSource // as of the last step
}

// mostMoments bounds what an account remembers. Most of a large pool has less to remember.
const mostMoments = 64

// A moment is the account just after requests began.
type moment struct {
	at                     time.Duration // since the account began
	begun, guessed, tokens float64
}

// unseenSpan is the time in which there is a moment without a prompt under way. Requests
// that never come to be computed, such as slow uploads, look like prompts under way for as long.
const unseenSpan = 5 * time.Second

// start begins the account.
func (o *outstanding) start(now time.Time) {
	*o = outstanding{since: now, at: now, held: o.held, past: o.past[:0]}
	o.note()
}

// forget ends the account: of the requests before, nothing is known any more.
func (o *outstanding) forget() { *o = outstanding{} }

// hold notes at what rate prompts are computed while requests wait: an engine that holds them back because its KV
// cache is short, or because only so many may run, computes them later than it could.
func (o *outstanding) hold(d *tokenGrowth, waits bool) {
	const tau = 2 * time.Second // prompts count when their last token is computed
	if !waits {
		o.held = smoothed{}
		return
	}
	o.held.add(d.computed/d.seconds, time.Duration(d.seconds*float64(time.Second)), tau)
}

// pace sets the rate: what an engine can compute where that is known, and no more than what it was seen to compute
// while requests wait, as long as that was recent.
func (o *outstanding) pace(able float64, recent bool) {
	const soon = 1e9 // tokens per second: without a rate, nothing is left at the next step
	o.rate = soon
	if !math.IsNaN(able) {
		o.rate = able
	}
	if recent {
		o.rate = min(o.rate, o.held.or(o.rate))
	}
}

// begin adds requests that begin now, of so many prompt tokens by guess.
func (o *outstanding) begin(now time.Time, requests, tokens float64) {
	o.drain(now)
	if requests <= 0 {
		return
	}
	o.begun += requests
	o.guessed += tokens
	o.tokens += tokens
	o.note()
}

// refuse takes out requests that the engine refused, of so many prompt tokens by guess.
func (o *outstanding) refuse(requests, tokens float64) {
	if requests <= 0 {
		return
	}
	o.begun -= requests
	o.guessed -= tokens
	o.tokens = max(0, o.tokens-tokens)
	o.note()
}

// note keeps the moment, and of those before it one in 20 ms: where what begins is only expected, every step has one.
func (o *outstanding) note() {
	const apart = 20 * time.Millisecond
	if o.kept() > 1 && o.back(0).at-o.back(1).at < apart {
		o.next--
	}
	now := moment{o.at.Sub(o.since), o.begun, o.guessed, o.tokens}
	if i := o.next % mostMoments; i < len(o.past) {
		o.past[i] = now
	} else {
		o.past = append(o.past, now)
	}
	o.next++
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

// kept is how many moments are known, and back the one that is so far back.
func (o *outstanding) kept() int          { return min(o.next, mostMoments) }
func (o *outstanding) back(n int) *moment { return &o.past[(o.next-1-n)%mostMoments] }

// last is the prompt tokens of the last n of so many requests.
func (o *outstanding) last(n, of, mean float64) float64 {
	return max(0, o.guessedAt(of, mean)-o.guessedAt(of-n, mean))
}

// guessedAt is the prompt tokens of the first requests, so many of them. Of those that began before
// the ring each counts as a mean one.
func (o *outstanding) guessedAt(begun, mean float64) float64 {
	after := moment{begun: o.begun, guessed: o.guessed}
	for n := range o.kept() {
		m := o.back(n)
		if m.begun <= begun {
			part := (begun - m.begun) / max(after.begun-m.begun, 1e-9)
			return m.guessed + min(part, 1)*(after.guessed-m.guessed)
		}
		after = *m
	}
	return after.guessed - (after.begun-begun)*mean
}

// A standing is what an engine reports of its requests.
type standing struct {
	at       time.Time
	waiting  float64
	present  float64 // waiting or running; NaN unknown
	computed float64 // requests whose prompt is computed, cumulative; NaN unknown
}

// correct corrects the account by a reading, and plays what began since once more. Engines take
// prompts up in order, so the requests that wait are those that began last: not less than these are
// outstanding, and no more than those that are not computed.
func (o *outstanding) correct(s standing, mean float64) {
	read, later := s.at.Sub(o.since), 0
	for later < o.kept() && o.back(later).at > read {
		later++
	}
	if later == o.kept() {
		return // nothing is known of that time
	}
	m := *o.back(later)
	tokens := o.left(m.tokens, read-m.at)
	least := o.last(min(s.waiting, m.begun), m.begun, mean)
	tokens = max(least, min(tokens, o.most(&m, &s, mean)))
	at, guessed := read, m.guessed
	for n := later - 1; n >= 0; n-- {
		m := o.back(n)
		tokens = max(0, o.left(tokens, m.at-at)+m.guessed-guessed)
		m.tokens = tokens
		at, guessed = m.at, m.guessed
	}
	now := o.at
	o.tokens, o.at = tokens, o.since.Add(at)
	o.drain(now)
}

// most is the prompt tokens that can be outstanding at a reading.
func (o *outstanding) most(m *moment, s *standing, mean float64) float64 {
	if math.IsNaN(s.computed) {
		return math.Inf(1)
	}
	o.unseen.note(m.begun-s.computed-s.waiting, s.at, unseenSpan)
	open := m.begun - s.computed - o.unseen.since(s.at.Add(-unseenSpan))
	if s.present < open {
		open = s.present
	}
	return o.last(max(open, s.waiting), m.begun, mean)
}
