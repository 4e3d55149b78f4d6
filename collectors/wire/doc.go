// Package wire is what the services that Envoys stream to have in common: a gRPC
// codec for messages that read themselves, and who speaks on a stream.
package wire
