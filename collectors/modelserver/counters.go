package modelserver

import (
	"time"

	"steelyard/weighting"
)

// Counters turns the counters of one server into sums that never go back.
type Counters struct{}

// Observe adds a report.
func (c *Counters) Observe(at time.Time, rep Report) weighting.ServerReport {
	return weighting.ServerReport{}
}
