// Package load generates open-loop load: requests leave at the times of the plan, whatever happened to those before
// them, because users do not wait for each other. A closed loop would send less exactly when the servers are slow, and
// so hide what a bad placement does to the tail.
//
// It is used by tests, benchmarks and the demo; nothing in the product sends
// requests.
//
// # The sequence
//
// A Plan is expanded into arrivals by three independent streams of random
// numbers from one seed: gaps between arrivals (exponential with mean 1/Rate
// for Poisson), work, and the target. The same seed gives the same sequence on
// every machine, and a change of one dimension leaves the others as they were.
// Plans that differ only in their target URLs are therefore paired experiments:
// each request meets its twin under the other policy.
//
// A Plan with Completions lists its requests, each with its time, instead of drawing them: prompts for a language
// model, whose answers are streams. Only their targets are drawn.
//
// # What is measured
//
// Wait is the time in the queue that the server reports (X-Queue-Wait-Seconds). Latency counts from when the request
// was due, not from when it was sent. So does FirstByte, which for a stream is the time to the first token. Lateness is
// the time from when a request was due to when it was sent: on an overloaded machine it grows, and then the result
// shows more about the machine than about the policy. Quantiles are nearest-rank over all requests, nothing is sampled
// or bucketed:
//
//	quantile(q) = sorted[ceil(q n) - 1]
//
// An error is a request without an answer or with a status other than 2xx. Requests that are in flight at the end are
// waited for (Plan.Drain) and then cancelled and counted as errors.
package load
