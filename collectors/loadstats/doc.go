// Package loadstats serves Envoy's load reporting service (LRS) and passes each Envoy's requests in progress at each
// endpoint on to the ledger.
//
// An Envoy with cluster_manager.load_stats_config opens one stream, names its node, and is asked to report all
// clusters, by endpoint, at an interval. A report has a gauge of the requests in progress and, since the last one, the
// requests issued, those that succeeded or ended in an error, and those dropped by drop_overloads. cmd registers the
// service on the gRPC server that serves xDS, with wire.Codec.
//
// # What is read of a report
//
// Requests in progress, issued, succeeded and in error, by cluster and address, and drops, by cluster; of the cluster
// its name in the Envoy, which the Envoy's log uses, and its name in EDS, if it has one. Endpoints and clusters that
// are idle may be left out: they have nothing in progress. To Envoy an error is a 5xx, a gRPC status that corresponds
// to one, a connection or an answer that did not come, and its own timeouts and full circuit breakers; any 4xx is a
// success. The node, which is repeated in every report (github.com/envoyproxy/envoy/issues/31317), is skipped after the
// first message.
//
// Counters are latched: an Envoy resets each to zero when it has sent a report, so an Envoy has one consumer of them.
// The gauge is not latched, so whatever is lost, the next report has the correct number in flight.
//
// # How often
//
// Once a second with an access log, ten times a second without one, or less often if a byte budget requires it (see
// Fleet). The interval is computed after each report of each Envoy; if it changed by more than a tenth, it is sent to
// the Envoy on the open stream. The Envoy then keeps its counters.
//
// # What ends a stream
//
// The Envoy; a message that is not protobuf, above 1 MiB, or of more than 16,384 clusters or 65,536 endpoints; Close. A
// stream whose first message names no node is refused, with a reason for the person who runs that Envoy. The
// port (package xds/port) ends one whose first message does not come within ten seconds. One Envoy may have 8 streams.
// When a stream ends, the counts that came over it are removed.
//
// # What it is not
//
// It keeps no counts and does not decide the interval.
package loadstats
