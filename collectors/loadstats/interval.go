package loadstats

import "time"

// ReportBytes is the size of a load report: Envoy's node, and little else.
const ReportBytes = 61_000

// Interval is how often each Envoy is to report.
func Interval(envoys int, besideAccessLog bool, least time.Duration, budgetBytesPerSecond float64) time.Duration {
	return time.Second
}
