// Package xds serves endpoint assignments to Envoys and knows what each of them
// made of it.
//
// The control loop calls Publish with every decision that package weighting/push found worth a push; the
// server has package assignment build the messages, and hands them to every stream that subscribed to the
// cluster. Clients returns what each Envoy was sent and what it answered, for the admin pages. The protocol
// itself (streams, nonces, watches) is go-control-plane's LinearCache and server.
//
// It is not a clock: there is no goroutine but those of the gRPC streams. When a cluster is ready, how far
// apart pushes are and when a heartbeat is due is decided by the caller. It serves endpoints, and the one
// runtime layer that switches the Envoys' access loggers: clusters, listeners and routes come from Envoy's
// own configuration.
//
// # What is spoken
//
// EDS on its own stream and over ADS, each as state of the world and as delta. Any
// other resource type that is asked for over ADS is held: never answered.
// Answering with an empty list would tell Envoy to delete what it has, and
// closing the stream would take the endpoints away with it.
//
// RTDS on its own stream, as state of the world: see below.
//
// # Rules of the stream
//
//   - Nothing is sent for a cluster before its first Publish, not even an empty answer: Envoy would
//     end its warming without endpoints, and serve 503s.
//     A subscription to an unknown cluster waits, visible as Known: false. LinearCache
//     answers a request that carries no version, or another server's, with whatever there
//     is, even if that is nothing, so it is shown requests that carry this process's prefix.
//   - The first request of a stream is answered with every assignment there is, also
//     when its version is the current one: the Envoy may have dropped the endpoints as
//     stale while it was away. A delta request that names the current content of a resource
//     is not answered until the next push.
//   - An ACK is never answered with the version it acknowledges. Neither is a NACK: the
//     refused assignment would be refused again. The next push goes out as usual.
//   - One response is in flight per stream. What is published meanwhile replaces
//     what was waiting, so a slow Envoy costs freshness, never memory. (A delta stream that
//     changes its subscriptions before it has answered can have a second one in flight.)
//   - The first request of a stream names the Envoy's node; a stream whose first request does not is refused. Package
//     port ends a stream whose first request does not come within ten seconds.
//   - Names only: an empty list of names or "*" subscribes to nothing. Envoy sends the empty
//     list when its last EDS cluster went away, which is no wish for all of ours.
//   - A removed cluster is not taken away from Envoys, see Server.Remove.
//
// # Versions
//
// A version is a prefix unique to the process (random bits and the time of its start) and a number
// that rises by one with every push of any cluster. After a restart every Envoy's
// version is foreign, and it gets the new assignment as soon as there is one. The
// version of a response is the server's at that moment; what Clients shows per cluster is
// the version of that cluster's own last push in it. Delta streams compare the content, so
// a heartbeat must differ in content: it is a push with fresh dither.
//
// # Who watches
//
// Watchers names the Envoys that subscribe to a cluster, so that counts of
// requests which come over other services of the same port are believed for the clusters that
// an Envoy watches, and no others. It is told apart by node id and IP address.
//
// # Who is gone
//
// An Envoy that stops resets its streams and then closes the connection. One whose connection ends
// under its streams (closed by the kernel, reset, silent) has vanished: Gone names it for ten minutes,
// or until it comes back. This is seen by the Listener, whose connections learn of their end before the
// streams do. Handshakes sums up the TLS handshakes that fail, by reason.
//
// # Runtime layers
//
// Each Envoy has a layer RuntimeLayer, set by SetRuntime, with that of Options until then. Envoy
// waits for its runtime layers when it starts, so the first request is answered at once,
// always, and a layer of another name with an empty one. A change is sent when the response before it
// was answered; one that is refused is not repeated. RuntimeClients shows who follows.
// There is no answer over ADS or delta: the layer's config source must be a stream of its own.
//
// # Stopping
//
// Settled says when every responsive Envoy has the last push; a frozen one does not count. Only streams are
// served, no unary calls, so that Close ends everything whatever the peers do.
//
// # Bounds
//
// Requests are at most 1 MiB (GRPCOptions), which is also what a stream can hold of one that has not arrived
// completely; names of clusters 1 KiB, a stream has at most 10,000
// subscriptions and 32 other types, a runtime stream 8 layers; all streams together have Options.Names
// subscriptions and other types, shared by connection as package port says. Beyond that a stream is closed with the
// reason. At most 16,384 Envoys have runtime values of their own. Of the node,
// only what Client shows is kept: its list of extensions, some 61 KB, is dropped at once. What Envoy
// says of itself or in a NACK is cut to a length. A client that went is forgotten.
package xds
