// Package weighting turns reports of load into the shares of traffic that the
// endpoints of one cluster should get, and says how it came to them.
//
// It is pure: [Law.Step] takes the time and the reports and returns a
// [Decision] with its working. There is no clock, no I/O, no log and no metric
// in here, so every behaviour can be replayed and every bug can become a test.
// Package push, below this one, steps the law and decides what is pushed; it is the only caller.
// What becomes of a share on the wire is the matter of package xds.
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
// Slots are configured, or learned, or assumed. That requests wait is no proof that no
// more can run: an engine that batches continuously holds requests back at any number
// running, while the tokens of one iteration are spent or its KV cache is short. So slots
// are learned from a number that stands: for ten seconds more in which requests waited, as
// many ran as at any time of the last five to ten minutes, than in which fewer did, and as
// many requests as that ended meanwhile. One more running ends it, and it fades within ten
// minutes or so without a queue. Where no gauge tells what runs, it is the mean by the counter of
// busy time over ten seconds or more that began with a queue of half of what completes in
// one, or more; those of a pool are taken for alike where they are within a fifth of each
// other (by max(0, 1 − 0.2²/x²) of a deviation x of the logarithm), and fade as well.
// Endpoints of which neither is known are taken for the same: for the median of the known
// ones, and no fewer than the most that any of them ran at once in that time. Where slots
// are assumed and all are of one speed, the shares do not depend on how many they are.
//
// Relative speed is the ratio of an endpoint's completions per busy slot-second to the
// pool's median, measured over about a minute. A deviation x (of the logarithm) is shrunk by max(0, 1 − 4σ²/x²) with σ² = 1/completions: within
// twice its own noise it counts as none (positive-part James–Stein).
//
// A speed is believed for as long as it is supported. While nothing completes it fades to 1
// within a minute. It is learned by spans: of 5 s to a minute, until 20 requests were completed or
// expected. With n completions in a span and e expected at the speed that is known, a span with
// 2·(e − n + n·ln(n/e)) > 36 does not count: were completions a Poisson process, that would be
// six standard deviations, and most services come to three. If the next span says the same, what was known
// is forgotten; and it never weighs more than four minutes like the span that is added. So a
// counter that was wrong once teaches nothing, and one that was wrong for long is forgotten after
// two spans.
//
// A sum of requests, or of their seconds, that rises by more than a million a second, beyond a
// first million, is no reading: no model server does that, however small its requests are. What runs in the
// mean, by the counter of busy time, is no more than the slots, with three requests in each
// that ran before.
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
// # Endpoints that the proxies do not use
//
// Proxies have health checks and outlier detection of their own. An endpoint that they ejected
// gets nothing whatever its share, looks idle, and would be given most of what comes; how the
// others share that would be left to the floor. That it is not used shows in the requests that
// went elsewhere: by a share of w, held for a second at least, each of n would have come with the
// probability w, so that none did has the probability (1 − w)ⁿ, at most exp(−w·n). Where w·n is
// 9.2 (1e-4), and the first was due more than two seconds before the last reading of what arrived
// (by the proxies, or else by completions and growth), the others are filled with all that
// comes, and the endpoint has its part of the capacity for a share: the proxies that do not use
// it split that among the others, and the first request that comes ends it.
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
// An endpoint is overloaded when its queue per slot, its utilization or (if asked
// for) its mean queue time reaches the enter threshold, and no longer when all are
// under their leave thresholds or unknown; each state, and a flag once raised, lasts
// at least MinDwell. A queue that drains within the dwell raises none, and a mean
// queue time counts for as long as completions are news. At most MaxShare of a pool
// is flagged, those that stall or fail before others and then those longest
// overloaded, unless all of it is; this bound goes before the dwell.
//
// Proxies send nothing to flagged endpoints while a tenth of the pool has no flag.
// That is waste when the others are full: so flags for overload are lifted while of
// the endpoints that are not overloaded none has a free slot and their queues are at
// QueueLeave, and put back when these are half as deep. So are they where there is no such
// endpoint but some that the proxies do not use, or that are gone. Lifted, an endpoint that was
// flagged for its queue is filled like the others, which are as full by then; one
// short of memory or slow gets a trickle, a twentieth of its part of the capacity.
//
// # Endpoints that stall or fail
//
// An endpoint that takes requests and answers none, or answers each at once with an
// error, looks idle, and attracts what the others would have served. Its own report
// does not tell; what the proxies count does, where the count is exact:
//
//	work            an answer; or completions, or seconds waited or executed, that rose; or a
//	                KV cache that changed while as many were waiting and running
//	contradiction   two requests or more have stood in flight for StalledAfter which a report
//	                made after that time does not show (without a gauge of running requests:
//	                more than waiting and slots), besides those that the endpoint did not
//	                show before its last work, and there was no work in that time
//	silence         F ≥ 9.2 · f, F ≥ 2 · F_max and t ≥ 3 · f and t ≥ StalledAfter, and no work
//	                in StalledAfter, and two requests are in flight or a gauge shows one
//	                t    seconds since the last answer
//	                F    request-seconds in flight since the last answer, but for requests that
//	                     no report showed while the endpoint worked
//	                f    request-seconds in flight for each answer, over about a minute
//	                F_max  the largest F that ended with an answer, in the pool, fading
//	                     within ten minutes
//	failure         five requests in a row failed; or at least half, and five, of the
//	                last fifty or those of the last ten seconds, whichever are fewer, and
//	                of those that ended last;
//	                and that is no chance where the others fail their median share q:
//	                q to the power of those in a row is 1e-4 at most, or the failures
//	                are 3.7 standard deviations more than q of the requests
//	errors          since they began, and while it answers less than half of what the others
//	                would: c(S) ≥ 9.2 − 3·ln(o), and c(R) at least half of that, where
//	                c(E) = E − a − a·ln(E/a), for E above a
//	                a    requests that it answered without an error, or began to serve
//	                o    the share that the others answered so
//	                R    o times its own requests
//	                S    its share of the traffic times the answers of the pool, summed over
//	                     the time
//
// Were ends a Poisson process, silence of F would have the probability exp(−F/f):
// 9.2 is 1e-4. Requests that began together end together, and long ones come in
// runs, so F must also be twice as long as any silence that ended well, and t three
// mean times in flight: a few long generations are never silent for too long.
//
// A slow upload, an idle WebSocket and an open gRPC stream are in flight and are no work of the
// engine, and gauges lag by an iteration: so one request that no gauge shows is never evidence,
// several are none if they were there while the endpoint worked, and none is before it is older
// than a gauge may be. What cannot be told from a stall are several that begin within
// StalledAfter of each other at an endpoint that has no other work.
//
// A failure is the endpoint's own: no connection, a reset, a 5xx. Any other error (404,
// 424, 429 or another 4xx, a gRPC status) may be the request's: its client asks for a
// model that nobody has, or for more than its quota. So an error is held against an
// endpoint only where others would have answered, and it neither ends nor lengthens a
// row of failures. Where E answers are expected of a Poisson process, as few as a have
// a probability of exp(−c(E)) at most (Chernoff). That of R is right if requests are sent
// without regard to what is wrong with them; but bad ones come in bursts, to the endpoint
// that is the emptiest, or one client's all to one endpoint. So S goes before it: bad
// requests come on top of those that the pool answers, of which an endpoint gets its share all
// the same. R alone keeps an endpoint from owing answers to requests that it was not sent;
// half is five errors, for a proxy may eject it after them. An engine that is full, and
// answers what it has no room for at once with an error, looks emptier than the others,
// gets more than it answers, and is found by that; where all are full, none is. The
// threshold rises with −ln(o) because chance makes more such streaks where all answer many
// requests with errors. What cannot be told from an endpoint that fails: one to which
// nobody but such a client sends; and, for seconds, any one that such a client keeps busy
// while all others stop sending at once and their long requests are still being answered.
//
// Such an endpoint is flagged and gets its floor, for MinDwell at least. An answer
// without an error ends it; where proxies send load reports only, which take a 4xx for
// a success, the server must have completed something, too, and one that fell ill for
// errors gets a trickle until then. If nothing is in flight any more that could be
// answered, it is tried after the dwell with the trust of a new one, and if requests stand
// there, later; they do not count again. If it falls ill again at once (half of the
// threshold of S is enough then), it is tried twice as late the next time. If more than
// half of a pool seems ill, the fault is more likely in the reports or in the requests, and
// no endpoint is; nor while none is well. That holds for MinDwell at least, and until fewer
// fail half of their requests.
//
// # Shedding
//
// Requests that wait for longer than anybody wants the answer cost capacity and help
// nobody. So a saturated pool refuses a share of them, such that the wait of the
// others goes to a target. The target, the queue delay by Little's law from queue
// and departure rate, and the allowance for bursts (nothing is refused before half of
// the target is reached) are those of PIE (RFC 8033); that one must tell a queue that
// stands from one that serves a burst is the point of CoDel (RFC 8289). Unlike a
// router, the law may go by what is offered, because what it refused is known:
//
//	w   expected wait, seconds    Q / μ (Little): requests waiting in the pool over its
//	                              completions per second while no slot is free
//	λ   offered, per second       arrivals / seconds of the share that was accepted then
//	w*  aim, seconds              below: TargetWait where there is room for it
//	T   time constant, seconds    max(w*, 4·H), and once settled min(800/μ, 8·w*, μ·w*²/4) if
//	                              that is longer
//	x   = max(0, ln(λ/μ) + (w − w*) / T)
//	    share to refuse           min(1 − exp(−x), MaxDrop)
//
// ln(λ/μ) is the feed-forward: that share alone would keep the queue as it is. The
// second term fills or drains the queue within T. While the pool is saturated w
// grows by (accepted/μ − 1) a second, so the loop is w' = −(w − w*)/T near the aim
// whatever λ and μ are: of first order, without overshoot while T is well above the
// delay in it, which is H. There is no integral that could wind up: λ is estimated
// from what still arrives at the share refused now, and therein lies the integration
// (a rate that is told too high by a tenth, or proxies that do not obey, are made
// up for, because a share that leaves the queue growing shows a larger λ). λ and μ
// come from one source each step, the proxies or else the servers, so that traffic
// that one of them does not see is missing on both sides. Where nobody
// counts, what leaves is told from the falls of the loads between two readings.
//
// # How short an aim the spread asks for
//
// What is held is the mean; what people mind is the wait of single requests. At most
// one in a hundred of the accepted is to wait for longer than t, twice the target. An
// endpoint takes a request from its queue each 1/μ_i seconds. Where services are
// exponential, or the slots are several, the number that it takes within t is Poisson,
// of mean m = t·μ_i, and who is number k waits for longer than t if fewer than k are
// taken (the duality of Erlang's distribution and Poisson's). So k may be
//
//	k = m − z·√m + (z² − 1)/6
//
// the quantile of that number by its first three cumulants, which are all m (Cornish
// and Fisher, 1938). z is 2.5, one in 160, because what is held is an estimate. To
// the variance comes what moves the queue itself: arrivals and ends at the endpoint,
// unseen for a horizon, and the wandering of the pool's mean (below). In seconds:
//
//	t   = 2·TargetWait
//	w*  = min(TargetWait, t − z·√((t + 2·H)/μ_i + T/μ) + (z² − 1)/(6·μ_i))
//	    no less than √(1/μ_i² + 8·H/μ_i)
//
// The least is one request waiting at each endpoint, and what outlasts, by two standard
// deviations, that which comes and goes there within a horizon. With less, slots would
// fall idle, unseen, while requests are refused: goodput goes before the wait. There is
// room for both where TargetWait is four times 1/μ_i and the loads are fresh: four
// services in front of one slot, one service in front of four. From about a dozen on w*
// is the target itself.
//
// # Why the share hardly turns
//
// Arrivals and ends are random, and w follows them as a random walk whose variance
// grows by 2/μ a second. To hold it, the mean of (w − w*)·x must be 1/μ; so a law that
// holds w to a standard deviation of d moves x by 1/(μ·d) at least (Cauchy and
// Schwarz), and the linear one does not move it by more: √(T/μ) is that of w, and
// 1/√(μ·T) that of x. A short T buys unrest. T is what 800 requests take, which moves
// x by 0.035, unless w would then wander by more than half of w*. After a change, and
// until w is within a quarter of w*, T is short.
//
// A rate that is to be at rest stands on many requests, and one that is to follow a
// crowd on few. So λ and μ stand on 2,000 requests (within 15 s to 60 s), until the
// last hundred (λ: 1 s to 5 s, μ: 4 s to 20 s of saturation) are off by four standard
// deviations, 0.28 of the logarithm; then they begin anew with the last ten.
//
// Nothing is refused while a slot is free: not for the moment until the next request
// takes it, but if it stays free for a horizon and the time in which as many requests
// arrive as there are slots, at most half a second; twice that if others wait. What is offered is then learned
// from the last hundred requests on. (Of a server that does not tell what it executes: if
// nothing has waited there for the time of a service.) Slots of endpoints that stall
// or fail, or that the proxies do not use, are no capacity. Those of an endpoint that is flagged while others are not, is slow or
// gets a trickle are not free, whatever it leaves of them, for nothing is sent there to take
// them; of a new one as many are as it is trusted with.
//
// Each change is a push. So the share moves by steps: by 2.5 % of what is accepted
// once that has been asked for a second, by 15 % at once; and down by MaxDrop in ten
// seconds at most, unless a slot is free.
package weighting
