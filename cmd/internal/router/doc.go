// Package router is `steelyard router`: a drop-in for the container contract of custom routers, with queued least
// latency (package leastlatency) as its strategy and Envoy as the proxy.
//
//	clients ──> Envoy :3000 ──> backends
//	              │  module: package customrouter, the queue and its API
//
// It reads the environment of the contract, writes Envoy's configuration and runs Envoy. All else is in the module
// inside Envoy: it holds a request, with the body unread, until it names a backend or refuses the request.
//
// When Envoy ends, so does the router: a container platform restarts both.
package router
