package flight

// A Report is the part of a load report about the endpoint: zero where the endpoint is left out. All but
// InProgress is since the report before.
type Report struct {
	InProgress, Issued, Succeeded, Errors int32
	Hashed                                int32 // of Issued, as in Sums

	// Process sent the report, as one of Processes that report for the proxy or are about to, this one
	// among them.
	Process   uint8
	Processes int
	// Joins is set in a first report, and in the first of a process that had left (Leave). Of a first one
	// only InProgress counts, because its counters reach back to an unknown time.
	Joins, First bool
	Round        Round
	// Due asks to compare Issued with the sum in the log.
	Due bool
	// Logged says that since the report before a log showed the same requests, and how they ended.
	Logged bool
}

// A Round is a time in which each process reported once. With one process, each report is a round.
type Round struct {
	Begins, Ends bool // with this report
	First        bool // the first report of a process is in it
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

// A Beginning is a logged beginning of a request.
type Beginning struct {
	Size   Size // of its body
	Hashed bool // as in Sums
	// Untracked marks a beginning whose end has come already, or could not be matched: it is issued, and not open.
	Untracked bool
	// Reported says that a process of the proxy sends load reports, which show the request as issued, too.
	Reported bool
}

// A Pairing says which beginning an end belongs to.
type Pairing uint8

// The pairings.
const (
	Open     Pairing = iota // to that of an open request
	Closed                  // to one that was closed without its end, and is in Ended
	Unpaired                // to none that was logged
)

// maxKept is the largest number that a counter keeps: a larger one is made up.
const maxKept = 1_000_000_000

func clamp(n int64) int32 { return int32(max(-maxKept, min(maxKept, n))) }
