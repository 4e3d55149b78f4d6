// Package admin serves the state of a running Steelyard to probes, Prometheus, scripts and the person on call.
//
// # What it is for
//
//	/healthz                          200 while the process makes progress; else 503 and what is stuck
//	/readyz                           200 once each cluster had weights to push, or no endpoints; else 503 and why
//	/metrics                          Prometheus text or OpenMetrics
//	/api/v1/status                    version, uptime, config generation, last reload and its error
//	/api/v1/clusters                  every cluster without its endpoints
//	/api/v1/clusters/{name}           one cluster with its endpoints and the working of their weights
//	/api/v1/clusters/{name}/shadow    the busiest hour while nobody followed the weights
//	/api/v1/clusters/{name}/history   the last hour: shares, served shares, loads, states
//	/api/v1/clusters/{name}/matrix    requests in flight by Envoy and endpoint
//	/api/v1/clusters/{name}/explain   why an endpoint has its share, now or some minutes ago
//	/api/v1/clients                   connected Envoys, what was sent to them, their answers; those that left
//	/api/v1/incidents                 what is wrong, since when, why, whether Steelyard is the cause, what to do
//	/api/v1/events                    what changed in the last hour
//	/api/v1/stream                    a frame of all this each second, by server-sent events
//	/api/v1/openapi.json              these routes and their answers, for programs
//	/                                 the page, which shows the same
//
// docs/admin-api.md, which is made of the types of package api and their comments, describes the JSON key by key.
//
// # What it is not
//
// It has no profiler. For each request it asks a [history.Source]. What it serves is found below it, each package only
// knowing those before it: conditions (what is wrong at a moment), history (what a look each second adds), current (the
// present state, completed by both) and metrics (the series).
//
// # Who may do what
//
// A request passes the check of its Host (hosts.go) and of its token or session ([Access]). A router keeps the routes
// that change something apart from those that read: register one with router.operate, and its handler is called for
// callers with the role operate only, never by GET and never for a page of another origin.
//
// # The page
//
// assets holds it, embedded: a style and five scripts, without framework and without build step. page.html is what the
// server renders: incidents, clusters and the worst endpoints, for the first moment and for browsers without script.
// base.js makes elements (text is always text), store.js takes the frames of the stream and asks for history, events
// and Envoys, views.js turns them into the views, charts.js draws, page.js wires routes, keys and what is live. All
// addresses are relative. The sentences about trouble are made in package conditions; the page only shows them.
//
// # Use
//
// The daemon builds one [metrics.Metrics] and one [history.Recorder], hands them to the loops, which report to them,
// implements [history.Source] over the store, the decisions and the xDS server, and then runs [Serve] with the handler
// that [New] returns. Of the control plane this package knows nothing.
package admin
