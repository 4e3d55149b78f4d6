// Package customrouter is the router of the container contract of custom routers: queued least latency (package
// leastlatency) with the API by which a platform sets the backends. `steelyard router` runs it inside Envoy, as a
// filter of the module.
//
// A request arrives, gets its verdict at once or later, and ends. Verdicts come in the order of the queue, from any
// goroutine. Latency is the time from the dispatch to the end of the answer. A request for which no connection could be
// made arrives once more, by its number.
package customrouter
