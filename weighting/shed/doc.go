// Package shed decides what share of its requests a saturated pool refuses, to keep the wait of the others at a target.
//
// It is pure: [Controller.Step] takes the time and a [Pool], and returns the share. Its only caller is package
// weighting, which knows which slots are free and which endpoints are used.
//
// Requests that wait for longer than their clients want the answer cost capacity and help nobody. The target, the queue
// delay by Little's law from queue and departure rate, and the allowance for bursts (nothing is refused before half of
// the target is reached) are those of PIE (RFC 8033); that one must distinguish a queue that stands from one that
// serves a burst is the point of CoDel (RFC 8289). Unlike a router, the law may go by what is offered, because it knows
// what it refused:
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
// ln(λ/μ) is the feed-forward: that share by itself would keep the queue as it is. The second term fills or drains the
// queue within T. While the pool is saturated w grows by (accepted/μ − 1) a second, so the loop is w' = −(w − w*)/T
// near the aim whatever λ and μ are: of first order, without overshoot while T is well above the delay in it, which is
// H. There is no integral that could wind up: λ is estimated from what still arrives at the share refused now, and
// therein lies the integration (a rate that is reported too high by a tenth, or proxies that do not obey, are made up
// for, because a share that leaves the queue growing shows a larger λ).
//
// # How short an aim the spread asks for
//
// The mean is controlled; clients notice the wait of single requests. At most one in a hundred of the accepted should
// wait for longer than t, twice the target. An endpoint takes a request from its queue each 1/μ_i seconds. Where
// services are exponential, or the slots are several, the number that it takes within t is Poisson, of mean m = t·μ_i,
// and request number k waits for longer than t if fewer than k are taken (the duality of Erlang's distribution and
// Poisson's). So k may be
//
//	k = m − z·√m + (z² − 1)/6
//
// the quantile of that number by its first three cumulants, which are all m (Cornish and Fisher, 1938). z is 2.5, one
// in 160, because what is controlled is an estimate. To the variance comes what moves the queue itself: arrivals and
// ends at the endpoint, unseen for a horizon, and the wandering of the pool's mean (below). In seconds:
//
//	t   = 2·TargetWait
//	w*  = min(TargetWait, t − z·√((t + 2·H)/μ_i + T/μ) + (z² − 1)/(6·μ_i))
//	    no less than √(1/μ_i² + 8·H/μ_i)
//
// The least is one request waiting at each endpoint, and what outlasts, by two standard deviations, what comes and goes
// there within a horizon. With less, slots would be idle, unseen, while requests are refused: goodput is more important
// than the wait. There is room for both where TargetWait is four times 1/μ_i and the loads are fresh: four services in
// front of one slot, one service in front of four. From about a dozen on w* is the target itself.
//
// # Why the drop fraction hardly moves
//
// Arrivals and ends are random, and w follows them as a random walk whose variance grows by 2/μ a second. To hold it,
// the mean of (w − w*)·x must be 1/μ; so a law that holds w to a standard deviation of d moves x by 1/(μ·d) at least
// (Cauchy and Schwarz), and the linear one does not move it by more: √(T/μ) is that of w, and 1/√(μ·T) that of x. A
// short T costs unrest. T is what 800 requests take, which moves x by 0.035, unless w would then wander by more than
// half of w*. After a change, and until w is within a quarter of w*, T is short.
//
// # When nothing is refused
//
// Nothing is refused while a slot is free: not for the moment until the next request takes it, but if it stays free for
// a horizon and the time in which as many requests arrive as there are slots, at most half a second; twice that if
// others wait. What is offered is then learned from the last hundred requests on. (Of a server that does not report
// what it executes: if nothing has waited there for the time of a service.) Slots of endpoints that stall or fail, or
// that the proxies do not use, are no capacity. Those of an endpoint that is flagged while others are not, or is slow,
// are not free, because nothing is sent there to take them; of a new one, as many are as it is trusted with.
//
// # The rates: requests offered, λ, and served, μ, per slot
//
// A rate that should be steady needs many requests, and one that should follow a crowd needs few. So λ and μ are made
// of 2,000 requests (within 15 s to 60 s), until the last hundred (λ: 1 s to 5 s, μ: 4 s to 20 s of saturation) are off
// by four standard deviations, 0.28 of the logarithm; then they start again from the last ten.
//
// λ and μ come from one source in each step, the proxies or otherwise the servers, so that traffic that one of them
// does not see is missing on both sides. Where neither counts requests, what leaves is estimated from the falls of the
// loads between two readings.
package shed
