// Package controlplane is the loop between what is known of a cluster's load and
// what its proxies are told: a store of reports, one [Cluster] with one loop for
// each configured cluster, and the [Manager] that starts and stops them as the
// configuration changes.
//
//	discovery ──┐
//	collectors ─┴─> Cluster (reports) ──> weighting.Law.Step(now) ──> Publisher ──> every Envoy
//	                                               │
//	                                               └──> admin: the decision with its working
//
// It knows neither Redis nor HTTP nor gRPC: what reads load calls [Cluster.Scraped]
// and [Cluster.Counted], and what serves the proxies implements [Publisher]. Those
// are wired together in cmd/internal/daemon.
//
// # Pace
//
// Every report wakes the loop through a channel of capacity one. A step takes
// the latest of everything, so reports coalesce and never queue. After a step
// the loop rests for the minimum interval, and at least nine times as long as a
// step costs; after a push until the budgets let the next one go; and where
// scrapes of many endpoints are all there is, for a twentieth of their interval. A
// report that comes after a quiet time is acted on at once. Without reports it steps four times a second, because
// ages move on.
//
// # Readiness
//
// A control plane that restarts must not push neutral weights over the good ones
// that its proxies still hold. So a cluster is published only after the first
// full round: every endpoint has been heard from by every configured source, or
// was tried three times in vain, and each source has heard from somebody. If that
// does not come to pass within the warm-up limit, counted from the first
// endpoints, it is published with what is known.
package controlplane
