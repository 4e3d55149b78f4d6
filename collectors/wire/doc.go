// Package wire is what the services that Envoys stream to have in common: a gRPC
// codec for messages that read themselves, and which Envoy a stream is of. It is used
// by collectors/accesslog and collectors/loadstats; cmd gives the codec to the
// gRPC server.
//
// # Why a codec
//
// Two of Envoy's streams carry far more than is wanted of them. An access log
// entry has some hundred fields, of which a dozen show what happened to an endpoint;
// every load report repeats the Envoy's Node, 61 KB, which was complete
// in the first message. Unmarshalling them whole costs ten times (entries) and some
// hundred times (reports) what reading the few fields off the wire does. gRPC has one codec for a whole server, so
// this one serves the messages that implement Message, and leaves all others, such as
// those of EDS, to gRPC's own.
//
// # Whom a stream is of
//
// Both streams start with the Envoy's Node. Its id, cut to the length that
// package xds keeps, the remote IP of the connection and the names in its certificate, if it has one, tell Envoys
// apart: the same three that identify a subscription. So nobody can report for an Envoy by giving its node id.
//
// # What it is not
//
// No protocol: each service knows its own messages.
package wire
