// Package wire has what the services that Envoys stream to have in common: a gRPC codec for messages that decode
// themselves, the identification of the Envoy of a stream, and what is counted of the streams. It is used by
// collectors/accesslog and collectors/loadstats; cmd gives the codec to the gRPC server.
//
// # Why a codec
//
// Two of Envoy's streams carry far more than is needed. An access log entry has about a hundred fields, of which a
// dozen show what happened to an endpoint; every load report repeats the Envoy's Node, 61 KB, which was complete in the
// first message. Unmarshalling them as a whole costs ten times (entries) and about a hundred times (reports) what
// reading the few fields from the wire does. gRPC has one codec for a whole server, so this one handles the messages
// that implement Message, and leaves all others, such as those of EDS, to gRPC's own.
//
// # Which Envoy a stream belongs to
//
// Both streams start with the Envoy's Node. Its id, cut to the length that package xds keeps, the remote IP of the
// connection and the names in its certificate, if it has one, identify the Envoy: the same three that identify a
// subscription. So no client can report for an Envoy by using its node id.
//
// # What it is not
//
// It has no protocol: each service defines its own messages.
package wire
