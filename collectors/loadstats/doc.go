// Package loadstats serves Envoy's load reporting service (LRS) and passes on to the ledger
// what each Envoy has in progress at each endpoint.
//
// An Envoy with cluster_manager.load_stats_config opens one stream, names its node, and is
// told to report all clusters, by endpoint, every so often. A report has a gauge of the
// requests in progress and, since the last one, the requests issued, those that succeeded or
// ended in an error, and those dropped by drop_overloads. cmd registers the service on the gRPC server that
// serves xDS, with wire.Codec.
//
// # What is read of a report
//
// Requests in progress, issued, succeeded and in error, by cluster and address, and drops, by
// cluster; of the cluster its name in the Envoy, which its log uses, and that in EDS, if it has one.
// Endpoints and clusters that are idle may be left out: they have nothing in progress.
// To Envoy an error is a 5xx, a gRPC status that stands for one, a connection or an answer that
// did not come, and its own timeouts and full circuit breakers; any 4xx is a success. The node,
// which is repeated in every report
// (github.com/envoyproxy/envoy/issues/31317), is stepped over after the first message.
//
// Counters are latched: an Envoy starts each again at zero when it has sent a report, so there
// is one consumer of them per Envoy. The gauge is not, so whatever is lost, the next
// report has the truth of what is in flight.
//
// # How often
//
// With an access log once a second, without one ten times, or less often as a byte budget asks
// (see Fleet). It is asked for after each report of each Envoy, and one that changed
// by more than a tenth is sent to it on the open stream. An Envoy answers that by going
// on with its counters where they are.
//
// # What ends a stream
//
// The Envoy; a message that is no protobuf, above 1 MiB, or of more than 16,384
// clusters or 65,536 endpoints; Close. A first message that names no node is refused,
// with a reason for the person who runs that Envoy, and so is one that does not come within ten
// seconds. There are at most 8 streams
// of one Envoy. With the stream go the counts that came over it.
//
// # What it is not
//
// It keeps no counts and does not decide the interval.
package loadstats
