// Package flight counts the requests of one proxy at one endpoint: how many are in flight, and sums of
// what began and ended. A [Counter] takes one step for each thing that is reported and returns what
// changed. It is pure: values in, values out, with no lock, clock, identity or name. Package
// collectors/ledger has one for each Envoy and endpoint, and the simulator uses the same type.
//
// There are two sources, and each lacks what the other has. A log reports each beginning and each end
// within milliseconds; but an entry that is lost is lost for good, and a count that only adds up drifts.
// Load reports carry a gauge of the requests in progress, which is true whatever was lost before; but it
// is as old as the report. The counter follows the log and corrects it by the reports.
//
// # By the log, corrected by reports
//
//	b    requests begun and not ended, by the log
//	g    requests in progress, by the latest report
//	d    g − b, when the report came
//	d₋₁  the same, at the report before
//
//	in flight = max(0, b + c),   c = median(0, d₋₁, d)
//
// A report and an event that cross on the way make a d that the next report does not repeat, and the
// median leaves it out. A drift lasts, and the second report corrects it by the smaller of the two.
// In between,
//
//   - the first report counts as two, because nothing has confirmed the log before it;
//   - an end without a beginning is that of a request that began unseen, if there is one (c > 0): c and d
//     fall by one. Otherwise it changes nothing;
//   - requests whose log stream broke may go on unseen: they leave b, and d rises by one each, so that a
//     single report brings them back;
//   - where c was negative at two reports in a row, that many of the oldest open requests are closed:
//     their ends were lost.
//
// # Several processes
//
// A proxy that restarts without losing connections (Envoy's hot restart) is two processes for minutes,
// the old one with the requests that it still has and the new one with all others. Both log, and their
// events add up as they are. Both send load reports, each at its own time, and so g is never of the same
// moment: it is the gauge of the process that reports now plus gauges that are up to an interval old. What
// the others did since is in the log, but the log does not show which process an event is of.
//
// So d has a range. With two processes, A reporting now and B last heard at t, of the R beginnings and F
// ends that were logged since t all are B's but for those that may be A's: at most the I that A issued
// and the E that ended there since, by A's own reports. Then
//
//	d ∈ g − b + R − F + [−min(R, I), min(F, E)]
//
// and with more than two processes, R and F since the oldest of the other reports,
//
//	d ∈ g − b + [−F, R]
//
// The counter intersects the ranges of a round, in which each process reports once, and takes as d the value of the
// intersection that is nearest to c: a correction stays as far as the range allows it. So the traffic of two
// processes is never taken for a drift, however it rises, falls or moves from one to the other; and a drift
// is corrected as soon as one process is quiet enough to show it, which in a restart the old one soon is.
//
// # By reports only
//
// Without a log, in flight = g. When a proxy turns to the log, c = d = g: what is in progress began
// unseen. When it turns to reports, its open requests are forgotten, because their ends will not be
// logged.
//
// # Sums
//
// They only rise. Requests that the reports show to have been issued beyond those in the log are added
// when every report of a period shows them (Report.Due), because a log may lag by more than an interval.
// What was added and then appears in the log after all is overcounted: so many later beginnings add
// nothing. While several processes report, nothing is added in this way.
//
// Sized of those issued had a size in the log, Bytes in sum; none counts for more than 256 MiB. A request that
// only reports show has none, and the beginning that makes up for one overcounted adds no bytes either.
package flight
