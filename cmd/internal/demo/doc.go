// Package demo is the logic of command steelyard-demo. Each demo starts everything that it needs in one process and its
// children, sends the same load in several ways, and shows what changed:
//
//	open-loop load -> N real Envoys -> M simulated model servers
//	                      ^                 |  /metrics       | in-flight counts
//	                      | EDS             v                 v
//	                      +---------- Steelyard <------ embedded Redis
//
// What it is for: a first look that takes a minute and needs no GPU, and a check that the whole product works on this
// machine. What it is not: a benchmark. One seed, and figures of as many requests as fit into the time.
//
// Only cmd/steelyard-demo calls it, and passes it the control plane and the router ([Steelyard]); the demos do not
// depend on how those are wired.
//
// # The main demo: what is compared, and how it is kept fair ([Run])
//
//   - Phase least_request routes to a static cluster of all servers with Envoy's own LEAST_REQUEST, or with ROUND_ROBIN
//     (Options.RoundRobin). Phase steelyard routes as `steelyard bootstrap` has it. Both are listeners of the same
//     Envoys, and the static cluster is a copy of the weighted one with another source of endpoints, so limits,
//     timeouts and outlier detection are the same.
//   - Both phases get the same sequence of arrivals, service times and choices of the Envoy, from one seed. Between
//     them all queues drain.
//   - The control plane, the scraping and the counting run in both phases.
//   - All servers have the same number of slots, which is configured in Steelyard. Every third one is slower, which
//     Steelyard has to find out.
//   - The wait is the time in the queue that the servers report.
//
// Round robin gives every server the same number of requests. With the defaults that is more than the slow ones can
// execute, so their queues grow for as long as the phase lasts: the demo prints the share of work that the slow ones
// get.
//
// # The demos of the module
//
// They need the module: the program sets the environment variable ENVOY_DYNAMIC_MODULES_SEARCH_PATH to its folder.
//
//   - [Queue]: two classes of requests, each of which sends as much as all servers can do. It prints what each class
//     got, second by second.
//   - [Prefix]: conversations with shared system prompts, on engines that cache what they computed: by the weights of
//     work; by a header that names the conversation (`bootstrap --affinity`); and by the prompt (`bootstrap --module
//     --prefix`). The conversations of each phase are about something else, so that no phase finds what another one
//     left in the caches. Before the first, Steelyard sees some of the load, to learn how fast the engines are.
//   - [Scaling]: replicas get more than they can do, and half of the time later there are more of them. Round robin
//     leaves what waits at the old replicas, and goes on sending them as much as the new ones. The router holds what
//     waits itself, so the new replicas take it.
package demo
