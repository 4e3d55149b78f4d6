// Package weighting turns reports of load into the shares of traffic that the
// endpoints of one cluster should get, and says how it came to them.
//
// It is pure: [Law.Step] takes the time and the reports and returns a
// [Decision] with its working. There is no clock, no I/O, no log and no metric
// in here, so every behaviour can be replayed and every bug can become a test.
// It knows nothing of Envoy: package xds/assignment turns shares into EDS
// weights. The loop in package controlplane is its only caller.
//
// # The law: load interpretation
//
// A decision acts from the push until the next push, and the requests that
// follow it change the very loads it was made from. Sending all of them to the
// endpoint that looked idle is worse than knowing nothing. So the law decides
// for a batch: the requests that will arrive before the proxies hear from us
// again.
//
//	H       horizon, seconds:        median age of the loads + half their interval + push delay + push period
//	A       arrivals, requests:      max(1, arrival rate · H)
//	s_i     slots:                   slots · ramp
//	c_i     capacity, slots:         s_i · relative speed
//	n_i     load, requests:          waiting + running at endpoint i
//	V_i(L)  contents, requests:      what endpoint i holds when filled to level L
//	L       water level:             the solution of Σ max(0, V_i(L) − n_i) = A
//	w_i     part of the water:       max(0, V_i(L) − n_i) / A
//	        share of the traffic:    Floor·c_i / Σ c + (1 − Floor)·w_i
//
// Where all are of one speed, V_i is c_i·L, the level of an endpoint is its load
// for each slot, and the water max(0, L − n_i/c_i)·c_i. Where they are not, an
// endpoint is s_i wide for its first s_i − 1 requests, for while a slot is free
// nobody waits, be it a fast or a slow one; above that it is c_i wide, for who
// waits there waits for a slot by the endpoint's pace. (Were it c_i wide from the
// bottom, slots of slow endpoints would idle while requests queue at fast ones.)
//
// Filling A requests into the least loaded endpoints up to a common level L is
// what one queue that sees everything would do with them. A short horizon sends
// everything to the least loaded, ties shared; a long one ends at the capacity
// shares, proportional to c_i. Nothing is tuned by hand. The law is that of
// M. Dahlin, "Interpreting Stale Load Information" (IEEE TPDS 11(10), 2000), for
// unequal capacities; the question is M. Mitzenmacher's, "How Useful Is Old
// Information?" (PODC 1997). A is at least one, because there is always the next
// request.
//
// Half of the interval at which the loads are read is part of the horizon, because
// they are read at different times and that much is, on average, still to pass
// until the next reading; where changes are reported as they happen the interval
// is none.
//
// The floor keeps every endpoint reachable, so that it goes on being observed. It
// is never less than a millionth.
//
// # Two kinds of signal, one load
//
// What a server says of itself (queue + running) is true and late, and counts
// all traffic. What the proxies have in flight is early, drifts when an end is
// lost, and counts only proxied traffic. They are kept apart and reconciled by
// one rule. Whenever a scrape arrives, it is paired with the in-flight count of
// the same moment, and the difference is smoothed (time constant 2 s):
//
//	u_i ← smooth(scraped − in-flight at the time of the scrape)
//	n_i = max(0, in-flight now + u_i)
//
// A positive u_i is traffic that bypasses the proxies; a negative one is a count
// that has leaked. A difference of up to half a request is the noise of two
// clocks and counts as none, one of a request or more counts in full, and what is
// between in proportion. It fades as the scrape that it came from grows stale. A
// difference that leaps by more than the slots is no noise and counts at once; a
// count that falls by dozens between two readings was rewritten, and the scrape is
// used alone until the two are paired again.
//
// While only one of the two signals is usable (fresh or held), it is used alone;
// while neither is, the younger one fades. A server that tells only one of queue
// and running cannot be compared: its in-flight count goes before it.
//
// A server that exports no gauge of running requests (Triton) has a full set of
// slots while anything waits; otherwise its mean number executing over about a
// minute, from the differences of its counter of busy time, stands in. Then it
// is no measure to correct another by: while nothing waits, an in-flight count
// is corrected only as far as it takes to lie between none and a full set.
//
// # Staleness is a state, for each field by its own clock
//
//	age ≤ Fresh   fresh    used as it is
//	age ≤ Hold    hold     used as it is, and shown as late
//	age ≤ Decay   decay    blended linearly into the pool's median of that field
//	older         neutral  the pool's median stands in
//
// An endpoint whose metrics died must neither look idle, as it may have looked
// last, nor saturated, for that would halt a pool whose metrics failed as one.
// The median is that of the levels (above) of the fresh and held loads, turned
// back into what an endpoint of this one's size and speed would report there; if
// a whole source is away, that of the fading ones, so that the pool meets in its
// own middle. A field that an endpoint never reported is unknown and not zero:
// where others of the pool report it, the median stands in and the load counts as
// neutral; where nobody does, it is no part of any load. With no field at all the pool's median level stands in,
// and where there is none, a level of 1, from which all fill by capacity.
//
// A value that is negative or not finite is no reading, and neither is one from
// more than a second ahead of the loop's clock.
//
// A refused connection is no late report: the process that reported is gone, and
// its last report with it. Its fields are neutral at once, it does not count as
// idle because nothing is in flight there, and no requests are taken to arrive
// there; unless more than half of the pool refuses, for then the fault is more
// likely on the way. A restart keeps what was learned of the machine, and forgets
// what the process did.
//
// # Capacity
//
// Slots are configured, or learned: the number running while others wait, by the
// gauge or else by the counter of busy time. Endpoints of which neither is known
// are taken for the same: for the median of the known ones, and no fewer than the
// most that any of them was seen to run at once. Relative speed is the ratio of an
// endpoint's completions per busy slot-second to the pool's median, measured over
// about a minute. A deviation x (of the
// logarithm) is shrunk by max(0, 1 − 4σ²/x²) with σ² = 1/completions: within
// twice its own noise it counts as none (positive-part James–Stein).
//
// # Arrival rate
//
// Requests that arrived at an endpoint between two scrapes: completions plus the
// growth of queue + running, exactly. Without a counter of completions, the rises
// of queue + running, or those of the in-flight count: both only miss requests, so
// the larger counts, for too high a rate spreads the traffic more than needed, and
// too low a one bunches it. Smoothed with a time constant of
// 3 s and summed over the endpoints; endpoints without a rate count as the mean
// of the others. If nothing has a rate yet, one request for each endpoint is taken
// for the arrivals of the horizon: a guess by the slots would be a flood where they
// are many, and spread what a restart should leave alone.
//
// # New endpoints
//
// The endpoints of the first step are taken as they are: a control plane that
// restarts must not ramp a pool that serves. One that appears later is in
// blackout first (its own reports do not count yet, the median stands in), then
// its capacity ramps linearly from a tenth to the whole.
//
// # Overload
//
// An endpoint is overloaded when its queue per slot or its utilization reaches
// the enter threshold, and no longer when both are under their leave thresholds
// or unknown; each state, and a flag once raised, lasts at least MinDwell. At most
// MaxShare of a pool is flagged, those longest overloaded first, unless all of it
// is; this bound goes before the dwell.
package weighting
