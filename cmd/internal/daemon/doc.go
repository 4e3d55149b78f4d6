// Package daemon wires the parts of the control plane together: it is the only
// place that knows them all. A [Daemon] listens when it is made, serves while it
// runs, and can be given another configuration at any time.
//
// It holds no policy. What is decided is decided in packages weighting and
// controlplane, what is read in collectors, what is streamed in xds. The types
// of those packages meet here, and only here: each adapter is a few lines in
// adapters.go.
//
// # Liveness
//
// Each loop tells a beat of package liveness what it is at, and each lock that loops and
// streams share is taken once a second by a goroutine with a beat. /healthz fails when one of them does not move.
//
// # Order of starting and stopping
//
// Both listeners are bound before anything runs, so a port that is taken is an
// error at the start. When the context ends, readiness goes first. Then the loops
// stop, each with a last push that lifts the share of requests that it had Envoys
// refuse. Once every responsive Envoy has it, the collectors and the admin listener end.
// The streams end last (Envoys keep the assignment, and no request notices), so that the
// next process is there when Envoys look for it.
//
// This takes a tenth of a second when peers respond, half a second more when one has only just
// stopped responding, and never more than a second and a half.
//
// # File descriptors
//
// Connections to the xDS port are also bounded by the limit of open files, so that there is always
// a descriptor for a scrape, the admin listener and Redis.
package daemon
