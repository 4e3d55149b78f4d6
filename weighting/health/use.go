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

// findUnused finds the endpoints that the proxies do not use. At least one is used.
func (p *Pool) findUnused(pool []Endpoint) {
	none, unused := false, 0
	for i := range pool {
		none = none || pool[i].use.none
	}
	if none {
		p.expectGaps(pool)
	}
	for i := range pool {
		e := &pool[i]
		if e.Unused = e.use.none && e.State != Ejected && e.Share > 0 && !e.Absent; e.Unused {
			unused++
		}
	}
	for i := range pool {
		if e := &pool[i]; unused == len(pool) {
			e.Unused = false
		} else if e.Unused {
			e.Tried = 0
		}
	}
}

// expectGaps takes endpoints as used from which no more is missing than may come later, because requests gather. One
// that was not used and is again is no reason to wait longer for the only other one.
func (p *Pool) expectGaps(pool []Endpoint) {
	const longer = 1.5 // than a typical gap
	usual := longer * p.typical(pool, func(t *Tracker) float64 { return t.use.gap })
	for i := range pool {
		u := &pool[i].use
		if u.none = u.none && u.due >= usual; u.none && u.found == 0 {
			u.found = u.due
		}
	}
}

// observe takes in what arrived there, and what arrived at the pool so far.
func (u *use) observe(e *Endpoint, c *common) {
	const (
		enough    = 20 * falseAlarm  // more is no gathering
		gathering = 30 * time.Minute // with 10, as for stalls, a pool that gathers is found unused twice as often
		unusedFor = 2 * time.Second  // without an arrival that was due: gauges lag by as much
	)
	in, now, all := &e.Sample, c.now, c.arrived
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
