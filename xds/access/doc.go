// Package access decides, by the names in its certificate, which clusters a client of the xDS port may watch and report
// on, and ends the streams of clients that may not.
//
// # Rules
//
// A [Rule] has a pattern for a DNS name or a URI (SPIFFE ID) of the certificate, and patterns for names of clusters. A
// client may use the clusters of all rules that one of its names matches. Without rules, every client may use all
// clusters. A * in the pattern of a name stands for any characters but . in a DNS name and / in a URI; in the pattern
// of a cluster it stands for any characters. A cluster stands for its variants (llama/failsafe), too.
//
// # Streams
//
// A [Guard] intercepts all streams of the port. A stream ends with PERMISSION_DENIED when it is opened by a client that
// no rule names, when it subscribes to a cluster (EDS or ADS, state of the world or delta) that its client may not use,
// and when it reports (access log, load reports) on an endpoint of a cluster that its client may not use. A report is
// checked by the endpoint's address and not by the cluster's name in it, which is the Envoy's own: another team may use
// the same name for a cluster of theirs. A report on an endpoint of no configured cluster is normal: an Envoy logs the
// requests to all of its clusters. A wildcard subscribes to nothing; see package xds.
//
// When the rules change, the Guard ends the open streams that they no longer allow at once. A client that may not use
// one cluster of an ADS stream loses the whole stream: silently leaving a cluster out would look like a cluster that is
// not ready.
//
// # Connections
//
// A connection has the certificate of its handshake for ever, and a client that is denied opens its streams again over
// the same one. So the Guard closes it some seconds after a denial: a client that has another certificate by then shows
// that one. It leaves a connection open over which something is watched, because that service would end with it. All
// streams of a connection are those of one client, since the handshake is with the client itself.
//
// # What it is not
//
// It does not authenticate clients: the TLS handshake has verified the certificate. A connection without one is not
// guarded; the configuration has no rules then.
package access
