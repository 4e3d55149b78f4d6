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

// Sums are cumulative where they are kept, and changes of those where a step returns them.
type Sums struct {
	Issued uint64 // requests that began
	Hashed uint64 // of Issued, those whose endpoint a hash chose (affinity), and not the weights
	Ended  uint64 // requests that are over, however they ended

	Failed    uint64  // requests that the endpoint failed
	Errors    uint64  // other requests that ended in an error
	Succeeded uint64  // requests that were answered without one
	Answered  uint64  // requests with an answer, and
	Latency   float64 // the time to its last byte, in seconds

	Sized uint64  // of Issued, those whose size was logged
	Bytes float64 // of their bodies; a float64 does not wrap around, whatever sizes are made up

	Refused      uint64  // of Sized, those that the endpoint refused: it answered with a 4xx
	RefusedBytes float64 // of their bodies
}

// Add adds a change.
func (s *Sums) Add(change *Sums) {
	s.Issued += change.Issued
	s.Hashed += change.Hashed
	s.Ended += change.Ended
	s.Failed += change.Failed
	s.Errors += change.Errors
	s.Succeeded += change.Succeeded
	s.Answered += change.Answered
	s.Latency += change.Latency
	s.Sized += change.Sized
	s.Bytes += change.Bytes
	s.Refused += change.Refused
	s.RefusedBytes += change.RefusedBytes
}

// A Size is a number of bytes that may be unknown, which is not zero.
type Size struct {
	Bytes uint64
	Known bool
}

// largestSize is what a larger body counts as, in bytes: no engine takes more, and any client can announce more. It
// keeps the sums exact.
const largestSize = 1 << 28

// Counted is the number of bytes that count, of a size that is known.
func (s Size) Counted() float64 { return float64(min(s.Bytes, largestSize)) }

// A Change is what a step changed.
type Change struct {
	InFlight int32 // change of the number of requests in flight
	Sums     Sums  // change of the sums
	// Close is how many of the oldest open requests have ended without a logged end. An end of one of them that is
	// logged after all is Closed.
	Close int32
	// Corrected is how many requests a report added to the count by the log, or took from it.
	Corrected int32
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

// A Beginning is a logged beginning of a request.
type Beginning struct {
	Size   Size // of its body
	Hashed bool // as in Sums
	// Untracked marks a beginning whose end has come already, or could not be matched: it is issued, and not open.
	Untracked bool
	// Reported says that a process of the proxy sends load reports, which show the request as issued, too.
	Reported bool
}

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

// A Pairing says which beginning an end belongs to.
type Pairing uint8

// The pairings.
const (
	Open     Pairing = iota // to that of an open request
	Closed                  // to one that was closed without its end, and is in Ended
	Unpaired                // to none that was logged
)

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

// maxKept is the largest number that a counter keeps: a larger one is made up.
const maxKept = 1_000_000_000

func clamp(n int64) int32 { return int32(max(-maxKept, min(maxKept, n))) }

// median of three.
func median(a, b, c int32) int32 { return max(min(a, b), min(max(a, b), c)) }

func abs(x int32) int32 { return max(x, -x) }
