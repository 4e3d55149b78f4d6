package weighting

import (
	"math"
	"time"
)

// What it takes to believe that an endpoint has slots of its own, and for how long that is
// believed.
const (
	slotsLeast = 10 * time.Second // under a queue, to begin with
	slotsKept  = 2 * time.Second  // of the same, as long as it is believed
	slotsMost  = 20 * time.Second // of the same, that counts
	slotsTau   = 5 * time.Minute  // in which what was seen fades
)

// A ceiling is what the gauge of running requests tells of how many an endpoint runs at once.
//
// That others wait proves no limit: an engine that batches continuously holds requests back at
// any number running, while the tokens of one iteration are spent or its KV cache is short. A
// limit shows in a number that stands. Whenever requests wait, as many run as ever did, though
// requests end and others take their place.
type ceiling struct {
	lately, before float64   // requests running, the most in this span of slotsTau and in the one before
	since          time.Time // of this span

	at     float64 // requests running, of which the rest is said
	stood  float64 // seconds for which so many ran while others waited, less those for which fewer did
	ended  float64 // requests completed meanwhile; NaN where nothing tells
	limits bool    // it is a limit, and not only the most that was seen
}

// most is how many requests ran at once, of late.
func (c *ceiling) most() float64 { return max(c.lately, c.before) }

// observe takes in the gauges of two reports, one after another.
func (c *ceiling) observe(old, seen *ServerReport) {
	running := seen.Running.Value
	if !seen.Running.Known() || running >= largestCount {
		return
	}
	if seen.Running.At.Sub(c.since) >= slotsTau {
		c.lately, c.before, c.since = 0, c.lately, seen.Running.At
	}
	c.lately = max(c.lately, running)
	if running > c.at || !c.limits && c.at > c.most() {
		c.at, c.stood, c.ended, c.limits = c.most(), 0, 0, false
	}
	_, dt := slope(old.Running, seen.Running)
	_, dtQueue := slope(old.Queue, seen.Queue)
	dt = min(dt, slotsLeast)
	c.stood *= math.Exp(-dt.Seconds() / slotsTau.Seconds())
	if dt > 0 && dtQueue > 0 && old.Queue.Value > 0 && seen.Queue.Value > 0 {
		c.waited(running >= c.at, dt.Seconds(), old, seen)
	}
	enough := c.stood >= slotsLeast.Seconds() || c.limits && c.stood >= slotsKept.Seconds()
	c.limits = enough && !(c.ended < c.at)
}

// waited counts seconds in which requests waited, with as many running as ever or fewer.
func (c *ceiling) waited(full bool, seconds float64, old, seen *ServerReport) {
	if !full {
		c.stood = max(0, c.stood-seconds)
		return
	}
	completed, dt := flow(old.Completions, seen.Completions)
	if seen.Completions.Known() {
		completed = orZero(completed)
	}
	c.stood = min(c.stood+seconds, slotsMost.Seconds())
	c.ended += completed * dt.Seconds()
}

// alike is the number of slots of an endpoint whose own ones were measured from counters, in a
// pool where typical ones were. A server that gathers requests into batches executes as many at
// once as are there, so who gets less measures less, and would get less again: within a fifth
// of the others all are the same.
func alike(own, typical float64) float64 {
	const same = 0.2 // of the logarithm
	return typical * shrunk(own/typical, same)
}
