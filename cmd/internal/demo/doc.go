// Package demo is the logic of command steelyard-demo: it starts everything that
// Steelyard needs in one process and its children, sends the same load twice, and
// shows what changed.
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
// Only cmd/steelyard-demo calls it, and passes it the control plane; the demo does not
// depend on how that is wired.
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
//   - All servers have the same number of slots, which is configured in Steelyard. Every
//     third one is slower, which Steelyard has to find out.
//   - The wait is the time in the queue that the servers report.
//
// Round robin gives every server the same number of requests. With the defaults
// that is more than the slow ones can execute, so their queues grow for as long as
// the phase lasts: the demo prints the share of work that the slow ones get.
package demo
