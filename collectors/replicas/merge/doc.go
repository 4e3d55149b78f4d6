// Package merge adds up what several replicas count. It is pure: messages and times in, counts out, without network,
// clock or lock. Package collectors/replicas carries the messages.
//
// # Counts
//
// Each replica follows the requests of the Envoys that are connected to it, and publishes for each endpoint its number
// in flight and its sums. One replica writes a counter, and all others read it, so nothing has to be agreed on. What
// [Peers.Merge] returns of an endpoint is
//
//	in flight   own + Σ of the live replicas + Σ of what is left of those that are gone
//	sums        own + Σ of what the others' sums rose by since they were first heard of
//
// A message has absolute values, so that one that is lost, doubled or late changes nothing for long: of one replica the
// largest sequence number counts, the next message of an endpoint has what the lost one had, and every endpoint is
// repeated once a second. The first value of a sum is where it is followed from. It begins again there when its replica
// was gone in between; when it falls, the endpoint left that replica and came back, and all of it is new.
//
// # A replica that is gone
//
// One that is silent for [Silence], hung or dead, is gone. Its requests are still at the servers, and its Envoys
// connect to the other replicas, which learn of these requests with the first load report of each Envoy. Until then
//
//	x · e^(−t/T) · (1 − r)    of x requests in flight count, t after it was gone, for [Fade] at most
//
//	T   the time that a request takes there: requests in flight for each that ended per second, 10 s at most
//	r   Envoys with load reports that the other replicas have gained since, to those that it had, 0 to 1
//
// Where the server reports its requests since, they are known better: then T is 10 s, and no more count than the server
// has beyond those that the others have there. Such a count is an estimate, so it is not exact, and partial
// (weighting.Endpoint.Exact, ProxyReport.Partial): the law corrects it by the scrapes and takes no stall from it.
//
// # While Redis is cut
//
// A replica hears its own messages, too. Without them for [Silence] the way through Redis is cut, and nothing is
// known of the others: they are unreachable, not gone. All counts are partial until the way is back.
//
// Times are those of receipt here, so the clocks of the replicas do not matter. A replica that was stopped itself
// (SIGSTOP, a pause of the machine) judges nobody by that time.
//
// # Scrapes
//
// An endpoint is scraped by the live replica with the highest hash of itself and the endpoint ([Peers.Mine]), and by
// any that has no report of it: because its list is longer than the other's, or its configuration newer. [Server]
// joins the reports of a server that two replicas scrape one after the other: the counters of each begin with the
// whole value, so the sums go on where they were.
//
// # Bounds
//
// Only endpoints that are configured here are kept (SetMembers), of [MaxReplicas] others.
package merge
