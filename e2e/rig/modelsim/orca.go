package modelsim

import (
	"fmt"
	"math"
	"time"
)

// headerORCA carries a load report in an answer, as Open Request Cost
// Aggregation has it and as Envoy's client_side_weighted_round_robin reads it.
const headerORCA = "endpoint-load-metrics"

// ORCA is what utilization means in a server's load reports.
type ORCA string

// The kinds of ORCA reports.
const (
	ORCANone  ORCA = ""      // no reports
	ORCASlots ORCA = "slots" // the share of the slots that are taken
	ORCAQueue ORCA = "queue" // requests waiting and executing for each slot
)

// A usage is what a server reports in ORCA headers: averages over time
// with exponential forgetting. The zero value measures nothing.
type usage struct {
	window   time.Duration // time constant; 0 measures nothing
	at       time.Time     // up to when the averages reach
	busy     float64       // slots taken
	inFlight float64       // requests waiting and executing
	rate     float64       // completions per second
	failures float64       // of them, per second
}

// advance notes how many requests were executing since the last call, and waiting.
func (u *usage) advance(now time.Time, running, waiting int) {
	if u.window == 0 {
		return
	}
	keep := 0.0
	if !u.at.IsZero() {
		keep = math.Exp(-now.Sub(u.at).Seconds() / u.window.Seconds())
	}
	u.at = now
	u.busy = keep*u.busy + (1-keep)*float64(running)
	u.inFlight = keep*u.inFlight + (1-keep)*float64(running+waiting)
	u.rate *= keep
	u.failures *= keep
}

// count adds a completion; advance was called for the same moment.
func (u *usage) count(failed bool) {
	if u.window == 0 {
		return
	}
	u.rate += 1 / u.window.Seconds()
	if failed {
		u.failures += 1 / u.window.Seconds()
	}
}

// rateUnit is the unit of the rates in a report, in seconds.
const rateUnit = 1000

// header returns the value of headerORCA. cpu_utilization is the share of the slots
// taken. Where the queue counts, application_utilization goes beyond 1 with it,
// and a balancer prefers it to the other.
func (u *usage) header(slots int, o ORCA) string {
	text := fmt.Sprintf("TEXT cpu_utilization=%.6f,rps_fractional=%.6f,eps=%.6f",
		min(1, u.busy/float64(slots)), rateUnit*u.rate, rateUnit*u.failures)
	if o == ORCAQueue {
		text += fmt.Sprintf(",application_utilization=%.6f", u.inFlight/float64(slots))
	}
	return text
}
