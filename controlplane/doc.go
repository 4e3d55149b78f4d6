// Package controlplane is the loop from the reports of a cluster's load to the
// assignments for its proxies: a store of reports, one [Cluster] with one loop for
// each configured cluster, and the [Manager] that starts and stops them as the
// configuration changes.
//
//	discovery ──┐
//	collectors ─┴─> Cluster (reports) ──> weighting.Law.Step(now) ──> Publisher ──> every Envoy
//	                                               │
//	                                               └──> view: the decision with its working
//
// It does not depend on Redis, HTTP or gRPC: collectors call [Cluster.Scraped] and
// [Cluster.Counted], and what serves the proxies implements [Publisher]. Package
// cmd/internal/daemon wires them together.
//
// # Pace
//
// Every report wakes the loop, by a push.Rhythm. A step uses the
// latest of everything, so reports coalesce and never queue. After a step the loop
// pauses for the minimum interval, and at least nine times as long as a step takes;
// after a push, until the budgets allow the next one; and where there are only
// scrapes of many endpoints, for a twentieth of their interval. The loop acts at once
// on a report after a quiet time. Without reports it steps four times a second, because
// ages grow.
//
// # Readiness
//
// A control plane that restarts must not push neutral weights over the good ones
// that its proxies still hold. So a cluster is published only after the first
// full round: every configured source has a report of every endpoint, or has tried it
// three times without success, and has a report of at least one. If that does not
// happen within the warm-up limit, counted from the first endpoints, the cluster is
// published with what there is.
package controlplane
