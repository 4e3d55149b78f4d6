// Package daemon wires the parts of the control plane together: it is the only
// place that knows them all. A [Daemon] listens when it is made, serves while it
// runs, and can be given another configuration at any time.
//
// It holds no policy. What is decided is decided in packages weighting and
// controlplane, what is read in collectors, what is streamed in xds. The types
// of those packages meet here, and only here: each adapter is a few lines in
// adapters.go.
//
// # Order of starting and stopping
//
// Both listeners are bound before anything runs, so a port that is taken is an
// error at the start. When the context ends, readiness goes first, then the
// streams end (an Envoy keeps the assignment it has, and no request notices),
// then the loops and collectors, and the admin listener last.
package daemon
