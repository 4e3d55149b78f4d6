// Package health decides which endpoints of a pool get no requests for how they treat them: they stall, fail, sleep, or
// are not used by the proxies. It decides when an endpoint that gets little is tried, too.
//
// It is pure: [Pool.Step] takes the time and a [Sample] of each endpoint, and leaves a [Verdict] in its [Tracker]. Its
// only caller is package weighting. Small detectors look at the samples (stall.go, streak.go, use.go), each with a
// budget for false alarms, and one function moves the state (move in health.go).
//
// An endpoint that takes requests and answers none, or answers each at once with an error, looks idle and attracts what
// the others would have served. Its own report does not show that. The proxies' counts do, where they are exact.
//
// # States
//
//	healthy ── stalls or fails ──> ejected     flagged, with its floor, for the dwell at least
//	ejected ── an answer ────────> healthy     where proxies send load reports only, which count a 4xx as a success,
//	                                           the server must also have completed something
//	ejected ── after the dwell ──> probing     once nothing is in flight that could be answered; or when it is tried:
//	                                           old requests do not count again. It is trusted as little as a new one.
//	                                           Ejected again at once, it is probed twice as late the next time
//	probing ── an answer ────────> healthy
//	any     ── its engine sleeps ─> asleep ── awake ──> healthy
//
// While more than half of a pool seems to be outliers, the fault is more likely in the reports or in the requests, so
// no endpoint is ejected; nor while none is healthy. An outlier is then also one that fails no more than the others.
// This panic lasts for the dwell at least.
//
// # Stalls
//
//	progress       an answer; or completions, tokens, iterations, or seconds waited or executed, that rose; or a KV
//	               cache that changed while the numbers waiting and running did not
//	unanswered     requests in flight, without those that no report showed while the endpoint made progress
//	F              unanswered requests times seconds since the last answer; or, where tokens are counted, seconds
//	               since the last progress in which a gauge shows requests: an iteration ends when it ends,
//	               however many requests are in it
//	stall          F ≥ 9.2·f, and of requests F ≥ 2·F_max; and no progress for a time T; and two requests are
//	               unanswered or a gauge shows one
//	               f      F for each answer or progress, over about a minute, and twenty of them at least
//	               F_max  the largest F in the pool that ended with an answer, in the last minutes
//	contradiction  reports of a time T do not show two unanswered requests or more (without a gauge of running
//	               requests: show no more than waiting and slots), and no progress. A gauge that showed only 0 while
//	               requests completed is no evidence
//	T              StalledAfter; where tokens are counted, the larger of StalledAfter and P, plus half of P, or a
//	               quarter of StalledAfter if that is more: progress shows late, and until it does the gauges are
//	               those of the iteration before. P is the longest F in the last minutes that ended with progress,
//	               of the endpoint or of a typical one, 10 s at most
//
// If progress were a Poisson process, F would have the probability exp(−F/f): 9.2 is 1e-4. Requests that began together
// end together, and long ones come in runs, so F must also be twice as long as any that ended well.
//
// A time in which the law did not run, of more than two seconds and StalledAfter, is no evidence: all begins again.
//
// Slow uploads, idle WebSockets and open gRPC streams are in flight and are no work of the engine, and gauges lag by an
// iteration. So one request that no gauge shows is never evidence, and several are none if they were there while the
// endpoint made progress. Where an endpoint has nothing but uploads, a stall is one only once the bodies must have
// come, by their content-lengths, as long as they are fewer than five; one without a content-length may take an hour.
//
// # Failures and errors
//
// A failure is the endpoint's own: no connection, a reset, a 5xx. Any other error (404, 424, 429 or another 4xx, a gRPC
// status) may be the request's own: its client asks for a model that no server has, or for more than its quota. A
// streak begins with either, and lasts while the endpoint answers less than half of what the others would. In a streak
// it fails
//
//	by its failures   five, which the others fail so rarely that as few answers of n requests have a probability of
//	                  exp(−b) at most, b ≥ t
//	by its errors     c(S) ≥ t, and c(R) at least half of that
//
//	t    9.2 − 3·ln(o): the more errors the others have, too, the more streaks chance makes
//	o    the share that the others answered without an error, from the pool's last 200 requests before it on
//	b    n·KL(a/n, o), where both leave out the errors that may be the requests' own (Chernoff, binomial)
//	c(E) E − a − a·ln(E/a) for E above a: where E answers are expected of a Poisson process, as few as a have a
//	     probability of exp(−c(E)) at most (Chernoff)
//	a    requests that it answered without an error, or, for c, began to serve
//	R    o times its own requests
//	S    its share of the traffic times the answers of the pool, summed over the time
//
// The bound with R holds if requests are sent without regard to what is wrong with them. But bad ones come in bursts,
// to the endpoint that is the emptiest, or one client sends all of its own to one endpoint. So S is the first
// condition: bad requests come on top of those that the pool answers, of which an endpoint gets its share all the same.
// R only keeps an endpoint from being blamed for requests that it was not sent; half is five errors, because a proxy
// may eject the endpoint after them. An endpoint that is being probed needs half of the threshold of S.
//
// An engine that is full, and answers what it has no room for at once with an error, looks emptier than the others,
// gets more than it answers, and is found by that; where all are full, none is. Not to be distinguished from an
// endpoint that fails: one to which only such a client sends; and, for seconds, any one that such a client keeps busy
// while all others stop sending at once and their long requests are still being answered.
//
// # Endpoints that the proxies do not use
//
// Proxies have health checks and outlier detection of their own. An endpoint that they ejected gets nothing whatever
// its share, looks idle, and would be given most of the requests; how the others share those would be left to the
// floor. That it is not used shows in the requests that went elsewhere. With a share of w, in force for a second at
// least, each of n requests would have come with the probability w, so that none did has the probability (1 − w)ⁿ, at
// most exp(−w·n). Once w·n is 9.2 (1e-4), and the first was due more than two seconds before the last reading of what
// arrived (by the proxies, or otherwise by completions and growth), the others are filled with all that comes. The
// endpoint then has its part of the capacity as its share: the proxies that do not use it split that among the others,
// and the first request that comes ends it.
//
// Requests whose endpoint a hash chose, as far as the proxies report that, are not among the n. Where proxies choose by
// the conversation or the prompt otherwise, requests gather: for long none comes, and then many do. So w·n must also be
// half as much again as it was at a typical endpoint of the pool, at most, when a request came. If the endpoint was
// found not to be used before that, then as it was at that time: else a pool of two whose proxies eject one and then
// the other would learn that such gaps are usual.
//
// # Trials: no state without a way back
//
// What keeps requests away from an endpoint may end only by what they would show: a gauge that is wrong until the next
// request comes, an error that went away. So whatever the reason (a flag, an ejection, a load above the level), an
// endpoint that was given less than one request in half a minute, and by its part of the capacity would have got one,
// is tried: it has no flag, and a share that brings it one request in five seconds, until that has come or was due, or
// for half a minute. One that the proxies do not use has such a share all the time (use.go).
// Where nothing counts requests, the moves of the gauges miss most of them. Then time alone decides: one that had less
// than half of its part of the capacity for half a minute, and showed no rise, is tried for five seconds at most. Of
// its part it has half at most, so that a scrape shows the first request before there are many.
// Where that changes nothing, it is tried each minute. One that an operator keeps empty is not tried, nor is one that
// sleeps.
//
// A trial does not take the flag away where less than a tenth of the pool has none: the proxies send requests to
// flagged endpoints then, and all of them would go to one without a flag.
//
// # Reports that stand still
//
// An engine whose requests were all aborted can show its last gauges until it gets a request
// (github.com/vllm-project/vllm/issues/29928 and 22545). A report is doubted that claims requests or a full KV cache,
// of an endpoint that gets no requests and has none of the proxies in flight, once neither gauges nor counters have
// changed for Decay, and for twice as long as they did not in the last minutes before they did. The doubt is shown; it
// changes no share. An engine that hangs looks the same, and so does one that counts requests at their end, in long
// ones: a request shows which it is. When an access log has an answer without an error, and the report still stands
// still, it counts as stuck until it changes. Load reports count a 4xx as a success, which shows nothing.
package health
