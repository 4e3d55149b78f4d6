// Package weighting decides how the traffic of one cluster is shared among its endpoints. From reports of their load
// it computes shares, overload flags and the fraction of requests to refuse, and returns the working with them.
//
// It is pure: [Law.Step] takes the time and a [Snapshot] and returns a [Decision], so every behaviour can be replayed
// and every bug can become a test. Package push, its only caller besides tests, decides what is pushed.
//
// # The fill
//
// A decision is in force from one push to the next, and the requests that follow it change the loads that it was made
// from. Sending all of them to the endpoint that looked idle is worse than knowing nothing. So the law decides for a
// batch: the requests that arrive until the proxies get the next decision. It fills them into the least loaded
// endpoints up to a common level, as one queue in front of all of them would.
//
//	H       horizon, seconds       lag + age of the loads + half their interval + push delay + push period (below)
//	A       arrivals, requests     max(1, arrival rate · H, A_b)
//	A_b     together, requests     Σ n·(n−1) / Σ n, n the arrivals within 20 to 200 ms, fading in 30 s (bursts.go)
//	s_i     slots, requests        slots · ramp
//	c_i     capacity, requests     s_i · relative speed
//	f_i     full, requests         max(0, s_i − 1): the load at which one more request takes the last slot
//	n_i     load, requests         waiting + running at endpoint i; or its work, in mean requests (below)
//	V_i(L)  contents, requests     min(s_i·L, f_i) + c_i·max(0, L − f_i/s_i): what it holds when filled to level L
//	L       water level            the solution of Σ max(0, V_i(L) − n_i) = A
//	p_i     share of the traffic   Floor·c_i/Σ c + (1 − Floor)·max(0, V_i(L) − n_i)/A
//
// Where all endpoints have one speed, V_i is c_i·L and the level is the load per slot. Where they differ, slots count
// equally until the last one is taken, because no request waits while a slot is free. Above that the speed counts,
// because a request waits for as long as the endpoint takes to end another one. A short horizon sends everything to the
// least loaded endpoints, a long one ends at the capacity shares. The floor, a millionth at least, keeps each observed.
//
// The law is that of M. Dahlin, "Interpreting Stale Load Information" (IEEE TPDS 11(10), 2000), for unequal
// capacities; the question is M. Mitzenmacher's, "How Useful Is Old Information?" (PODC 1997).
//
// # The horizon
//
// Requests that arrive together, as those of a client that fans out, come faster than any decision: they are spread as
// A_b where proxies count them or work is the unit. Where they are independent of one another it is arrival rate · H.
//
// The lag is how late reports are besides their age. No timestamp shows it, but what arrives at an endpoint follows the
// share that it had: the law compares the arrivals with its own decisions (package lag).
//
// Where no slots are known, or hardly ever all taken, and where work is the unit, the law assumes that endpoints batch
// continuously. What keeps a request waiting is then the prompts that began just before, and the number of requests
// says little about those. While fewer requests arrive within H than two fifths of the endpoints, the loads show most
// of them, and H is as above, with two scrape intervals at least where only scrapes count. From four fifths on they
// show none, and H is x·Σ r_i / arrival rate, with r_i the requests in flight: x times the mean time that a request
// stays; between the two it is interpolated. Both limits are three times as high where proxies report the prompts.
//
//	x       2 where proxies count requests or reports are late, otherwise 1; but 0.2 where engines count tokens, which
//	        show the prompts of the interval before
//
// # Load where the request is the unit: two signals, one load
//
// The server's gauges (queue + running) are true, late, and count all traffic. The proxies' in-flight counts are early,
// drift when the end of a request is lost, and count proxied traffic only. Each scrape is paired with the in-flight
// count of the same moment, and their difference u_i is smoothed (time constant 2 s):
//
//	u_i ← smooth(scraped − in flight at the time of the scrape)
//	n_i = max(0, in flight now + u_i)
//
// A positive u_i is traffic that bypasses the proxies, a negative one a count that leaked. While only one signal is
// usable, it is used as it is (load.go, pairing.go).
//
// # Load where work is the unit
//
// On an engine that batches continuously, a request in its prefill weighs more than one that decodes. Where more than
// half of a pool counts its tokens, the load of an endpoint is the work it has left, in mean requests:
//
//	n_i = (P_i + r_i·D) / (P + D)
//	P_i     prompt tokens outstanding   of the requests that began, less what was computed since; cached ones are free
//	r_i     requests in flight          as in the section above
//	P       prompt tokens               computed for a mean request
//	D       decode, in prompt tokens    1.5 · output tokens of a mean request / 2, as a request in flight is halfway;
//	                                    at most (P + 200) / 6, a sixth of a prompt and its iteration (prompts.go)
//	c_i     capacity                    ramp · relative speed; configured slots are a ratio of speeds here
//	H       horizon, seconds            where proxies do not count requests, with two scrape intervals in place of
//	                                    half of one and of the age of the loads
//
// P_i rises with each request by its guessed prompt and drains at the engine's prefill rate; where requests are only
// expected, at P_i / (P_i + P/4) of it, as none may be there. An engine that holds requests back drains only as fast
// as it was seen to. Each scrape bounds P_i: engines take requests in order, so the requests that wait are the last
// that began, and outstanding in full; and those without a first token are the last that began, which bounds P_i from
// above (outstanding.go). What is learned of the cluster, from the counters of [TokenCounts] and the sizes
// (content-length) of [ProxyReport], fades with a time constant of a minute; tokens per byte, where many requests
// come, with that in which 350 do, seven seconds at least:
//
//	prompt of a request     bytes · tokens per byte, at most what one engine counted between two readings in the
//	                        last minutes; P without a size, or while guesses by size are worse than P by more
//	                        than a quarter (prompts.go); 0 once it is refused (4xx)
//	tokens per byte         computed tokens to bytes, ratio of the sums, of comparisons of two requests or more whose
//	                        prompts, cached or not, are within a factor of 4 of that ratio (learnSizes in engine.go,
//	                        prompts.go)
//	prefill rate            least squares of prompt tokens = rate·seconds − a·iterations − b·output tokens, over whole
//	                        iterations of an engine that was busy (efficiency.go, addBusy in engine.go)
//	relative speed          seconds by that formula / seconds taken, against the pool's median; deviations of 5 % are
//	                        noise (work.go)
//
// Otherwise, and until ten requests are known, the request is the unit.
//
// # Staleness is a state, for each field by its own clock
//
//	age ≤ Fresh   fresh    used as it is
//	age ≤ Hold    hold     used as it is, and shown as late
//	age ≤ Decay   decay    a load is blended linearly into the pool's median level
//	older         neutral  that median stands in
//	never read    unknown  not zero: where others report the field, the median stands in (field.go)
//	stands still  stuck    as unknown: a queue, while requests run and end (field.go); a whole report (health)
//
// # What else there is
//
//	law.go     one step, as stages          memory.go    what is remembered of an endpoint
//	passed.go  what happened since          verdict.go   what is shown of it
//	pool.go    slots, blackout and ramp     slots.go, speed.go, rates.go   how these are learned
//	load.go    one load of two signals      pairing.go   pairing the two signals
//	sample.go  what package health is shown, of endpoints that stall, fail or sleep
//	horizon.go the forecast; what package lag is shown, of how late reports are
//	shed.go    what package shed is shown, which refuses requests in a saturated pool
//	shares.go  all shares; override.go: those that an operator decides; latency.go: another law
//	fill.go    the fill; gain.go: its gain  overload.go  the overload flag
package weighting
