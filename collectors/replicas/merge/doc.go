// Package merge adds up what several replicas count. It is pure: messages and times in, counts out, without network,
// clock or lock. Package collectors/replicas carries the messages.
//
// # Counts
//
// Each replica follows the requests of the Envoys that are connected to it, and publishes for each endpoint its number
// in flight and its sums. One replica writes a counter, and all others read it, so nothing has to be agreed on. What
// [Peers.Merge] returns of an endpoint is
//
//	in flight   own + Σ of the live replicas + Σ of what still counts of those that are gone
//	sums        own + Σ of what the others' sums rose by since their first message
//
// A message has absolute values, so that one that is lost, duplicated or late has no lasting effect: only a higher
// sequence number than before counts, the next message of an endpoint has what the lost one had, and every endpoint is
// repeated once a second. The first value of a sum is where counting starts. It starts again when its replica was gone
// in between; when a sum falls, the endpoint left that replica and came back, and the whole value is new.
//
// # A replica that is not heard
//
// A replica that has taken leave, or of which the caller knows that it does not run, is gone ([Peers.Gone]). One that
// is silent for [Silence] is unreachable: it hangs, its machine is dead, or the network between is cut. In all cases
// its requests are still at the servers, and its Envoys connect to the other replicas, which learn of these requests
// with the first load report of each Envoy. Until then
//
//	x · e^(−t/T) · (1 − r)    of x requests in flight count, t after it was last heard, for [Fade] at most
//
//	T   the time that a request takes there: requests in flight for each that ended per second, 10 s at most
//	r   Envoys with load reports that the other replicas have gained since, to those that it had, 0 to 1
//
// If the server reports its requests, more is known: then T is 10 s, and no more count than the server has beyond those
// that the others have there. Such a count is an estimate, so it is not exact, and partial (weighting.Endpoint.Exact,
// ProxyReport.Partial): the law corrects it by the scrapes and does not derive a stall from it.
//
// An unreachable replica may have Envoys whose requests nobody here knows. So all counts stay partial for as long as
// the caller says that there is one, or may be ([Peers.SetCut]).
//
// Messages have the time of their receipt here, so the clocks of the replicas do not matter. A replica that was stopped
// itself (SIGSTOP, a pause of the machine) regards no other as silent because of that time.
//
// # Envoys and routes
//
// A message may list the Envoys of its replica. While that one is gone or unreachable, nothing is known of them
// ([Peers.Envoys]). It may have routes that pickers have learned, which are only handed on ([Peers.Routes]). A replica
// that begins, or was cut off, asks one of the others for the routes that it keeps ([Peers.Wants]).
//
// # Bounds
//
// Only endpoints that are configured here are kept (SetMembers), of [MaxReplicas] others.
package merge
