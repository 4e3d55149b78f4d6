// Package ledger counts the requests that are in flight from each Envoy to each endpoint, and sums of how they begin
// and end. It has two sources: Envoys' upstream access logs, which report each beginning and each end within
// milliseconds, and their load reports, which are up to a second old and correct whatever was lost before.
//
// Package weighting/flight counts one Envoy's requests at one endpoint from these two sources: a pure Counter takes one
// step for each event and report. This package has a Counter for each Envoy and endpoint, and does what needs names and
// memory: it finds the Envoy and endpoint of an entry and the beginning that belongs to an end, decides which Envoys
// change the counts of a cluster, and adds them up.
//
// collectors/accesslog and collectors/loadstats write; the loop of each cluster reads the sums over all Envoys when it
// is woken because they changed. The ledger is pure except for its lock: time is an argument, and there is no
// goroutine.
//
// # Which Envoys count
//
// An Envoy is identified by its node id, its remote IP and, if it has a certificate, the names in it. Only Envoys that
// subscribe to a cluster (SetWatchers) change its counts, and only those of its endpoints (SetMembers): everything else
// that a stream reports is ignored, and counted as ignored. What an Envoy reports before it is known to subscribe is
// kept, and counts from then on.
//
// An endpoint may be in two clusters, and one Envoy may use both. Then a request counts in the cluster that it went
// through. A load report has the cluster's name in EDS, an entry of the log the Envoy's own name for it. The EDS name
// for an Envoy's own name is learned from its reports; without reports, the two are taken to be the same, as in a
// bootstrap that Steelyard writes. If a name is none of the endpoint's clusters (a fallback that is not an EDS
// cluster), the request counts in each of them: a load that is missed is worse than one that is counted twice. If the
// endpoint is in one cluster, no name is needed.
//
// Counts belong to streams. When a log stream closes, the requests that began over it no longer count; when a report
// stream closes, its gauges no longer do. An Envoy has many log streams, one for each worker and logger; an end may
// come over another stream than its beginning. Beginning and end are paired by request id and address as a multiset,
// because a request that is retried may come to one endpoint twice.
//
// When an Envoy stops batching its log, an end may overtake its beginning. So for three seconds ends without a
// beginning are remembered, and a beginning that comes later opens nothing. A refused connection ends without having
// begun, and changes no count of requests in flight.
//
// # Several processes with one node id
//
// Envoy's hot restart runs two processes with one node id for minutes, the old one with the requests that it still
// has and the new one with all others. Each has its own streams of both kinds. Package flight counts them together,
// exactly; EnvoyStatus.ReportStreams is their number. Several Envoys behind one address that share a node id and a
// certificate, or have none, look the same and are counted in the same way.
//
// A stream of load reports may also be left over from before its Envoy reconnected. An older stream that sent nothing
// between the opening of a newer one and its first report, and for more than an interval, has been replaced by it. A
// stream that is silent for longer than an Envoy may be has ended. Either counts again when it reports again.
//
// # Which source counts
//
// An Envoy with a log stream is counted by its log, and its reports correct the count. One without, or in
// ModeReports, is counted by its reports. An Envoy with load reports reports at least once per interval. If nothing
// arrives from it for max(3 s, 3 intervals), it is silent and does not count until it sends something.
//
// # As of when
//
// An Envoy's events are current; batched ones are as old as its last message, at most a second; reports are as old as
// the last one. The age of a cluster's sums is the mean of these ages, weighed by the Envoys' request rates: a sum
// lacks the requests since then, Σ rate · age. In-flight counts are Exact when every Envoy that is counted has load
// reports, so that no drift lasts.
//
// # Sums
//
// Issued, Hashed, Ended, Failed, Errors, Succeeded, LatencySeconds, Answered, Sized, SizedBytes, Refused and
// RefusedBytes of an endpoint never decrease, and start with its membership.
//
//   - Hashed: those of Issued that went through a cluster whose name in EDS is NAME/members: it chooses by a hash
//     (affinity). An Envoy's own name for it is learned from its reports; without, NAME_affinity is taken for one.
//   - Failed: no connection, reset by the endpoint, its connection lost, or a 5xx of its
//     own. Reports count Envoy's timeouts among them, so only a log shows it.
//   - Errors: of the others, those that ended in an error, even if the request caused it: a 4xx, or a
//     gRPC status other than OK and CANCELLED. Succeeded: those that were answered without one.
//     From reports only: all errors that Envoy counts, and what it counts as a success, which
//     includes any 4xx. A report that covers the end of a log adds neither, because the log
//     showed the same requests. So no change of the mode counts an error twice, but during
//     a change some may not be counted.
//   - Ended: a request that was closed without an end is remembered (the last 1024 of an Envoy), so that its
//     end, if it arrives after all, does not count again.
//   - Answered, LatencySeconds: requests with a status and a last byte.
//     The time runs from the first byte sent to the last received, so a client that
//     went away or a timeout is no answer.
//   - Sized, SizedBytes: those of Issued whose size was in the log, and the sum of these sizes.
//   - Refused, RefusedBytes: those of Sized that the endpoint answered with a 4xx, and their sizes.
//
// # What an endpoint itself shows
//
// A single Envoy does not overrule an endpoint. The terms, here and in the code:
//
//	confirmed   an Envoy of which a request ended at an endpoint that has completed some since the Envoy came, or
//	            whose reports do not show what it completes
//	excess      requests of Envoys that are not confirmed, beyond what the endpoint's newest report shows besides
//	            those of the others: they do not count
//	mismatch    a row of an endpoint's own reports that each show fewer requests than the confirmed Envoys have, by
//	            more than 8
//	dispute     what is shown of either, and of failures that do not count: Envoy, endpoint, since when (Disputes)
//
// Served takes in each endpoint's own reports. Confirmed Envoys count in full: what a report lacks of theirs may be
// hidden in a part of the server, or stall there. But with, over a mismatch longer than 2.5 s and two and a half report
// intervals of the Envoy,
//
//	x, e    requests in flight from one Envoy, the least of the row; and its requests that ended
//	X, E    requests in flight from the others, in the mean; and theirs that ended, as far as
//	        the endpoint completed as many
//
// an Envoy is no longer confirmed, for at least a minute, if E > 0 and
//
//	x > 8 + 2 · X · (e + 1) / E
//
// X/E is the time that a request takes there (Little's law), so the right side is twice the requests that an Envoy with
// its ends has in flight if its requests take as long as the others', and 8. So these still count: requests that a
// gauge does not show because it lags by an iteration of up to two seconds (the row is too short), those at an endpoint
// that stalls, entirely or in part (E = 0, or x is as large as X predicts), and all requests of the only Envoy that
// uses the endpoint (E = 0). X leaves out Envoys that have requests in flight and end none; E and e leave out ends that
// the endpoint did not complete. No more Envoys are doubted than it takes to explain what is missing.
//
// So an Envoy whose requests end may claim 8 more at an endpoint, and at one that nobody else uses any number. Who may
// report at all, xds.clients decides.
//
// A load report that has more than 100,000 requests to an endpoint for each second since the one before, of ten seconds
// or three intervals at most, adds nothing to the sums.
//
// Failures that an Envoy reports are discounted while most requests of this Envoy fail (none was answered, or the last
// three failed, or three and 30 % of its last 31) and the endpoint serves at least as many hosts as it fails, including
// the Envoy's own. The Envoys of a host count as one, because one program can connect under many node ids. A host is
// served if one of its Envoys, other than the one in question and any to which most requests fail, had an answer within
// three times the longest gap between two answers there in the last minutes, 5 s to 2 min. If that answer is older than
// the failures in question, the next request must not have failed. The eight hosts with the newest requests are
// compared. So one host does not flag an endpoint that serves another, even if that one has few requests; and an
// endpoint that fails for all counts as failing when most hosts have sent one more request. An answer is one that a log
// shows, or that the load reports of an Envoy without a log show: the completions in the endpoint's own metrics do not
// show whose they were, and rise while it fails half of all requests.
//
// # Averages
//
// ResponseBytes and FailedShare of an endpoint are moving averages, m ← m + α(x − m) at each end, where α is the
// cluster's (SetAlpha) and m starts at the first x. For ResponseBytes, x is the size of an answer; Envoy adds up the
// bytes over the retries of a request, so those before its beginning are subtracted. For FailedShare, x is 1 for a
// request that failed and 0 for one that was answered; one that is neither changes nothing. They are for display: the
// law takes time to last byte and failures from the sums.
//
// # Recording
//
// While no Envoy follows the weights of a cluster (Record), what they send is recorded for a simulation: arrivals by
// ten seconds, requests of each Envoy, and of each endpoint its requests and the times of its answers. The mean time
// that a request needs in a slot is
//
//	∫ min(n, slots) dt / answers
//
// with n requests in flight: the utilization law, which holds at any load. How these times are distributed is seen in
// the requests that began while a slot was free, because only they did not wait. Two hours are kept, the current one
// and the busiest of the last day: about 1.5 KB for an endpoint and hour.
//
// # Modes
//
// Events cost an Envoy about 60 µs of CPU a request, so Steelyard asks a busy Envoy to batch them, and a busier one to
// send only load reports:
//
//	events ──rate > batchAbove──> batched ──rate > reportsAbove──> reports
//
// and back when the rate was below 0.7 of the threshold for 5 s. The rate is an average of the last seconds (time
// constant 2 s). An Envoy without load reports never gets beyond batched. The rate is that of the requests in the log,
// or of those that would be in it: if the log had requests to other addresses, they count in the reports, too. The
// ledger decides (Modes); package xds sends the mode to the Envoy. The counts change to or from reports when a report
// arrives, because then gauge and events describe the same moment. Entries from an Envoy that has not switched yet are
// not counted.
//
// # Bounds
//
// Memory depends on what is counted: a pair of an Envoy and an endpoint takes about 165 bytes once there is a report of
// it, so a fleet of 1,000 Envoys and 1,000 endpoints takes 165 MB, however many clusters and endpoints there are
// besides.
//
//	                                            of one Envoy    of all    of those that watch nothing
//	Envoys                                                      16,384                          4,096
//	pairs of Envoy and endpoint                                   2 Mi                       524,288
//	open requests, 140 bytes each                     65,536      1 Mi                       262,144
//	names of clusters, a kilobyte each at most         2,048   131,072                        32,768
//
// An Envoy that watches no cluster may be about to, so it is counted; but any client can invent one, so all of them
// together take 160 MB at most. An Envoy with too many open requests changes to reports. Names are kept only if they
// would be taken for another of the clusters here, or for none. Ids are kept as a hash with a secret seed, so their
// length does not matter. A report is clamped to a million requests in progress, and what an account keeps of requests
// issued to a thousand million.
//
// # What it is not
//
// It has no protocol and no law: neither gRPC nor weights, and it smooths nothing but request rates. It does not see
// traffic that bypasses the Envoys.
package ledger
