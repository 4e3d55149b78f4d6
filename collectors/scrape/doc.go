// Package scrape fetches the metrics pages of model servers and hands on what
// they report of the load. A [Pool] keeps one loop for each [Target]; the control
// plane's registry sets the targets, and the pool gives every [Result] to the
// function that it was made with. Reading a page is for package modelserver
// to read; what it means for a weight is for package weighting.
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
// The offset spreads the targets over the beats of the interval, 25 ms or a tenth of it:
// pages that are asked for together are often there together, and the process is woken
// once for them. A scrape never overlaps the one before it of the same target: the timeout is at most the interval, and
// starts that were missed (a machine that stood still) are skipped. A target that is taken over from another process
// (TakeOver) is also scraped once within 200 ms.
//
// Between two scrapes a loop is a timer and a connection. What a scrape needs besides, such as a goroutine, buffers and
// the reader of the page, belongs to all loops: of thousands, few scrape at a time.
//
// The sums of a target's counters (modelserver.Counters) belong to its loop. If
// a target changes in any field, its loop ends and another begins, with its sums
// where the counters stand then; loops of other targets are not touched.
//
// # What a target cannot do
//
// It cannot hold a loop longer than the timeout, be it by silence or by sending
// a byte now and then. It cannot make us read more than the body limit: the
// connection is closed there. It cannot send us to another host by a redirect,
// nor see the bearer token of one that is: redirects are followed within the
// same scheme, host and port only. It is not asked to compress (the time that
// would take belongs to its requests), and not asked through a proxy.
//
// # Connections
//
// Each loop has one connection, which it keeps from scrape to scrape and closes when it
// ends, and does all the work on it itself. (The transport of net/http has two more goroutines
// for each connection, and hands every request and response around between them: a scrape, with
// the server's part, takes 52 µs of CPU with it and 42 without, see BenchmarkScrape.)
// A connection that the server has closed between two scrapes is replaced without
// a failure. Only HTTP/1.1 is spoken. The client certificate is read for every new
// connection and the token file whenever it has changed, so both can be rotated;
// the CA file is read once, for all targets with the same [TLS].
//
// [Kind] sorts failures for a metric. The log has an Info line when a target
// starts or stops failing, or fails in another way; each further failure is
// Debug.
package scrape
