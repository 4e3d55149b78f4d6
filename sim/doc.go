// Package sim places simulated requests on simulated servers through simulated
// Envoys, with the real law of package weighting between them. It answers, in
// seconds and before anything is switched on, how long requests would wait under
// one way of placing them or another.
//
// It is seeded, and has no clock of its own and no goroutines:
// the same scenario, policy and seed give the same result, byte for byte, and all
// policies of one scenario get the same requests: the same arrivals at the same
// Envoys with the same need of service, or the same prompts and answers. It reads
// and prints nothing: command `steelyard simulate` does, and it is the only caller
// besides tests.
//
// What is real: [push.Gate] with the law in it, [push.Rhythm], [flight.Counter], and
// [envoyspec.WeightBounds] with its dither. What is modelled, after what was measured on Envoy 1.40 or
// read in its source: the rest, as follows. Times are simulated seconds, in
// nanoseconds.
//
// # Requests
//
// Arrivals are Poisson, at Scenario.Rate or at Scenario.Load of the capacity
//
//	C = Σ slots_i · speed_i / (1 + slowdown_i) / mean service    requests per second
//
// A request comes to one Envoy, by their shares, and to any of its workers. It
// needs a time of service on an idle pod of speed 1, by the distribution; with
// two classes, the short one lasts mean / (1 − p + p·f), the long one f times that.
//
// Requests to engines are those of a trace (package trace), with their intervals
// stretched to the rate, so that bursts stay bursts; after the last comes the first
// again. Load 1 is then
//
//	C = Σ speed_i · requests per second of an engine that never lacks work
//
// on the requests from the beginning of the trace on. The prefix cache answers u^((1 −
// s)/s) of a prompt, u uniform, which is s on average; a prompt has as many bytes as
// tokens times a log-normal draw. Requests that count are played to their end: the
// engines go on, with requests that do not count, for as long again at most.
//
// # Pods
//
// Either an engine (package engine), or one queue, first come, first served, for n
// slots. With sharing, r requests that run do so at 1 / (1 + slowdown · (r − 1)/(n −
// 1)) of the speed of a single one: the simplest model of continuous batching;
// with slowdown n − 1 the pod is a shared processor.
//
// # Envoys
//
// Equal weights: ROUND_ROBIN is one turn after the other, from a random start;
// LEAST_REQUEST two random choices by the Envoy's own active requests. Unequal
// weights: both are a scheduler that picks the earliest deadline, puts the host
// back at now + 1/w, and breaks ties by the order of putting in. w is the weight,
// and for LEAST_REQUEST weight / (active + 1)^bias at the time of putting back.
// RANDOM ignores weights.
//
// Every worker has a scheduler of its own. Each assignment whose weights or flags
// differ from the one before rebuilds it, as if the same number of picks, drawn
// once for the worker, had been made from a new one: so the first picks after a
// push depend on nothing but that number and the weights. An assignment without a
// difference changes nothing, not even the share of requests to refuse.
//
// Flagged pods are DEGRADED: with h of n not flagged, min(100, 1000·h/n) per cent
// of the picks go to those, the rest to the flagged; all, if all are flagged. The
// share to refuse is refused at random, before the pick. No retries, no timeouts,
// no connections, no zones, no slow start.
//
// # Steelyard
//
// The loop steps by the [push.Rhythm] of the product, and its gate decides what is pushed and how long
// the loop pauses. The outcome of a step is there at once; for the pause it has taken 3 µs for each pod. A push
// reaches all Envoys at once, after PushDelay and what they have to wait by their push.Allowance, of which only this
// cluster uses anything. There is no warm-up: the first
// pushes are made of what is known.
//
// Several replicas are either one, as far as they know all of each other in time, or apart (Apart): then each has a
// loop of its own, some of the Envoys, the signals of these only, and scrapes of all pods.
//
// Signals arrive after a delay of which one half is fixed and one half exponential,
// in order for each Envoy. Access log entries may get lost; the counters of the product count
// by them and by load reports, if there are any (Uncorrected). Load reports come from each
// Envoy at its own phase, and a count is as old as the mean age of the reports,
// each weighed by the rate of its Envoy. Redis counts are polled as a whole, and
// what is lost there leaks for ever. Load reports and scrapes do not get lost. Delays
// and loss are those of the policy, unless the scenario has its own (Signals). Scrapes are
// spread over the interval by a hash of the pod.
//
// # What it was compared with
//
// M/M/c, M/G/1, processor sharing and two choices by their formulas; Envoy's first
// picks after a rebuild as measured; the policies without a control plane, on slots
// and on engines, by another simulation, to a tenth or two (tests of this
// package). On that trace the peak of the day is close to what the engines can do, and
// there one per cent more of load is ten per cent more of a tail.
package sim
