// Package router is `steelyard router`: a drop-in for the container contract of custom routers, with queued least
// latency (picking.Queued) as its strategy and Envoy as the proxy.
//
//	clients ──> Envoy :3000 ──/_custom_router/──> API of this process
//	              │  ▲
//	  ext_proc:   │  └── the backend of each request, once the queue lets it go
//	  headers     ▼
//	            this process <── Envoy's access log: how and when each request ended
//
// Envoy runs as a child. It holds a request in its ext_proc filter, with the body unread, until this process names a
// backend or refuses it; bodies and streamed answers never pass through this process. A client that gives up ends the
// ext_proc stream, and with it leaves the queue. Latency is the time from the dispatch to the end of the answer.
//
// When Envoy ends, so does the router: a container platform restarts both.
package router
