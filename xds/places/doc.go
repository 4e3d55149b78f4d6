// Package places serves the queue of each cluster (package queue) to the proxies: the service steelyard.loads.v1.Queue
// of loadsv1, on the xDS port. Requests of all Envoys wait in one queue, but their bytes do not come here: the module
// inside Envoy, or the picker next to it, has the request held, reports that it waits, and gets a verdict.
//
// Each Envoy has one stream for each cluster. It reports arrivals and ends, and gets verdicts, and at least one message
// each [Heartbeat], by which it knows that its requests still wait. It sends one as often: a stream whose Envoy has
// sent nothing for [picking.Stale] is ended, because an Envoy that hangs reports no ends. A stream whose first message
// does not promise heartbeats (an older module) ends with its connection only. When a stream ends, its requests are
// forgotten: what waited is released by its Envoy, or arrives again on the next stream with the time that it has
// waited; what was in flight is named by the first message of that stream.
//
// # Order
//
// A request came when its message did, less the time that it had waited, and less the time by which the message was
// late: what it took longer than the fastest message of its stream. That is at most a second, which is what an Envoy
// gains that lies about its clock. (How long a request has waited is the Envoy's word as well, up to an hour.)
//
// # Bounds
//
// A stream has at most [MaxRequests] requests waiting and in flight, and a message at most [MaxBatch] of each kind.
// Names are cut to [MaxName] bytes, and of the endpoints that have a part of a prompt [MaxCached] are taken. A verdict
// is kept until it is sent, one for each request that waits, so a peer that does not read costs memory for what it has
// asked for.
//
// A replica of the control plane has the queue of the Envoys that are connected to it. It sees the requests of the
// others in the reports of requests in flight, a second or two later.
package places
