// Package accesslog serves Envoy's gRPC access log service and passes the beginning and end of every request at an
// endpoint on to the ledger.
//
// An Envoy whose router has upstream_log_options.flush_upstream_log_on_upstream_stream and an upstream_log of type
// envoy.access_loggers.http_grpc sends an entry of type UpstreamPoolReady when an attempt got its stream to an
// endpoint, and one of type UpstreamEnd when it is over. No request waits for either. Entries of other types are
// skipped. cmd registers the service on the gRPC server of xDS, with wire.Codec.
//
// # What is read of an entry
//
// From the wire, without unmarshalling the rest:
//
//   - upstream_remote_address, the endpoint, and upstream_cluster, the Envoy's own name for the cluster that the
//     request was sent to, even if the route names an aggregate;
//   - when the attempt started (start_time, in microseconds) and the request id (stream_id, or else the x-request-id),
//     by which a beginning and its end are paired. The id is not enough: a client may give all requests the same one,
//     and retries have that of the request. Two attempts that still look the same are interchangeable, which does not
//     change a count;
//   - the size of the request's body, by its content-length, which is unknown for a chunked request and if Envoy is not
//     configured to add it (additional_request_headers_to_log);
//   - the status; it is the endpoint's own, never one that Envoy made. A gRPC server always answers 200, and reports
//     how the call ended in grpc-status: a trailer, or a header if the answer has nothing else. Envoy adds either if it
//     is configured to (additional_response_trailers_to_log, additional_response_headers_to_log);
//   - the response flags: a connection failure; a remote reset, a lost connection, or a protocol error, which the
//     endpoint caused; an overflow, which is the Envoy's own circuit breaker: such an end is skipped, because the
//     request never reached the endpoint;
//   - the time from the first byte sent upstream to the last one received. Envoy 1.40 sets no flag when the client
//     disconnected or a timeout expired, but then there is no last byte. So only an end with a last byte is an answer;
//   - the bytes received from the endpoint, which Envoy adds up over the attempts of a request: those up to the
//     beginning are subtracted. (Sizes of bodies cannot be used: seen from upstream, response_body_bytes are those of
//     the request.)
//
// # Which Envoy a stream belongs to
//
// The first message of a stream names the node; with the remote IP it identifies the Envoy in the ledger. A stream
// without a node is refused, with a message for the person who runs that Envoy. A stream whose first message does not
// come within ten seconds is ended by the port (package xds/port).
//
// # What ends a stream
//
// The Envoy; a message that is not protobuf, above 1 MiB, or of more than 16,384 entries; Close. One Envoy may have
// 1,024 streams, because it has one for each worker and logger. When a stream ends, the counts that came over it are
// removed.
//
// # What it is not
//
// It keeps no logs and no counts of requests, and decides nothing.
package accesslog
