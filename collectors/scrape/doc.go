// Package scrape fetches the metrics pages of model servers and passes on the load that they report. A [Pool] keeps one
// loop for each [Target]; the control plane sets the targets, and the pool gives every [Result] to the function that it
// was made with. Package modelserver reads a page; package weighting decides what it means for a weight.
//
// It is not a monitoring system: nothing is stored, no target is discovered, and
// a failed scrape is reported once and not repeated before its time.
//
// # A loop
//
//	offset  = FNV-1a(cluster, address, URL) mod interval, cut to beats
//	start k = start of the pool + offset + k × interval
//	at      = (start of the exchange + end of its body) / 2
//
// The offset spreads the targets over the beats of the interval, 25 ms or a tenth of it: pages that are requested
// together often arrive together, and the process is woken once for them. A scrape never overlaps the one before it of
// the same target: the timeout is at most the interval, and starts that were missed (a machine that was paused) are
// skipped.
//
// Between two scrapes a loop is a timer and a connection of net/http. All loops share what a scrape needs besides, such
// as a goroutine, buffers and the reader of the page: of thousands of loops, few scrape at a time.
//
// The sums of a target's counters (modelserver.Counters) belong to its loop. If
// a target changes in any field, its loop ends and another begins, with its sums
// where the counters stand then; loops of other targets are not touched.
//
// # What a target cannot do
//
// It cannot hold a loop longer than the timeout, by silence or by sending single bytes. It cannot make us read more
// than the body limit: the connection is closed there. It cannot redirect us to another host, nor get the bearer token
// for a target that redirects there: redirects are followed only to the same scheme, host and port. It is not asked to
// compress (that would take time from its requests), and not contacted through a proxy.
//
// # Connections
//
// Each loop has one connection, by a transport of its own, which it keeps from scrape to scrape and closes when it
// ends. A connection that the server has closed between two scrapes is replaced without a failure. Only HTTP/1.1 is
// used. Every new connection uses the current client certificate and authorities ([credentials.Store]), and the token
// file is read again whenever it has changed, so all of them can be rotated.
//
// [Kind] sorts failures for a metric. The log has an Info line when a target
// starts or stops failing, or fails in another way; each further failure is
// Debug.
package scrape
