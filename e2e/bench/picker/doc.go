// Command picker is the part of `make bench-picker` that measures what a choice for each request adds to its latency,
// on real Envoys: by the module inside Envoy, and by `steelyard picker` next to it (ext_proc). It also measures the
// module's queue.
//
//	make bench-picker ARGS="--quick"
//
// It is not part of the product.
//
// Each row is a fleet of its own (package placement/fleet): an Envoy with one worker, two servers that read the body
// and answer at once, and a Steelyard. The rows differ only in how the endpoint is chosen. One client sends the same
// body to all rows, one after the other, in an order that changes with each body, so that any disturbance of the
// machine affects all rows. Bodies are chats, each with a text of its own after a system prompt that all share.
//
// The latency is that of the whole request. What a row adds is the difference between its quantile and that of the row
// without a choice, with an interval by the bootstrap over bodies.
//
// Then clients that wait for each answer, and for nothing else, send as many bodies as the rows take that do not look
// at bodies; the rows take turns of a second. A ceiling by the size of the body would lower the throughput relative to
// the row without a choice.
//
// In a second part, requests of three classes wait in the module's queue at twice the load. It measures the share of
// each class, the longest time without a request of it, and the order of arrival across Envoys, by the clocks of the
// Envoys. A third part kills and stops each process in turn under load, and counts the requests that fail although they
// were not on what was killed.
//
// The report has the busy share of the machine. If the p99 of the row without a choice is more than [Options.Spread]
// times its p50, the figures are not a result: the machine was too busy.
package main
