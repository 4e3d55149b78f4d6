package sim

import "time"

// A Result is what became of the requests under one policy.
type Result struct {
	Policy   string
	Requests int // that arrived and were placed, after the warm-up
	Dropped  int // refused, after the warm-up

	// Wait is the time from arrival to the start of service, Latency that to its
	// end, in mean service times.
	Wait, Latency Quantiles

	// Steps and Pushes of the control plane, over the whole run.
	Steps, Pushes int

	// Goodput is what was completed, Utilization what was executing, after the
	// warm-up, as parts of the capacity.
	Goodput, Utilization float64

	// Spread is the mean difference of load per slot between the fullest and the
	// emptiest pod. Moved is the share of the traffic that pushes move, per second.
	Spread, Moved float64
	// Hunting is the variance of the number of requests that a pod gets in a mean
	// service time, over its mean: 1 is chance, less is more even than chance, and
	// more is herds that all see the same pod idle.
	Hunting float64

	Series []Sample // if asked for
}

// Quantiles of a set of waits.
type Quantiles struct {
	P50, P90, P99, Mean, Max float64
}

// A Sample is the world at one moment.
type Sample struct {
	At     time.Duration
	Load   []float64 // requests in each pod
	Shares []float64 // of each pod, as last effective in the Envoys; 0 where it is no endpoint
	Flags  []bool    // pods flagged as overloaded
	Drop   float64   // share refused
	Rate   float64   // requests per second offered
}
