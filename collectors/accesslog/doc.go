// Package accesslog serves Envoy's gRPC access log service and passes every request that begins
// and ends at an endpoint on to the ledger.
//
// An Envoy whose router has upstream_log_options.flush_upstream_log_on_upstream_stream
// and an upstream_log of type envoy.access_loggers.http_grpc sends an entry of type
// UpstreamPoolReady when an attempt got its stream to an endpoint, and one of type UpstreamEnd when
// it is over. No request waits for either. Entries of other types are skipped.
// cmd registers the service on the gRPC server of xDS, with wire.Codec.
//
// # What is read of an entry
//
// From the wire, without unmarshalling the rest:
//
//   - upstream_remote_address, the endpoint, and upstream_cluster, the Envoy's own name for the
//     cluster: that which the request was sent to, also where the route names an aggregate;
//   - when the attempt started (start_time, in microseconds) and the request id
//     (stream_id, or else the x-request-id), by which a beginning and its end are
//     paired. The id is not enough: a client may give all requests the same one, and
//     retries have that of the request. Where two attempts are still alike, one stands
//     for the other, which is as good for counting;
//   - the size of the request's body, by its content-length, which is unknown for a chunked one and
//     where Envoy was not told to add it (additional_request_headers_to_log);
//   - the status; it is the endpoint's own, never one that Envoy made up. A gRPC server answers
//     200 whatever happens, and reports how the call ended in grpc-status: a trailer, or a header
//     where the answer is nothing but that. Envoy adds either if it is told to
//     (additional_response_trailers_to_log, additional_response_headers_to_log);
//   - the response flags: a connection failure; a remote reset, a lost connection, or
//     a broken protocol, which are the endpoint's doing; an overflow, which is the Envoy's own
//     circuit breaker: such an end is skipped, for the request never got to the endpoint;
//   - the time from the first byte sent upstream to the last one received. Envoy 1.40
//     sets no flag when the client went away or a timeout struck, but then there is no
//     last byte. So only what has one is an answer;
//   - the bytes received from the endpoint, which Envoy adds up over the attempts of
//     a request: what there was at the beginning is no part of this one. (Sizes of bodies cannot be used: seen from
//     upstream, response_body_bytes are those of the request.)
//
// # Whom a stream is of
//
// The first message of a stream names the node; with the remote IP it identifies the Envoy
// in the ledger. A stream without a node is refused, with a message
// for the person who runs that Envoy, and one whose first message does not come within ten
// seconds is ended.
//
// # What ends a stream
//
// The Envoy; a message that is no protobuf, above 1 MiB, or of more than 16,384
// entries; Close. There are at most 1,024 streams of one Envoy, which has
// one for each worker and logger. With the stream go the counts that came over it.
//
// # What it is not
//
// It keeps no logs and no counts of requests, and decides nothing.
package accesslog
