// Package xdstest is a client that behaves like an Envoy towards an endpoint discovery server: it subscribes, and
// accepts or refuses every response in the order and with the fields that Envoy uses. Tests and benchmarks of the
// server run it over a real gRPC connection. It has no data plane.
//
// It does what Envoy does, state of the world and delta, on an EDS stream or over ADS: only the first request has the
// node; a NACK repeats the version that was accepted last; new names go out with the last nonce (state of the world) or
// as a difference without one (delta).
package xdstest
