package health

import "time"

// use is whether the proxies send an endpoint what it is given.
type use struct {
	// The least share since a time, and in the span before it: what both have has been decided for long enough.
	least, before float64
	from          time.Time

	seen  time.Time // of the last reading of what arrived there
	came  time.Time // of the last one that came
	all   float64   // requests that arrived at the pool until the last reading
	since time.Time // when the first arrival was due that did not come
	due   float64   // arrivals that did not come, by the last reading
	gap   float64   // the most that were due when one came, fading
	none  bool      // it is not used
	found float64   // due when that was found
}

// observe takes in what arrived there, and what arrived at the pool so far.
func (u *use) observe(in *Sample, c *common) {
	const (
		enough    = 20 * falseAlarm  // more is no gathering
		gathering = 30 * time.Minute // with 10, as for stalls, a pool that gathers is found unused twice as often
		unusedFor = 2 * time.Second  // without an arrival that was due: gauges lag by as much
	)
	now, all := c.now, c.arrived
	if now.Sub(u.from) >= c.InForce {
		u.before, u.least, u.from = u.least, in.Share, now
	}
	u.least = min(u.least, in.Share)
	if in.Any {
		gap := u.due
		if u.none { // the rest of it may be the time of an ejection
			gap = u.found
		}
		u.gap = max(min(gap, enough), fade(u.gap, now.Sub(u.came), gathering))
		u.due, u.found, u.none, u.all, u.came = 0, 0, false, all, now
	}
	if !in.CameAt.After(u.seen) {
		return
	}
	if u.due < 1 {
		u.since = u.seen
	}
	u.due += (all - u.all) * min(u.before, u.least) // the share that is in force
	u.seen, u.all = in.CameAt, all
	u.none = u.due >= falseAlarm && u.seen.Sub(u.since) > unusedFor
}
