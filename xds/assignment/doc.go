// Package assignment turns a weighting decision into the message that Envoy
// understands: a ClusterLoadAssignment with weights, health flags, localities
// and a drop policy.
//
// It is pure: the same decision, options and random source give the same
// message. It keeps no state, sends nothing and does not decide whether a
// message is worth sending; package xds does that and is its only caller.
//
// # Weights
//
// Envoy's schedulers (ROUND_ROBIN, and LEAST_REQUEST with unequal weights) start
// from a seed that never changes whenever the weights change, so the first picks
// after an update are a fixed function of the weights. Small integers that move by one
// make every worker of every Envoy pick the same few hosts after each update.
// Large weights whose low digits are new in every message take that away.
//
//	base(i) = share(i) / largest share * top, and not below bottom
//	w(i)    = base(i) + u * (0.02 * base(i) + 1),  u uniform in (-1, 1), fresh for every endpoint and message
//	10^3 <= w(i) <= 10^7
//
// bottom and top lie 2 % inside of the bounds, so that the dither never meets
// them and its mean stays zero: a clamp would bend the shares of the largest and
// the smallest. Two endpoints keep their order when their shares differ by more
// than 5 %, unless both are at the lower bound: an endpoint with less than about a
// ten-thousandth of the largest share gets more than its share and stays reachable.
//
// Envoy refuses an assignment whose weights do not add up within uint32, so a
// locality of more than 429 endpoints gets a proportionally smaller
// range.
//
// # Overload
//
// An overloaded endpoint is DEGRADED: Envoy prefers the others, and uses it
// again as soon as they cannot take the traffic, so the flag never makes a 503.
// The filter metadata "steelyard" carries {overloaded: true, reason: "..."}, for
// access logs and for whoever looks at Envoy's config dump. It is only there
// when the flag is up, and small: Envoy updates the metadata of a host in place
// and keeps its connections, but compares it on every update.
//
// # Localities
//
// Endpoints are grouped by zone, in the order of the zone's name and then of the
// address, whatever the order of the decision. Each locality carries a weight in
// proportion to its endpoints' weights: Envoy ignores it unless the cluster asks for
// locality-weighted balancing, and then a locality without a weight would
// get no traffic at all. Moving an endpoint to another zone costs its connections.
//
// # Drops
//
// A drop fraction above zero becomes policy.drop_overloads with exactly one
// category, because Envoy refuses two, in millionths. Envoy acknowledges a change
// of drop_overloads and does nothing about it unless a weight changes in the same
// message; Options.Previous makes sure that one does, even where the dither
// happened to draw the same numbers again.
//
// # Staleness
//
// Options.EndpointStaleAfter sets policy.endpoint_stale_after: Envoy drops the
// endpoints when no assignment came for so long. That is only safe where a
// fallback stands behind the cluster, so it is off unless asked for.
// weighted_priority_health stays at Envoy's default, off: it would mix load into
// health. overprovisioning_factor does not: with Envoy's 140 %, one flagged
// endpoint of three still gets 7 % of the requests, whatever it weighs.
package assignment
