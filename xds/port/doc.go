// Package port stands between the network and a server: it bounds what all the peers of a listening
// port can take together, so that a stranger able to connect cannot take the service away from the Envoys
// that use it. The xDS port has all of its bounds, the admin port only that on connections.
//
// It knows nothing of what is served. Package daemon makes a Listener for each port, gives its interceptor
// to the gRPC server, and says how many connections the limit of open files has room for.
//
// # Connections
//
// A Listener allows a number of connections in total, and a number from one remote address. All addresses of an IPv6
// /64 count as one, because a single machine usually has a whole /64. A connection counts
// from being accepted until it is closed, including while its handshake is pending.
//
// A connection without an open stream is idle. When there is no room for a new connection, the one that has
// been idle for longest is closed to make room (among those from the same address, if the limit per address is
// the one reached). An Envoy opens its first stream within milliseconds and is not idle from then on. If no
// connection is idle, the new one is refused: accepted and closed at once, so that its peer notices and
// can come back.
//
// Running out of file descriptors, or any other error from accept, ends nothing: the oldest idle connection is
// closed, and accepting is tried again, at least once a second.
//
// # Streams, and what they hold
//
// A Quota bounds how much of one thing all connections hold together, such as streams or subscriptions. A
// connection may take one more as long as
//
//	16 · what it holds < limit − what all hold
//
// This is the dynamic threshold by which switches share a buffer. A connection that holds little is served when
// one that holds much no longer is, and nothing is ever taken back. One greedy connection gets a seventeenth of
// the limit, and each further one a seventeenth of what is left: ten of them leave more than half. A fleet
// whose Envoys all need about the same can use nearly all of it.
//
// A stream whose first message does not arrive completely within Options.FirstMessage is ended: until then it keeps its
// connection from being idle.
//
// # Counters and log
//
// Every refusal is counted, by the bound that was reached. The log has one line for the first, and then one with
// the sum every ten seconds while they continue.
package port
