// Package assignment converts a weighting decision into Envoy's message: a ClusterLoadAssignment with weights, health
// flags, localities and a drop policy.
//
// It is pure: the same decision, options and random source give the same message. It keeps no state, sends nothing and
// does not decide whether a message is worth sending; package xds, its only caller, does.
//
// # Weights
//
// Envoy's schedulers (ROUND_ROBIN, and LEAST_REQUEST with unequal weights) restart with every change of the weights,
// from a seed that never changes, so the first picks after an update are a fixed function of the weights. With small
// integers that change by one, every worker of every Envoy picks the same few hosts after each update. Large weights
// whose low digits are random in every message prevent this.
//
//	base(i) = share(i) / largest share * top, and not below bottom
//	w(i)    = base(i) + u * (0.02 * base(i) + 1),  u uniform in (-1, 1), fresh for every endpoint and message
//	10^3 <= w(i) <= 10^7
//
// bottom and top lie 2 % inside of the bounds, so that the dither never reaches them and its mean stays zero: a clamp
// would change the shares of the largest and the smallest. Two endpoints keep their order if their shares differ by
// more than 5 %, unless both are at the lower bound: an endpoint with less than about a ten-thousandth of the largest
// share gets more than its share, and stays reachable.
//
// Envoy refuses an assignment whose weights overflow uint32 when added up, so a locality of more than 429 endpoints
// gets a proportionally smaller range.
//
// # Overload
//
// An overloaded endpoint is DEGRADED: Envoy prefers the others, and uses it again as soon as they cannot take the
// traffic, so the flag never causes a 503. The filter metadata "steelyard" has {overloaded: true, reason: "..."}, for
// access logs and for readers of Envoy's config dump. Only flagged endpoints have it, and it is small: Envoy updates
// the metadata of a host in place and keeps its connections, but compares it on every update.
//
// # Localities
//
// Endpoints are grouped by zone, in the order of the zone's name and then of the address, whatever the order of the
// decision. The weight of a locality is in proportion to its endpoints' weights: Envoy ignores it unless the cluster
// uses locality-weighted balancing, and then a locality without a weight would get no traffic at all. An endpoint that
// moves to another zone loses its connections.
//
// # Drops
//
// A drop fraction above zero becomes policy.drop_overloads, in millionths, with exactly one category, because Envoy
// refuses two. Envoy acknowledges a change of drop_overloads but does not apply it unless a weight changes in the same
// message; Options.Previous makes sure that one does, even if the dither happens to draw the same numbers again.
//
// # Staleness
//
// Options.EndpointStaleAfter sets policy.endpoint_stale_after: Envoy drops the endpoints if it gets no assignment for
// so long. That is only safe for a cluster with a fallback, so it is off by default. weighted_priority_health stays at
// Envoy's default, off: it would mix load into health. overprovisioning_factor does not: with Envoy's default of 140 %,
// one flagged endpoint of three still gets 7 % of the requests, whatever its weight.
package assignment
