// Package port stands between the network and a server: it bounds what all of the peers of a
// listening port can take together, so that a stranger who can connect cannot take the service away from
// the Envoys that use it. The xDS port has all of its bounds; the admin port has that of connections.
//
// It knows nothing of what is served. Package daemon makes a Listener for each port, gives its
// interceptor to the gRPC server, and tells it how many connections the limit of open files has
// room for.
//
// # Connections
//
// A Listener has so many connections at most, and so many of one remote address. They count from when they
// are accepted until they are closed, so also while a handshake waits.
//
// A connection on which no stream is open is idle. When there is no room for a new one, the connection that
// has been idle for longest is closed in its place (of those from the same address, where the limit of
// an address is reached): the place of a peer that asks for nothing is worth less than that of a
// peer that may. An Envoy opens its first stream within milliseconds, and is not idle from then on. Where no
// connection is idle, the new one is refused: accepted and closed at once, so that its peer learns of
// it and can come back.
//
// Running out of file descriptors, or any other error of accepting, ends nothing: the oldest idle
// connection is closed, and accepting is tried again, at least once a second.
//
// # Streams and what they hold
//
// A Quota bounds what all connections hold together of one thing, such as streams or names that are
// subscribed to. A connection may take one more as long as
//
//	16 · what it holds < limit − what all hold
//
// the dynamic threshold by which switches share a buffer. Who holds little is let in when who holds much is not
// any more, and what a connection has is never taken from it. One that takes all it can get gets a
// seventeenth of the limit, and each further one a seventeenth of what is left: ten of them leave more than half, and
// a fleet whose Envoys need about the same may use nearly all.
//
// # What is said
//
// Whoever is turned away is counted, by the bound that was reached. The log has one line at the first, and
// then one with the sum every ten seconds for as long as it goes on.
package port
