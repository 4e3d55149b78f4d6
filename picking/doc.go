// Package picking chooses an endpoint for one request, from the loads of all endpoints that the control plane streams.
// It is for proxies that ask for each request (the module in Envoy, or steelyard picker); the others follow the
// weights, which come from the same loads.
//
// It is pure: [Picker.Choose] takes the time and a random number, and returns a [Choice] with its reason. It neither
// reads requests nor knows how loads arrive: envoy-module and cmd/internal/picker do the one, xds/loads/follow the
// other.
//
// # The choice
//
// A choice of the least loaded endpoint would send all pickers to the same one until the next update. So a choice is
// drawn by the fill of the law (package weighting), for the few requests that arrive until then:
//
//	n_i   load of endpoint i         as it was read, plus this picker's own choices since, less what ended (below)
//	A     arrivals, requests         max(1, rate of the others · (time since the update + max(Lag, 2·their age)))
//	p_i   chance of endpoint i       max(0, V_i(L) − n_i) / A, with the level L of the fill
//
// The rate of the others is the arrival rate of the cluster without this picker's own, a mean over about a second: what
// they have sent since the loads were as the update has them, [Lag] before it came, is not in the loads. Loads that are
// scraped are older, each as its endpoint was read, and what others send now shows in the next scrape: twice their mean
// age is the time from one to the next.
//
// An own choice counts at once. It counts until the load of its endpoint was read after it, and the request had reached
// the endpoint: the proxy reports it then, and the control plane sends an update some milliseconds later, [Settle] in
// all. Endpoints that are flagged take part only where all are.
//
// Own choices that count for longer than that, because loads are old, would add up while requests also end. Of those
// that are executed, as many end as this picker begins:
//
//	dn_i/dt = −own rate · v_i·min(n_i, s_i) / (1 + Σ v_j·min(n_j, s_j))    v speed, s slots; Σ of the last update
//
// What ends besides is made up for by what the others send.
//
// The unit of load is the control plane's: requests, or the work of a mean request. A [Cost] turns the size of a
// request into that unit.
//
// # What is cached
//
// Package prefix finds endpoints that have a part of a prompt in their prefix cache. There, a request costs less:
//
//	cost   = base + (mean cost − base) / (1 − share of all prompts that is cached)   without a cache
//	cost_i = base + (cost − base) · (1 − share of the prompt cached at i)
//	n_i'   = n_i + cost_i − min cost
//	A      = max(min cost − (cost − min cost), rate of the others · time, as above)
//
// So the level compares what a request would wait for and add: an endpoint that has the prompt is chosen while its
// queue is shorter than what the cache saves, and not longer. Where a request is the unit of load, a cache changes
// nothing.
// A Key takes the place of chance, so that what no picker has learned yet gathers where it will be cached.
//
// # The longest match
//
// With [Update.LongestMatch], an endpoint with the most of the prompt in its cache is chosen instead, unless its load
// per slot is above twice the median: then the least loaded one. That is the published rule for routers that learn
// prefixes, for comparison: it takes neither the size of a request nor what the cache saves into account.
//
// # What is not in a request
//
// Class and tenant decide when a request may go, and not where: package queue has them.
//
// # By the weights
//
// Without an update for [Stale], for an unknown cluster, or with a subset that names no known endpoint, there is no
// choice: the proxy goes by its weights.
package picking
