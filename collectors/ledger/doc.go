// Package ledger counts the requests that are in flight from each Envoy to each
// endpoint, and sums of how they begin and end. It has two sources: Envoys' upstream access logs, which
// report each beginning and each end within milliseconds, and their load reports, which are up to a second old
// and true whatever was lost before.
//
// How one Envoy's requests at one endpoint are counted by these two is package weighting/flight: a pure
// Counter that takes one step for each event and report. This package has one for each Envoy and endpoint, and
// does what needs names and memory: which Envoy and endpoint an entry is of, which end belongs to which
// beginning, who may move the counts of a cluster, and what all of them add up to.
//
// collectors/accesslog and collectors/loadstats write; the loop of each cluster reads
// the sums over all Envoys, whenever it is woken because they changed. The ledger
// is pure but for its lock: time is an argument, and there is no goroutine.
//
// # Which Envoys count
//
// An Envoy is a node id at a remote IP, with the names in its certificate where there is one. Only Envoys that
// subscribe to a cluster (SetWatchers) move its counts, and only those of its endpoints (SetMembers): everything else
// that a stream reports is ignored, and counted as ignored. What an Envoy reports before it is known to subscribe is
// kept, and counts from then on.
//
// An endpoint may be in two clusters, and one Envoy use both. Then a request counts in the
// cluster that it went through. A load report names it by its name in EDS, an entry of the
// log by the Envoy's own name for it; what that stands for is learned from its reports, and
// without reports taken for the name in EDS, as in a bootstrap of Steelyard's. Where a name
// is none of the endpoint's clusters (a fallback that is no EDS cluster), the request counts
// in each: a load that nobody sees is worse than one that is seen twice. Where the endpoint
// is in one cluster, no name is needed.
//
// Counts belong to streams. A log stream that closes takes the requests that began over
// it with it; a report stream takes its gauges. An Envoy has many log streams,
// one for each worker and logger; an end may come over another than its
// beginning. Beginning and end are paired by request id and address as a multiset,
// because a request that is retried may come to one endpoint twice.
//
// When an Envoy stops batching its log, an end may overtake its beginning. So for three seconds
// ends without a beginning are remembered, and a beginning that comes later is not open. A refused connection
// ends without having begun, and changes no count.
//
// # Several processes with one node id
//
// Envoy's hot restart runs two processes with one node id for minutes, the old one with the requests that it still
// has and the new one with all others. Each has its own streams of both kinds. Package
// flight counts them together, exactly; EnvoyStatus.ReportStreams says how many there are. Several Envoys that
// share a node id and a certificate, or have none, behind one address look the same and are counted in the same way.
//
// A stream of load reports may also be left over from before its Envoy connected again. An older stream with
// nothing heard between the opening of a newer one and its first report, and for more than an interval, has been
// replaced by it. One that is silent for longer than an Envoy may be has ended. Either counts again when it
// reports again.
//
// # Which source counts
//
// An Envoy with a log stream is counted by its log, and its reports correct the count. One without, or in
// ModeReports, is counted by its reports. An Envoy that has load reports is never quiet: if nothing at all was
// heard of it for longer than max(3 s, 3 intervals), it is silent and counts no more until it is heard of.
//
// # As of when
//
// An Envoy's events are current; batched ones are as old as its last message, at most a
// second; reports as old as the last one. The sums of a cluster are as old as the
// mean of these ages, weighed by the Envoys' request rates: what a sum misses are the
// requests since, Σ rate · age. In-flight counts are Exact when every Envoy that
// is counted has load reports, so that no drift lasts.
//
// # Sums
//
// Issued, Ended, Failed, Errors, Succeeded, LatencySeconds, Answered, Sized and SizedBytes of an endpoint
// only ever rise, and start with its membership.
//
//   - Failed: no connection, reset by the endpoint, its connection lost, or a 5xx of its
//     own. Reports count Envoy's timeouts among them, so only a log shows it.
//   - Errors: of the others, those that ended in an error, be it the request's own: a 4xx, or a
//     gRPC status other than OK and CANCELLED. Succeeded: those that were answered without one.
//     From reports only: all errors that Envoy counts, and what it counts as a success, any
//     4xx among it. A report that covers the end of a log adds neither, because the log
//     showed the same requests. So no change of the mode counts an error twice, and for as long
//     as a change takes some may not be counted.
//   - Ended: a request that was closed without an end is remembered (the last 1024 of an Envoy), so that its
//     end, if it comes after all, does not count again.
//   - Answered, LatencySeconds: requests with a status and a last byte.
//     The time runs from the first byte sent to the last received, so a client that
//     went away or a timeout is no answer.
//   - Sized, SizedBytes: those of Issued whose size was in the log, and the sum of these sizes.
//
// # One against all
//
// Requests that only one Envoy reports do not count where the endpoint denies them and the requests of
// others contradict them. Served takes in each endpoint's own reports. With, over a row of them
// of which each has more than 8 requests fewer than are counted,
//
//	x, e    requests in flight from one Envoy, the least of the row; and its requests that ended
//	X, E    requests in flight from the others, in the mean; and theirs that ended, as far as
//	        the endpoint completed as many
//
// an Envoy is contradicted if the row is longer than 2.5 s and two and a half of its report intervals, E > 0, and
//
//	x > 8 + 2 · X · (e + 1) / E
//
// X/E is the time that a request takes there (Little), so that is as many requests as an
// Envoy with its ends has in flight if its requests take as long as the others'. Then its requests do not
// count at the endpoint until there is a report that does not deny. So these stay in the count: a gauge that
// lags by an iteration of up to two seconds (the row is too short), an endpoint that stalls, whole or in
// part (E = 0, or x is as large as X predicts), and all requests of an Envoy without another at the endpoint
// (E = 0). Envoys that have requests in flight and end none are no part of X; and ends that the endpoint did not
// complete are no part of E or e.
//
// Fewer requests steer traffic, too, where they are much for the endpoint. So a second row takes in reports that have
// more than T fewer: a quarter of the slots, at least 1; or, where these are unknown, as many as the endpoint reports,
// at least 2; at most 8. After 2.5 s it begins to compare, and 10 s later, once 8 requests of others have ended, the
// same test holds with T in the place of 8. Envoys without ends share the T of their host, and the hosts 8 at an
// endpoint. At most as much is contradicted as is denied, and no claim twice as large as that. So up to T slow uploads
// or idle streams of an Envoy stay in the count, however long, and unnamed: nothing tells one idle WebSocket from one
// request that is made up. More of them do not count after some 13 s, and their Envoy is named.
//
// Failures that an Envoy reports are not in the sum of Failed while most requests of this Envoy fail (none was
// answered, or the last three failed, or three and 30 % of its last 31) and hosts that are served by the endpoint are
// at least as many as hosts that fail, its own among them. A host is one witness, whatever the number of its Envoys:
// one program can connect under many node ids. It is served if one of its Envoys, other than the one in question and
// none to which most requests fail, had an answer within three times the longest gap between two answers there in the
// last minutes, 5 s to 2 min. If that answer is older than the failures in question, the next request must not have
// failed. The eight hosts with the newest requests are asked. So one host flags no endpoint that serves another,
// however few requests that has, and one that fails for all counts as failing when most have sent one more request. An
// answer is what a log shows, or load reports of an Envoy without one: the completions in the endpoint's own metrics
// do not show whose they were, and rise while it fails half of all requests.
//
// # Averages
//
// ResponseBytes and FailedShare of an endpoint are moving averages, m ← m + α(x − m) at each end, where
// α is the cluster's (SetAlpha) and the first x is all of m. For ResponseBytes, x is that of an
// answer; Envoy adds up the bytes over the retries of a request, so those before its beginning
// are taken off. For FailedShare, x is 1 for a request that failed and 0 for one that was answered; one that
// is neither changes nothing. They are for people: the law takes time to last byte and failures
// from the sums.
//
// # Modes
//
// Events cost an Envoy some 60 µs of CPU a request, so a busy one is told to batch
// them, and a busier one to leave them to its reports:
//
//	events ──rate > batchAbove──> batched ──rate > reportsAbove──> reports
//
// and back when the rate was below 0.7 of the threshold for 5 s. The rate is one
// of the last seconds (time constant 2 s). An Envoy without load reports never gets beyond
// batched. The rate is that of the requests in the log, or of those that would be in it: where it had requests to
// other addresses than those here, they count in the reports, too. The ledger decides
// (Modes); package xds tells the Envoy. Into and out of ModeReports the counts change with a
// report, when gauge and events are of one moment. Entries that come meanwhile, from an
// Envoy that has not switched yet, are not counted.
//
// # Bounds
//
// Memory goes by what is counted: a pair of an Envoy and an endpoint takes some 150 bytes once there is
// a report of it, whatever other endpoints there are, so a fleet of 1,000 Envoys and 1,000 endpoints takes
// 150 MB, of however many clusters theirs is one.
//
//	                                            of one Envoy    of all    of those that watch nothing
//	Envoys                                                      16,384                          4,096
//	pairs of Envoy and endpoint                                   2 Mi                       524,288
//	open requests, 140 bytes each                     65,536      1 Mi                       262,144
//	names of clusters, a kilobyte each at most         2,048   131,072                        32,768
//
// An Envoy that watches no cluster may be about to, so it is counted; but anybody can make one up, and
// all of them together take 160 MB at most. An Envoy above its open requests goes over to reports. Names are
// those that would be taken for another of the clusters here, or for none. Ids are kept as a hash with a
// secret seed, so their length does not matter. A report is clamped to a million requests in progress
// and a hundred million issued, and what an account keeps of them to a thousand million.
//
// # What it is not
//
// No protocol and no law: it has neither gRPC nor weights, and smooths nothing but
// request rates. It knows nothing of traffic that bypasses the Envoys.
package ledger
