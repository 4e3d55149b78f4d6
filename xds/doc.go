// Package xds serves endpoint assignments to Envoys, and tracks which of them each Envoy has accepted.
//
// The control loop calls Publish with every decision that package weighting/push found worth a push. The server has
// package assignment build the messages, and sends them on every stream that subscribes to the cluster. Clients returns
// what each Envoy was sent and what it answered, for the admin pages. go-control-plane's LinearCache and server
// implement the protocol itself (streams, nonces, watches).
//
// The package has no clock and no goroutines except those of the gRPC streams. The caller decides when a cluster is
// ready, how far apart pushes are and when a heartbeat is due. The server serves endpoints, and the one runtime layer
// that switches the Envoys' access loggers; clusters, listeners and routes come from Envoy's own configuration.
//
// # Services
//
// EDS on its own stream and over ADS, each as state of the world and as delta. A request for another resource type over
// ADS is held, which means that it is never answered: an empty answer would make Envoy delete the resources that it
// has, and closing the stream would take the endpoints away too.
//
// RTDS on its own stream, as state of the world (see Runtime layers).
//
// # Rules of the stream
//
//   - The server sends nothing for a cluster before its first Publish, not even an empty answer: Envoy would end its
//     warming without endpoints, and answer requests with 503. A subscription to an unknown cluster waits, visible as
//     Known: false. LinearCache answers a request without a version, or with that of another server, at once, even if
//     it has nothing to send; so the server passes it requests with the version prefix of this process.
//   - The first request of a stream is answered with all assignments that there are, even if it carries the current
//     version: the Envoy may have dropped the endpoints as stale while it was disconnected. A delta request that
//     carries the current content of a resource is not answered until the next push.
//   - An ACK is never answered with the version that it acknowledges, and neither is a NACK: Envoy would refuse the
//     same assignment again. The next push goes out as usual.
//   - Each stream has at most one unanswered response. A push that comes meanwhile replaces the one that waits, so that
//     a slow Envoy costs freshness and never memory. (A delta stream that changes its subscriptions before it has
//     answered can have a second one.)
//   - The first request of a stream names the Envoy's node, or the server ends the stream. Package port ends a stream
//     whose first request does not arrive within ten seconds.
//   - An empty list of names, or "*", subscribes to nothing. Envoy sends the empty list when its last EDS cluster was
//     removed, and does not mean all of our clusters.
//   - The server does not remove a removed cluster from Envoys; see Server.Remove.
//
// # Pace
//
// The gate of a cluster (package push) decides on each push, as often as the median Envoy can take them. An Envoy that
// has used more than its push.Allowance, by pushes of many clusters or by unsolicited requests, has its next request
// handled later, so that it gets fewer pushes and costs others nothing.
//
// # Versions
//
// A version is a prefix that is unique to the process (random bits and its start time) and a number that rises by one
// with every push of any cluster. So after a restart, every Envoy has a foreign version, and gets the new assignment as
// soon as there is one. The version of a response is the server's current one; Clients shows for each cluster the
// version of that cluster's own latest push in it. Delta streams compare the content, so a heartbeat has to differ in
// content: it is a push with fresh dither.
//
// # Watchers
//
// Watchers returns the Envoys that subscribe to a cluster. Other services of the same port accept request counts from
// an Envoy only for the clusters that it watches. An Envoy is identified by node id, IP address and, where it has one,
// the names in its certificate.
//
// # Vanished Envoys
//
// An Envoy that stops resets its streams before it closes the connection. An Envoy whose connection ends under its
// streams (closed by the kernel, reset, silent) has vanished: Gone lists it for ten minutes, or until it reconnects.
// The Listener detects this, because its connections learn of their end before the streams do. Handshakes counts the
// TLS handshakes that fail, by reason.
//
// # Runtime layers
//
// Each Envoy has a layer RuntimeLayer, which SetRuntime sets; until then it is that of Options. Envoy waits for its
// runtime layers when it starts, so the server answers the first request at once in any case, and one for a layer with
// another name with an empty layer. The server sends a change when the previous response has been answered, and does
// not repeat a layer that was refused. RuntimeClients shows the Envoys that subscribe. There is no RTDS over ADS or
// delta: the config source of the layer has to be a stream of its own.
//
// # Stopping
//
// Settled reports whether every responsive Envoy has the latest push; a frozen one does not count. The server registers
// only streams and no unary methods, so that Close ends everything without waiting for peers.
//
// # Limits
//
// Requests are at most 1 MiB (GRPCOptions), which is also what a stream can hold of one that has not arrived
// completely. Names of clusters are at most 1 KiB. A stream has at most 10,000 subscriptions and 32 other types, and a
// runtime stream 8 layers; all streams together have Options.Names subscriptions and other types, which connections
// share as package port describes. The server ends a stream that asks for more, and gives the reason. At most 16,384
// Envoys have runtime values of their own. Of the node, the server keeps only what an api.Node has: it drops the list
// of extensions, about 61 KB, at once. Strings that Envoy sends in its node or in a NACK are truncated. The server
// forgets a client that disconnects.
package xds
