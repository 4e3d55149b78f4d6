// Package streams bounds the gRPC streams of a service, and ends them when the process stops. The services for Envoys
// use it (collectors/accesslog, collectors/loadstats, xds/places), and that for pickers (xds/loads).
//
// It is not the limit on what all peers of a port may take together, nor on how long a stream may be silent before its
// first message: package xds/port has those.
package streams
