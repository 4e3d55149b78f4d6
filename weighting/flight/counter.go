package flight

// A Basis is what a proxy is counted by.
type Basis uint8

// The bases.
const (
	ByNothing Basis = iota
	ByLog           // corrected by load reports, if there are any
	ByReports       // the gauges of its load reports
)

// A Counter counts the requests of one proxy at one endpoint. There are as many of them as proxies times
// endpoints, so it is kept small. The zero value counts by nothing; see Switch.
type Counter struct {
	shared *shared // nil while at most one process reports

	open       int32 // begun and not ended, by the log
	correction int32 // added to open
	difference int32 // requests in progress by the reports, less open at that time

	gauge   int32 // requests in progress, by the last report of each process
	unended int32 // in the sum of requests issued, and not in that of the ended

	gap         int32 // requests issued by the reports, less those logged
	least, most int32 // gap at the reports since Issued was last compared with them
	unseen      int32 // in Issued only because of reports
	overcounted int32 // in Issued twice: first as unseen, and later by the log

	basis Basis
}

// InFlight is the number of requests in flight.
func (c *Counter) InFlight() int32 {
	switch c.basis {
	case ByLog:
		return max(0, c.open+c.correction)
	case ByReports:
		return c.gauge
	}
	return 0
}

// Open is the number of requests that were logged to begin and have not ended.
func (c *Counter) Open() int32 { return c.open }

// InProgress is the number of requests in progress by the last report of each process.
func (c *Counter) InProgress() int32 { return c.gauge }

// Begin takes in a logged beginning.
func (c *Counter) Begin(b Beginning) (change Change) {
	before := c.InFlight()
	if !b.Untracked {
		c.open++
	}
	if b.Reported {
		c.gap = clamp(int64(c.gap) - 1)
	}
	c.shared.began()
	c.issue(1, b.Size, &change)
	if b.Hashed {
		change.Sums.Hashed = change.Sums.Issued
	}
	c.done(before, &change)
	return change
}

// End takes in a logged end, and returns with the change what of adds counts in the sums.
func (c *Counter) End(pairing Pairing, adds Sums) (change Change) {
	before := c.InFlight()
	if pairing == Open && c.open > 0 {
		c.open--
	} else {
		c.endUnseen()
	}
	switch pairing {
	case Closed:
		adds.Ended = 0
	case Unpaired:
		adds.Refused, adds.RefusedBytes = 0, 0 // its size was not counted either
	}
	c.shared.ended()
	change.Sums = adds
	c.done(before, &change)
	return change
}

// endUnseen lowers what reports showed of requests that began unseen, and never what was logged.
func (c *Counter) endUnseen() {
	if c.correction > 0 {
		c.correction--
	}
	if c.difference > 0 {
		c.difference--
	}
}

// Lose takes an open request out whose log stream broke. It may go on unseen: the next report decides.
func (c *Counter) Lose() (change Change) {
	before := c.InFlight()
	c.open--
	c.difference++
	c.done(before, &change)
	return change
}

// Switch changes what the proxy is counted by. From the log to reports, open requests are forgotten.
func (c *Counter) Switch(to Basis) (change Change) {
	before := c.InFlight()
	switch {
	case c.basis == ByLog && to == ByReports:
		gap := c.gap // the next report repeats what was logged to begin since the last
		c.open = 0
		c.restart(0)
		c.gap = gap
	case c.basis == ByReports && to == ByLog:
		c.restart(c.gauge) // their beginnings were not logged
	}
	c.basis = to
	c.done(before, &change)
	return change
}

// restart begins again from what the last reports showed: so many requests may be in progress of which
// only the ends will be logged.
func (c *Counter) restart(unseen int32) {
	c.correction, c.difference = unseen, unseen
	c.shared.restart()
	c.forgetGap()
	c.unseen = 0
}

// forgetGap forgets what the reports showed of requests issued.
func (c *Counter) forgetGap() { c.gap, c.least, c.most = 0, 0, 0 }

// issue adds requests to those issued, each with a body of this size, but for those overcounted.
func (c *Counter) issue(n int32, size Size, change *Change) {
	paid := min(n, c.overcounted)
	c.overcounted -= paid
	adds := &change.Sums
	adds.Issued = uint64(n - paid)
	if size.Known {
		adds.Sized, adds.Bytes = adds.Issued, float64(adds.Issued)*size.Counted()
	}
}

// done completes what a step changed.
func (c *Counter) done(before int32, change *Change) {
	change.InFlight = c.InFlight() - before
	c.unended = clamp(int64(c.unended) + int64(change.Sums.Issued) - int64(change.Sums.Ended))
}
