// Package port limits what all the peers of a listening port can take together, so that an unknown client cannot take
// the service away from the Envoys that use it. The xDS port has all of these limits, the admin port only the one on
// connections.
//
// The package does not depend on what the port serves. Package daemon makes a Listener for each port, passes its
// interceptor to the gRPC server, and sets how many connections the limit of open files has room for.
//
// # Connections
//
// A Listener allows a number of connections in total, and a number from one remote address. All addresses of an IPv6
// /64 count as one, because a single machine usually has a whole /64. A connection counts from when it is accepted
// until it is closed, including while its handshake is pending.
//
// An address may have at most three quarters of the connections that the other addresses do not use, so that a
// few addresses cannot take them all: two that connect as often as they can leave a seventh. Where Options allow an
// address more than three quarters of the total, for a fleet behind one address, that part applies instead.
//
// A connection is idle unless it has an open stream that has sent a message. When there is no room for a new
// connection, the Listener closes the one that has been idle for longest (among those from the same address, if that
// address has reached its limit). An Envoy opens its first stream within milliseconds, and is not idle from then on. If
// no connection is idle, the Listener refuses the new one: it accepts and closes it at once, so that the peer notices
// and can retry.
//
// On a port with Options.DisplaceBusy, whose requests take milliseconds, the oldest connection is closed, busy or not.
// A connection that has just been opened is the last in this order, so that a probe is answered even while dozens of
// clients a second connect and do not read.
//
// No error from accept ends the Listener, not even a lack of file descriptors: it closes the connection that has been
// idle for longest, and tries again at least once a second.
//
// # Streams, and what they hold
//
// A Quota limits how much of one resource all connections hold together, such as streams or subscriptions. A connection
// may acquire one more as long as
//
//	16 · what it holds < limit − what all connections hold
//
// This is the dynamic threshold by which network switches share a buffer. A connection that holds little still gets
// more when one that holds much no longer does, and the Quota never takes anything back. One greedy connection gets a
// seventeenth of the limit, and each further one a seventeenth of what is left: ten of them leave more than half. A
// fleet whose Envoys all need about the same can use nearly all of it.
//
// gRPC keeps what has arrived of a message until the rest has arrived, however long that takes, and a message that the
// handler does not receive. Options.Unread limits these bytes on all connections together; to keep the limit, the
// Listener closes the connection that holds the most of them. It counts from the frames that the peer sends, after
// decryption (Credentials), and subtracts what handlers receive (Deliveries) and what ended streams held. All three are
// exact, so the count of an Envoy that works is zero most of the time, however long its connection lasts. A deadline
// for each message would not bound memory: a peer can send a gigabyte in a second. Nor is there a limit for a single
// connection: an Envoy that sends while Steelyard is slow for a moment is not closed unless memory is at stake.
//
// The Listener ends a stream whose first message does not arrive completely within Options.FirstMessage.
//
// # Counters and log
//
// The Listener counts every refusal by the limit that was reached. It logs the first at once, and then one line with
// the sum every ten seconds while refusals continue.
package port
