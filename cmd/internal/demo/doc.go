// Package demo is the logic of command steelyard-demo: it starts everything that
// Steelyard needs around it in and under one process, sends the same load twice,
// and shows what changed.
//
//	open-loop load -> N real Envoys -> M simulated model servers
//	                      ^                 |  /metrics       | in-flight counts
//	                      | EDS             v                 v
//	                      +---------- Steelyard <------ embedded Redis
//
// What it is for: a first look that takes a minute and needs no GPU, and a check
// that the whole product works on this machine. What it is not: a benchmark.
// Two policies, one seed, and figures of as many requests as fit into the time.
//
// Only cmd/steelyard-demo calls it, and hands it the control plane; the demo knows
// nothing of how that is wired.
//
// # What is compared, and how it is kept fair
//
//   - Phase round_robin routes to a static cluster of all servers with Envoy's
//     own ROUND_ROBIN. Phase steelyard routes as `steelyard bootstrap` has it. Both
//     are listeners of the same Envoys, and the static cluster is a copy of the
//     weighted one with another source of endpoints, so limits, timeouts and
//     outlier detection are the same.
//   - Both phases get the same sequence of arrivals, service times and choices of
//     the Envoy, from one seed. Between them all queues drain.
//   - The control plane, the scraping and the counting run in both phases.
//   - All servers have the same number of slots, and Steelyard is told it. Every
//     third one is slower, which Steelyard has to find out.
//   - The wait is what the servers say of their own queues.
//
// Round robin gives every server the same number of requests. With the defaults
// that is more than the slow ones can execute, so their queues grow for as long as
// the phase lasts: the share of work that it asks of them is printed.
package demo
