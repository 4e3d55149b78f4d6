// Package push steps the law of one cluster and decides which of its decisions are pushed.
//
// It is pure: the loop of package controlplane, the simulator and the tests run the same [Gate] by the same [Rhythm],
// which know the time only as an argument. What a push costs a proxy comes in as a [Cost].
//
//	rhythm.Begin()
//	verdict := gate.Step(now, input)      // decide, and whether to push it
//	...                                   // the caller publishes, if verdict.Push
//	pause := gate.Finish(now, outcome)    // how long until the next step
//	rhythm.Finished(now, pause)           // rhythm.Wait is how long, given what was new meanwhile
//
// # What is pushed
//
// Always: a change of the endpoints or of their zones, of an overload flag, of an override, of the drop fraction
// by 0.001 or to or from zero. A change of the shares is pushed if all of these hold:
//
//	distance > Deadband     distance = ½ · Σ |share in force − share decided|, the total variation:
//	                        the part of the traffic that would go elsewhere
//	age ≥ lasting           age of the shares in force; lasting = max(0, min(1 s, horizon − 1 s)), at most a third
//	                        of the time after which proxies take an assignment for stale; 0 where the distance
//	                        is above 0.75 · (1 − 1/n), with n endpoints
//	gain ≥ least gain       gain: weighting.Decision.Gain, mean services of waiting per request
//
// Shares that are as old as a heartbeat, and as lasting, are pushed again whether they changed or not.
//
// Some proxies get only the endpoints, without weights. For them a push is due where these changed, an endpoint began
// or ceased to fail or to be drained, or a minute has passed (Verdict.Members).
//
// # The budgets
//
// MinInterval, bytes per second over all proxies, and a share of a core of each proxy bound how
// often a cluster is pushed. The CPU budget is a bucket that holds a second of it. While at most
// half of it is used, u ≤ ½, any change beyond the deadband is pushed. Above that
//
//	least gain = 0.05 · (2u − 1) / (1 − u)
//
// so pushes are spent where they gain most, instead of at a fixed rate (docs/placement.md has the
// comparison). A proxy may subscribe to several clusters, and its budget is for all of them: half is
// shared evenly, which pays for heartbeats, and half among the clusters with traffic. The gate of a cluster uses
// the budget of the proxy with the median number of clusters. One with more is held to its budget by an
// [Allowance] over all its clusters: package xds, which knows them, has it wait before it sends it more.
//
// Heartbeats are pushes too. Where the budgets sustain fewer, the heartbeat is stretched, and with
// it the time after which the proxies take an assignment for stale, to three times what is
// sustained.
//
// # The pause between two steps
//
// At least MinInterval, at least nine times what a step takes (so the loop takes no more than a tenth of a
// core), and after a push for as long as its bytes need. Once the bucket of the CPU is empty, the pause is up to a
// second: for the CPU, no flag or lost endpoint is held back for longer. For the bytes it may be, if thousands of
// endpoints go to hundreds of proxies: 2 s for 5,000 endpoints and 150 proxies. A cluster without
// traffic has a small budget, and its pause is longer; the first request ends that. Where the loads are
// known by scrapes only, the step waits until a twentieth of the endpoints has been read.
package push
