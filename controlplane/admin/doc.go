// Package admin serves the state of a running Steelyard to probes, Prometheus, scripts
// and the person on call.
//
// # What it is for
//
//	/healthz                          200 while the process makes progress; else 503 and what is stuck
//	/readyz                           200 once each cluster had weights to push, or no endpoints; else 503 and why
//	/metrics                          Prometheus text or OpenMetrics
//	/api/v1/status                    version, uptime, config generation, last reload and its error
//	/api/v1/clusters                  every cluster without its endpoints
//	/api/v1/clusters/{name}           one cluster with its endpoints and the working of their weights
//	/api/v1/clusters/{name}/history   shares over the last minutes
//	/api/v1/clients                   connected Envoys, what was sent to them, their answers
//	/                                 the same as a web page
//
// The JSON is described key by key in docs/admin-api.md, and a test compares
// the two. It is stable: keys are added, not renamed, and their meaning and unit
// stay.
//
// # What it is not
//
// It changes nothing: every route is GET or HEAD. It has no authentication of
// its own, which is why it listens on loopback by default; and it accepts only Host
// names that no stranger can register, see hosts.go. It has no profiler. It holds no
// state: for each request it asks a [Source], except for the counters in [Metrics]
// and the recent shares in [History].
//
// # Use
//
// The daemon builds one [Metrics] and one [History], hands them to the loops,
// which report to them, implements [Source] over the store, the decisions and
// the xDS server, and then runs [Serve] with the handler that [New] returns.
// Package controlplane/view, which has the values of a cluster, is the only other
// package of the project that this one knows.
//
// # Units, and what is unknown
//
// Durations are seconds, times are RFC 3339 in UTC, shares and fractions are
// 0..1. A number that is not known is null and never 0, and so is one that JSON
// cannot hold: see [view.Number] and [view.Time]. The series on /metrics follow the same
// rule: a gauge whose value is unknown is left out.
//
// # Problems
//
// Problems (of the status, a cluster, an endpoint, a client) are derived here from the
// rest of the view, in problems.go, so that the page, a script and a person with curl
// read the same text.
package admin
