package sim

import "time"

// A Result is what became of the requests under one policy.
type Result struct {
	Policy   string
	Requests int // that arrived and were placed, after the warm-up
	Dropped  int // refused, after the warm-up

	// With slots, in mean service times: Wait is the time from arrival to the start of
	// service, Latency that to its end.
	Wait, Latency Quantiles
	// With engines, in seconds: from arrival to the first token; the mean from one token
	// to the next, of requests with two or more; from arrival to the last token.
	FirstToken, PerToken, EndToEnd Quantiles
	// Cached is the share of the prompts' tokens that engines found in their caches, 0..1.
	Cached float64

	// Steps and Pushes of the control plane, over the whole run.
	Steps, Pushes int

	// Goodput is what was completed, Utilization what was executing, after the
	// warm-up, as parts of the capacity.
	Goodput, Utilization float64

	// Loads are the mean requests in each pod after the warm-up, Placed those that it was sent.
	Loads  []float64
	Placed []int
	// Spread is the mean difference of load per slot (or of an engine) between the
	// fullest and the emptiest pod.
	Spread float64
	// Hunting is the variance of the number of requests that a pod gets in a mean
	// service time (an engine: in a second), over its mean: 1 is chance, less is more
	// even than chance, and more is herds that all see the same pod idle.
	Hunting float64

	Series []Sample // if asked for
}

// Quantiles of a set of waits.
type Quantiles struct {
	P50, P90, P99, Mean, Max float64
}

// A Sample is the world at one time.
type Sample struct {
	At      time.Duration
	Load    []float64 // requests in each pod
	Waiting float64   // of all those, the ones that are not executed yet
	Shares  []float64 // of each pod, as last effective in the Envoys; 0 where it is not an endpoint
	Flagged []bool    // of each pod, by the same assignment
	Refused float64   // share of the requests, by the same
	Rate    float64   // requests per second offered
}
