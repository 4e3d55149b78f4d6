package weighting

// Slots: how many requests an endpoint executes at once
//
// Slots are configured, learned or assumed.
//
// That requests wait is no proof that no more can run: an engine that batches continuously holds requests back at any
// number running, while the tokens of one iteration are spent or its KV cache is short. So slots are learned from a
// number that stays: while requests waited, the most that ran in the last five to ten minutes ran for ten seconds
// longer than fewer did, and at least as many requests ended meanwhile. Where more than half of a pool has the same
// most, their seconds count together. One more running ends that, and it fades within
// ten minutes or so without a queue.
//
// Where no gauge shows what runs, slots are the mean number executing, by the counter of busy time, over ten seconds or
// more that began with a queue of at least half of what completes in them. Those of a pool count as the same within a
// fifth of each other: a deviation x of the logarithm is shrunk by max(0, 1 − 0.2²/x²). They fade as well.
//
// Endpoints of which neither is known count as the same: they get the median of the known ones, and no fewer than the
// most that any of them ran at once in that time (pool.go). Where slots are assumed and all endpoints have one speed,
// the shares do not depend on how many they are.

import (
	"math"
	"time"
)

// What it takes to learn the slots of an endpoint, budgets of noise, and for how long they are trusted, a memory.
// Without slots that are learned the p99 is 6.3 services instead of 1.5 by the access log, and 13 instead of 3.0 by
// scrapes.
const (
	slotsLeast = 10 * time.Second // under a queue, to begin with
	slotsKept  = 2 * time.Second  // of the same, to go on
	slotsMost  = 20 * time.Second // of the same, at most
	slotsTau   = 5 * time.Minute  // in which evidence fades
)

// A ceiling is what the gauge of running requests shows about how many an endpoint runs at once.
type ceiling struct {
	ran highest // requests running, in spans of slotsTau

	at     float64 // requests running, to which the rest refers
	stayed float64 // seconds for which so many ran while others waited, less those for which fewer did
	ended  float64 // requests completed meanwhile; NaN while unknown
	limits bool    // at is a limit, and not only the most that was seen
}

// most is how many requests ran at once recently.
func (c *ceiling) most() float64 { return c.ran.most() }

// showsNone reports whether the gauge has shown nothing of the requests that completed, as one that is not filled in:
// it is no evidence of anything.
func (c *ceiling) showsNone(r *ServerReport) bool {
	return r.Running.Known() && c.most() == 0 && r.Completions.Value > 0
}

// observe takes in what a server did, and its report.
func (c *ceiling) observe(did *served, seen *ServerReport) {
	running := seen.Running.Value
	if !seen.Running.Known() || running >= largestCount {
		return
	}
	c.ran.note(running, seen.Running.At, slotsTau)
	if running > c.at || !c.limits && c.at > c.most() {
		c.at, c.stayed, c.ended, c.limits = c.most(), 0, 0, false
	}
	dt := min(did.running.dt, slotsLeast)
	c.stayed *= math.Exp(-dt.Seconds() / slotsTau.Seconds())
	if dt > 0 && did.queue.dt > 0 && did.queue.before > 0 && seen.Queue.Value > 0 {
		c.waited(running >= c.at, dt.Seconds(), did.completions.by, seen.Completions.Known())
	}
	enough := c.stayed >= slotsLeast.Seconds() || c.limits && c.stayed >= slotsKept.Seconds()
	c.limits = enough && c.reached()
}

// reached reports whether at least as many requests ended as the ceiling is high. A gauge that stays at 0 counts
// nothing.
func (c *ceiling) reached() bool { return c.at > 0 && !(c.ended < c.at) }

// waited counts seconds in which requests waited, with as many running as ever or fewer, and what completed, if known.
func (c *ceiling) waited(full bool, seconds, completed float64, known bool) {
	if !full {
		c.stayed = max(0, c.stayed-seconds)
		return
	}
	if !known {
		completed = math.NaN()
	}
	c.stayed = min(c.stayed+seconds, slotsMost.Seconds())
	c.ended += completed
}

// alike is the number of slots of an endpoint whose own were measured from counters, in a pool where typical slots are
// so many. A server that gathers requests into batches executes as many at once as are there, so one that gets fewer
// measures fewer, and would get fewer again: within a fifth of the others all count as the same.
func alike(own, typical float64) float64 {
	const same = 0.2 // of the logarithm; a budget of noise
	return typical * shrunk(own/typical, same*same)
}
