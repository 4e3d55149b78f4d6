// Package ledger counts the requests that are in flight from each Envoy to each
// endpoint, out of two sources that each lack what the other has.
//
// An Envoy's upstream access log tells of each beginning and each end within a
// millisecond; but an entry that is lost (a broken stream, a full buffer) is lost
// for good, and a count that only adds up drifts. Its load reports carry a
// gauge of the requests in progress, which is true whatever was lost before; but it is
// as old as the report, up to a second. The ledger counts by the first and mends
// by the second.
//
// collectors/accesslog and collectors/loadstats write; the loop of each cluster reads
// the sums over all Envoys, whenever it is woken because they changed. The ledger
// is pure but for its lock: time is an argument, and there is no goroutine.
//
// # Who counts
//
// An Envoy is a node id at a remote IP. Only Envoys that subscribe to a cluster
// (SetWatchers) move its counts, and only about its endpoints (SetMembers):
// everything else that a stream says is ignored, and counted as that. What an
// Envoy tells before it is known to subscribe is kept, and counts from then on.
//
// An endpoint may be in two clusters, and one Envoy use both. Then a request counts in the
// cluster that it went through. A load report says that by the name in EDS, an entry of the
// log by the Envoy's own name for it; what that stands for is learned from its reports, and
// without reports taken for the name in EDS, as in a bootstrap of Steelyard's. Where a name
// is none of the endpoint's clusters (a fallback that is no EDS cluster), the request counts
// in each: a load that nobody sees is worse than one that is seen twice. Where the endpoint
// is in one cluster, no name is asked for.
//
// Counts belong to streams. A log stream that closes takes the requests that began over
// it with it; a report stream takes its gauges. An Envoy has many log streams,
// one for each worker and logger; an end may come over another than its
// beginning. Beginning and end are paired by request id and address as a multiset,
// for a request that is retried may come to one endpoint twice.
//
// # Events, mended by reports
//
// For each Envoy and endpoint, with
//
//	b    requests begun and not ended, by the events
//	g    requests in progress, by the latest report; an endpoint left out of a report has 0
//	d    g − b, when the report came
//	d₋₁  the same, at the report before
//
// the number in flight is
//
//	n = max(0, b + c),   c = median(0, d₋₁, d)
//
// A report and an event that cross on the way make a d that the next report does
// not repeat, and the median leaves it out. A drift lasts, and is mended to its
// smaller showing by the second report: within two intervals, that is two seconds. In
// between,
//
//   - the first report of a stream stands for two, for until then nothing vouched for
//     the events: after a restart one report is the truth.
//   - an end without a beginning is that of a request that began unseen, if there is
//     one (c > 0): c and d fall by one. Otherwise it changes nothing: a refused connection ends
//     without having begun.
//   - when an Envoy batches no more, an end that overtakes its beginning ends it: for three
//     seconds ends without a beginning are remembered.
//   - requests whose stream broke may go on unseen: they leave b, and d rises by one
//     each, so that a single report brings them back.
//   - where c was negative at two reports in a row, that many of the oldest open
//     requests are closed: their ends were lost.
//
// Several streams of load reports under one name are of Envoys that share a node id
// behind one address. Then g is their sum, and each report shows d of another moment than
// the others tell of: d is the smallest of a round in which all told, a drift is mended
// within three rounds, and no requests are taken for issued unseen. An older stream that says nothing
// between the opening of a newer one and its first report has been replaced by it, and one
// that is silent for longer than an Envoy may be has ended: it counts no more, until it
// tells again.
//
// # Reports alone
//
// An Envoy without a log stream, or in ModeReports, has n = g. When it goes over to
// events, c = d = g: what is in progress began unseen. When it goes over to
// reports, its open requests are closed, since their ends will not be told.
//
// An Envoy that has load reports is never quiet. If nothing at all was heard of it for longer
// than max(3 s, 3 intervals) it counts no more (silent), until it is heard of.
//
// # As of when
//
// An Envoy's events are as of now; batched ones as of its last message, at most a
// second ago; reports as of the last one. The sums of a cluster are as of now less the
// mean of these ages, weighed by the Envoys' request rates: what a sum misses are the
// requests since, Σ rate · age. In-flight counts are Exact when every Envoy that
// is counted has load reports, so that no drift lasts.
//
// # Sums
//
// Issued, Ended, Failed, Errors, Succeeded, LatencySeconds and Answered of an endpoint only ever rise, and
// start with its membership. By events they are counted one by one. Requests
// that the reports show to have been issued beyond that are added when every report
// of a period says so: of 0.9 s, which is two in a row at an interval of 1 s, and ten at
// 0.1 s, where the log may lag by more than an interval. What was added and then came by
// the log after all is owed: so many later requests add nothing, and the sum never
// falls. Of the first report of a stream only the gauge counts, because its counters
// reach back to nobody knows when.
//
//   - Sized, SizedBytes, Unsized: Issued by whether the log told the size of the request's body. A request
//     that only reports show is Unsized; if the log tells of it after all, one that is owed adds
//     no bytes either. So Sized and Unsized always add up to Issued, and neither falls.
//   - Failed: no connection, reset by the endpoint, its connection lost, or a 5xx of its
//     own. Reports count Envoy's timeouts among them, so it is known by events alone.
//   - Errors: of the others, those that ended in an error, be it the request's own: a 4xx, or a
//     gRPC status other than OK and CANCELLED. Succeeded: those that were answered without one.
//     By reports alone, all errors that Envoy counts, and what it counts as a success, any
//     4xx among it. A report that covers the end of a log says nothing of either: the log
//     told of the same requests. So no change of the mode counts an error twice, and for as long
//     as a change takes some may not be counted.
//   - Ended: by reports alone, what is in the sum of issued and not in progress. A request
//     that was closed without an end is remembered (the last 1024 of an Envoy), so that its
//     end, if it comes after all, does not count again; and what the log told since the last
//     report before it ended is not taken from the next report, too.
//   - Answered, LatencySeconds: requests with a status and a last byte.
//     The time runs from the first byte sent to the last received, so a client that
//     went away or a timeout is no answer.
//
// # One against all
//
// What one Envoy says is not believed where the endpoint denies it and the others do not find it. The
// caller tells what each endpoint says of its own requests (Served). With, over a row of its reports
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
// part (E = 0, or x is as large as X says), up to 8 slow uploads or idle streams, and whatever an Envoy says
// that has nobody beside it (E = 0). Envoys that are in flight and end nothing are no part of X; and of
// ends, what the endpoint did not complete is no part of E or e.
//
// Failures that one Envoy alone tells of are not in the sum of Failed while the others find the endpoint
// well: they had an answer in the last 5 s, not three failures since, and less than a quarter of theirs
// failed of late. The Envoy in question is that of whom most failures are.
//
// # Averages
//
// Bytes and Failing of an endpoint are moving averages, m ← m + α(x − m) at each end, where
// α is the cluster's (SetAlpha) and the first x is all of m. For Bytes, x is that of an
// answer; Envoy adds up the bytes over the retries of a request, so those that its beginning
// tells of are taken off. For Failing, x is 1 for a request that failed and 0 for one that was answered; one that
// is neither says nothing. They are for people: time to last byte and failures are weighed
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
// of the last seconds (time constant 2 s). Who has no load reports never gets beyond
// batched. The rate is that of what the log tells, or would: where it told of requests to
// addresses that are nobody's here, they count in the reports, too. The ledger decides
// (Modes); package xds tells the Envoy. Into and out of ModeReports the counts go with a
// report, when gauge and events are of one moment. What comes meanwhile by mistake, from an
// Envoy that was not told yet, is not counted.
//
// # Bounds
//
// Memory goes by what is counted: a pair of an Envoy and an endpoint takes some 140 bytes from the first
// word of it, whatever other endpoints there are, so a fleet of 1,000 Envoys and 1,000 endpoints takes
// 140 MB, of however many clusters theirs is one.
//
//	                                            of one Envoy    of all    of those that watch nothing
//	Envoys                                                      16,384                          4,096
//	pairs of Envoy and endpoint                                   2 Mi                       524,288
//	open requests, 140 bytes each                     65,536      1 Mi                       262,144
//	names of clusters, a kilobyte each at most         2,048   131,072                        32,768
//
// An Envoy that watches no cluster may be about to, so it is listened to; but anybody can make one up, and
// all of them together take 160 MB at most. An Envoy above its open requests goes over to reports. Names are
// those that would be taken for another of the clusters here, or for none. Ids are kept as a hash with a
// secret seed, so their length is no matter. What a report says is clamped to a million requests in progress
// and a hundred million issued, and what an account keeps of them to a thousand million.
//
// # What it is not
//
// No protocol and no law: it knows neither gRPC nor weights, and smooths nothing but
// request rates. It is no place for truth about traffic that bypasses the proxies.
package ledger
