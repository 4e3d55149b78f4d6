package flight

import "time"

// ComparePeriod is the least time between two reports of a process that are Due: a little less than between
// two reports next to a log.
const ComparePeriod = 900 * time.Millisecond

// Report takes in a load report.
func (c *Counter) Report(r *Report) (change Change) {
	before := c.InFlight()
	low, high := c.observe(r)
	if c.basis == ByLog {
		c.reconcile(r, low, high, &change)
		c.compareIssued(r, &change)
	} else {
		c.reportOnly(r, &change)
	}
	c.done(before, &change)
	return change
}

// observe takes in the gauge. It returns the range of g − b, which with one process is a point.
func (c *Counter) observe(r *Report) (low, high int32) {
	if r.Processes == 1 {
		c.gauge, c.shared = r.InProgress, nil
		return c.gauge - c.open, c.gauge - c.open
	}
	if c.shared == nil {
		c.shared = &shared{}
	}
	p := c.shared.of(r.Process)
	c.gauge += r.InProgress - p.gauge
	behind, ahead := c.shared.report(p, r)
	return c.shared.narrow(r.Round, c.gauge-c.open+behind, c.gauge-c.open+ahead)
}

// reconcile corrects the count by the log. low and high bound its drift by the reports of a round: what is
// corrected already stays as far as they allow it.
func (c *Counter) reconcile(r *Report, low, high int32, change *Change) {
	if !r.Round.Ends && r.Processes > 1 {
		return
	}
	difference := c.correction
	if low <= high {
		difference = max(low, min(high, difference))
	}
	if r.Round.First {
		c.difference = difference
		c.unended = clamp(int64(c.unended) + int64(max(0, difference-c.correction))) // issued at an unknown time
	}
	before := c.correction
	c.correction = median(0, c.difference, difference)
	c.difference = difference
	change.Corrected = abs(c.correction - before)
	if lost := min(-c.correction, -before, c.open); lost > 0 {
		c.open -= lost
		c.correction += lost
		c.difference += lost
		change.Close, change.Sums.Ended = lost, uint64(lost)
	}
}

// compareIssued adds the requests that began unseen to those issued. A gap must outlast a report, and a log
// that lags by more than that: it counts as far as all reports of a period show it. What was added
// and then logged after all shows as a gap below zero, and is made up for later, since the sum must not fall.
func (c *Counter) compareIssued(r *Report, change *Change) {
	if r.First || r.Processes > 1 { // of several processes, each is late by its own age
		c.forgetGap()
		return
	}
	c.gap = clamp(int64(c.gap) + int64(r.Issued))
	c.least, c.most = min(c.least, c.gap), max(c.most, c.gap)
	if !r.Due {
		return
	}
	switch {
	case c.least > 0:
		c.issue(c.least, Size{}, change)
		c.unseen = clamp(int64(c.unseen) + int64(c.least))
		c.gap -= c.least
	case c.most < 0:
		late := min(-c.most, c.unseen) // beyond that a report was lost, not an event
		c.unseen -= late
		c.overcounted = clamp(int64(c.overcounted) + int64(late))
		c.gap -= c.most
	}
	c.least, c.most = c.gap, c.gap
}

// reportOnly counts by reports: as issued the requests in them but for those that were logged to begin before
// the log ended, and as ended whatever else is not in progress. How requests ended counts unless the log showed
// the same ones. What is in progress when a process joins began before it was counted, and is no part
// of the sums until it ends.
func (c *Counter) reportOnly(r *Report, change *Change) {
	adds := &change.Sums
	if r.Joins {
		c.forgetGap()
		c.unended = c.gauge
	}
	if !r.First {
		adds.Issued = uint64(clamp(max(0, int64(r.Issued)+int64(c.gap))))
		adds.Hashed = min(uint64(max(0, r.Hashed)), adds.Issued)
	}
	c.forgetGap()
	if !r.First && !r.Logged {
		adds.Succeeded, adds.Errors = uint64(r.Succeeded), uint64(r.Errors)
	}
	unended := int64(clamp(int64(c.unended) + int64(adds.Issued)))
	adds.Ended = uint64(max(0, unended-int64(c.gauge)))
}

// Leave takes out the gauge of a process that reports no more. left is how many still do, and
// logged whether the proxy has a log, which shows how its requests end.
func (c *Counter) Leave(process uint8, left int, logged bool) (change Change) {
	before := c.InFlight()
	gone := c.gauge
	if c.shared != nil {
		gone = c.shared.leave(process)
	}
	c.gauge -= gone
	if !logged {
		c.unended -= gone
	}
	switch left {
	case 0:
		c.shared = nil
		c.restart(0)
	case 1:
		c.shared = nil
	}
	c.done(before, &change)
	return change
}

// Share says which process the gauge is of. It is called when a second one is about to report.
func (c *Counter) Share(process uint8) {
	if c.shared == nil && c.gauge != 0 {
		c.shared = &shared{}
		c.shared.of(process).gauge = c.gauge
	}
}

// median of three.
func median(a, b, c int32) int32 { return max(min(a, b), min(max(a, b), c)) }

func abs(x int32) int32 { return max(x, -x) }
