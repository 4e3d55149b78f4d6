package loadstats

import (
	"sync"
	"time"
)

// ReportBytes is the size on the wire of a load report of few endpoints: mostly the Envoy's node with its list of
// extensions, which every report repeats. Each endpoint with requests adds about 28.
const ReportBytes = 61_000

// A meanSize is a moving mean of the size of reports, in bytes. It starts at the size of a report of few endpoints.
type meanSize struct {
	mu    sync.Mutex
	bytes float64
}

// add adds the size of a report.
func (m *meanSize) add(bytes int) {
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

// Intervals at which Envoys report if the byte budget does not require longer ones.
const (
	withAccessLog = time.Second            // the access log has the counts, reports correct them
	reportsOnly   = 100 * time.Millisecond // the reports are the only source
)

// longest is the longest interval: a fleet that exceeds its budget deserves a warning, but its Envoys must not become
// silent.
const longest = 60 * time.Second

// A Fleet counts the Envoys that report their load, by whether an access log shows the same requests.
type Fleet struct{ WithAccessLog, ReportsOnly int }

// Intervals returns how often Envoys of each kind are to report: the shortest intervals, in the ratio of least to
// least, with
//
//	(WithAccessLog / withLog + ReportsOnly / without) · reportBytes <= budget
//
// where least, if it is 0, is 1 s with the access log and 100 ms without one, so that ten Envoys with reports of 61 KB
// stay within 6.1 MB/s. A smaller budget, or a larger fleet, makes both longer, up to a minute. A budget of 0 is
// unlimited.
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
	if withLog == longest { // the others share what remains
		room = max(room-float64(f.WithAccessLog)/longest.Seconds(), 0)
		return withLog, stretched(leastWithout, float64(f.ReportsOnly)/leastWithout.Seconds()/room)
	}
	return withLog, stretched(leastWithout, wanted/room)
}

// stretched returns an interval that is longer by a factor.
func stretched(least time.Duration, factor float64) time.Duration {
	if !(factor > 1) {
		return least
	}
	return max(least, time.Duration(min(least.Seconds()*factor, longest.Seconds())*float64(time.Second)))
}
