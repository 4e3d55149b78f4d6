// Package daemon wires the parts of the control plane together: it is the only package that knows them all. A
// [Daemon] binds its listeners when it is made, serves while it runs, and takes another configuration at any time.
//
// It holds no policy. Packages weighting and controlplane decide, collectors read, xds streams. The types of those
// packages meet here, and only here: each adapter in adapters.go is a few lines.
//
// # Liveness
//
// Each loop marks its work in an activity of package liveness, and a goroutine with an activity takes each lock that
// loops and streams share once a second. /healthz fails when one of the activities makes no progress. watchOver lists
// the loops that have an activity and why the others need none.
//
// # Order of starting and stopping
//
// Both listeners are bound before anything runs, so a port that is taken is an error at the start. When the context
// ends, readiness fails first. Then the loops stop; the last push of each lifts its drop fraction. Once every
// responsive Envoy has that push, the collectors and the admin listener end. The streams end last (Envoys keep the
// assignment, and no request notices), so that the next process is there when Envoys reconnect.
//
// This takes a tenth of a second when peers respond, half a second more when one has only just stopped responding,
// and never more than a second and a half.
//
// # File descriptors
//
// The limit of open files also bounds the connections to the xDS port, so that there is always a descriptor for a
// scrape, the admin listener and Redis.
package daemon
