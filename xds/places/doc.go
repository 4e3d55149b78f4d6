// Package places serves the queue of each cluster (package queue) to the proxies: the service steelyard.loads.v1.Queue
// of loadsv1, on the xDS port. Requests of all Envoys wait in one queue, but their bytes do not come here: the module
// inside Envoy, or the picker next to it, has the request held, reports that it waits, and gets a verdict.
//
// Each Envoy has one stream for each cluster. It reports arrivals and ends, and gets verdicts, and at least one message
// each [Heartbeat], by which it knows that its requests still wait. It sends one as often: a stream whose Envoy has
// sent nothing for [picking.Stale] is ended, because an Envoy that hangs reports no ends. When a stream ends, its
// requests are forgotten: what waited is released by its Envoy, or arrives again on the next stream with the time that
// it has waited; what was in flight is named by the first message of that stream.
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
// # Several replicas
//
// One replica grants places, the leader, which package internal/lease names ([Server.Lead]). The others pass the
// messages of their Envoys on to it and back ([relayedKey] keeps that to one hop), and send heartbeats of their own,
// which are pending: an Envoy distinguishes a replica that hangs from a leader that does. That costs a hop of messages,
// some hundred bytes for each request, and needs nothing of an Envoy: neither the addresses of the replicas, nor a way
// to them, nor their names in certificates, which it would need to be led to the leader.
//
// A message has the epoch of its leader, and is not sent once the lease has ended, however long ago it was made. When
// another replica leads, all streams end, and the next ones name what waits and what holds places, as after a restart.
// Nothing is granted for [queue.Grace] then, which is longer than a leader acts without a renewal: so two do not grant
// at the same time even if the store has lost the lease of one. It announces itself to the leader before, which may be
// cut off from the store; that one refuses what is passed on to it with the name of the new leader, because the replica
// that passes it on may be cut off, too. A leader that sends nothing for [picking.Stale] ends the streams to it.
//
// A replica that could lead says so to the leader each [offerEvery], by the call Lead with the epoch of that leader: a
// blind one then gives up the lease.
package places
