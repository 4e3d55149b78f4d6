package loadstats

import (
	"sync"
	"time"
)

// ReportBytes is the size of a load report of few endpoints on the wire: that of the Envoy's
// node with its list of extensions, which it repeats. Each endpoint with requests adds some 28.
const ReportBytes = 61_000

// A meanSize is a moving mean of the bytes of reports, that of few endpoints before the first.
type meanSize struct {
	mu    sync.Mutex
	bytes float64
}

// note takes in the size of a report.
func (m *meanSize) note(bytes int) {
	const weight = 0.01
	m.mu.Lock()
	defer m.mu.Unlock()
	m.bytes += weight * (float64(bytes) - m.bytes)
}

func (m *meanSize) now() float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.bytes
}

// Intervals at which Envoys report where the byte budget does not ask for more.
const (
	withAccessLog = time.Second            // the access log has the counts, reports correct them
	reportsOnly   = 100 * time.Millisecond // reports are all there is
)

// longest is the longest interval: a fleet that is larger than its budget is worth
// a warning, and not Envoys that count as silent.
const longest = 60 * time.Second

// A Fleet is the Envoys that report their load, by whether an access log shows the same
// requests.
type Fleet struct{ WithAccessLog, ReportsOnly int }

// Intervals is how often Envoys of each kind are to report: the shortest intervals, in
// the ratio of least to least, with
//
//	(WithAccessLog / withLog + ReportsOnly / without) · reportBytes <= budget
//
// where least, if it is 0, is 1 s with the access log and 100 ms without one,
// which ten Envoys with reports of 61 KB keep to within 6.1 MB/s. A smaller budget, or a larger fleet,
// makes both longer, up to a minute. A budget of 0 is none.
func (f Fleet) Intervals(
	least time.Duration, budgetBytesPerSecond, reportBytes float64,
) (withLog, without time.Duration) {
	leastWithLog, leastWithout := least, least
	if least <= 0 {
		leastWithLog, leastWithout = withAccessLog, reportsOnly
	}
	if budgetBytesPerSecond <= 0 {
		return leastWithLog, leastWithout
	}
	room := budgetBytesPerSecond / reportBytes // reports per second
	wanted := float64(f.WithAccessLog)/leastWithLog.Seconds() + float64(f.ReportsOnly)/leastWithout.Seconds()
	withLog = stretched(leastWithLog, wanted/room)
	if withLog == longest { // and the others have what these leave
		room = max(room-float64(f.WithAccessLog)/longest.Seconds(), 0)
		return withLog, stretched(leastWithout, float64(f.ReportsOnly)/leastWithout.Seconds()/room)
	}
	return withLog, stretched(leastWithout, wanted/room)
}

// stretched is an interval that is longer by a factor.
func stretched(least time.Duration, factor float64) time.Duration {
	if !(factor > 1) {
		return least
	}
	return max(least, time.Duration(min(least.Seconds()*factor, longest.Seconds())*float64(time.Second)))
}
