package loadstats

import "time"

// ReportBytes is the size of a load report on the wire. It repeats the Envoy's
// node with its list of extensions, beside which the loads are little.
const ReportBytes = 61_000

// Intervals at which Envoys report where the byte budget does not ask for more.
const (
	besideEvents = time.Second            // the access log has the counts, reports mend them
	alone        = 100 * time.Millisecond // reports are all there is
)

// longest is the longest interval: a fleet that is larger than its budget is worth
// a warning, and not Envoys that count as silent.
const longest = 60 * time.Second

// Interval is how often each Envoy is to report:
//
//	max(least, Envoys · 61 KB / budget)
//
// where least, if it is 0, is 1 s beside the access log and 100 ms without one,
// which ten Envoys keep to within 6.1 MB/s. A smaller budget, or a larger fleet,
// makes it longer, up to a minute. A budget of 0 is none.
func Interval(envoys int, besideAccessLog bool, least time.Duration, budgetBytesPerSecond float64) time.Duration {
	if least <= 0 {
		least = alone
		if besideAccessLog {
			least = besideEvents
		}
	}
	if budgetBytesPerSecond <= 0 || envoys <= 0 {
		return least
	}
	paid := float64(envoys) * ReportBytes / budgetBytesPerSecond // seconds
	return max(least, time.Duration(min(paid, longest.Seconds())*float64(time.Second)))
}
