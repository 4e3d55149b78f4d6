package weighting

import "time"

// Params are the parameters of the law for one cluster.
type Params struct {
	// Fresh, Hold and Decay are the ages at which a field leaves the state of that name. Fresh ≤ Hold ≤ Decay. Defaults
	// 1 s, 3 s, 10 s.
	Fresh, Hold, Decay time.Duration

	// Blackout is how long the reports of a new endpoint do not count: a server that is warming up looks idle. Default
	// 1 s.
	Blackout time.Duration
	// Ramp is how long, after the blackout, the capacity of a new endpoint grows to the whole. Default 10 s.
	Ramp time.Duration

	// Floor is the least share that an endpoint gets, as a part of its capacity share, 0..1. Default 0.001.
	Floor float64

	// LeastLatency is another law for the shares; off by default.
	LeastLatency LeastLatency

	Overload Overload
	Shedding Shedding
}

// LeastLatency weighs by the time to the last byte, as the proxies report it.
type LeastLatency struct {
	Enabled bool // default false
	// Alpha is the weight of a new answer in the moving average, 0..1. Default 0.3.
	Alpha float64
	// Threshold is the average above which an endpoint counts as loaded. Default 3 s.
	Threshold time.Duration
}

// Overload holds the thresholds of the overload flag.
type Overload struct {
	// QueueEnter and QueueLeave are requests waiting for each slot. Defaults 4, 2.
	QueueEnter, QueueLeave float64
	// UtilizationEnter and UtilizationLeave are shares of the KV cache, 0..1.
	// Defaults 0.98, 0.9.
	UtilizationEnter, UtilizationLeave float64
	// QueueTimeEnter and QueueTimeLeave are the mean time for which the requests that an endpoint completed in the last
	// window had waited. Defaults 0: off.
	QueueTimeEnter, QueueTimeLeave time.Duration
	// StalledAfter is how long requests are in flight at an endpoint that does not report them until it is stalled; 0
	// is never. A report may be as old as that without counting as evidence. Default 2 s, which is noticed within 2.5 s
	// with a scrape each 250 ms, and within 3 s with one each second; later where engines compute for longer than that
	// before they show anything (package health).
	StalledAfter time.Duration
	// MinDwell is how long a flag stays at least, and stays away at least. Default 2 s.
	MinDwell time.Duration
	// MaxShare is the largest part of a pool that is flagged, 0..1, unless all of it is overloaded. Default 0.5.
	MaxShare float64
}

// Shedding is how long requests may wait in a saturated pool before it refuses some, to keep the wait there (package
// shed).
// Nothing is refused while an endpoint has a free slot.
type Shedding struct {
	Enabled bool // default false
	// TargetWait is the expected time to wait in the pool's queues. Default 2 s.
	TargetWait time.Duration
	// MaxDrop is the largest share refused, 0..1. Default 0.95.
	MaxDrop float64
}

// DefaultParams returns the documented defaults.
func DefaultParams() Params {
	return Params{
		Fresh:    time.Second,
		Hold:     3 * time.Second,
		Decay:    10 * time.Second,
		Blackout: time.Second,
		Ramp:     10 * time.Second,
		Floor:    0.001,

		LeastLatency: LeastLatency{Alpha: 0.3, Threshold: 3 * time.Second},
		Overload: Overload{
			QueueEnter: 4, QueueLeave: 2,
			UtilizationEnter: 0.98, UtilizationLeave: 0.9,
			StalledAfter: 2 * time.Second,
			MinDwell:     2 * time.Second,
			MaxShare:     0.5,
		},
		Shedding: Shedding{TargetWait: 2 * time.Second, MaxDrop: 0.95},
	}
}
