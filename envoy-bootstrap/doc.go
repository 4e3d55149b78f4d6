// Package envoybootstrap holds the Envoy configurations that go with Steelyard:
// the template behind `steelyard bootstrap`, and beside it, as files that run as
// they are, what that command prints for a cluster named llama.
//
//	failsafe.yaml  Envoy balances on its own when the weights get too old
//	shedding.yaml  Envoy refuses requests while the whole pool is saturated
//	attach.yaml    what an Envoy that has a configuration already needs
//
// What it is for: every setting that the weights rely on stands in one place,
// with its reason beside it, and is checked by the real Envoy 1.40. What it is
// not: a general configuration language for Envoy. Whoever needs more edits what
// was printed, or attaches Steelyard to a configuration of their own.
//
// Only cmd calls it.
//
// # What an Envoy asks Steelyard for
//
// One EDS resource has one policy for all who subscribe to it, and the modes
// need different ones. So the resource's name says what it is to carry, for a
// cluster named NAME:
//
//	NAME           weights, DEGRADED where overloaded, drop_overloads when shedding
//	NAME/failsafe  weights, DEGRADED where overloaded, endpoint_stale_after
//	NAME/fallback  all members, no weights, all DEGRADED, sent when the membership changes
//
// An Envoy without a fallback that took endpoint_stale_after would lose all its
// endpoints with the control plane and answer 503; one behind an aggregate
// cluster would ignore drop_overloads. With names, neither can be had by mistake,
// and Envoys of all kinds can share a cluster.
//
// # What an Envoy tells Steelyard
//
// Three settings, of which each can be left out, all on the connection that the
// weights come by:
//
//	upstream_log       an entry when a request gets its stream to an endpoint and one when it ends
//	load_stats_config  the requests in progress at each endpoint, at an interval of Steelyard's choice
//	layered_runtime    Steelyard's switch between the two forms of the log, and off
//
// The forms are two loggers behind runtime filters: one writes each entry at once,
// the other in batches of 2048 bytes or 50 ms. Without the runtime layer, or until
// it comes, the first is on. No request waits for any of it. Two settings see to
// that when Steelyard is there but does not read: buffer_size_bytes is 1 (with 0,
// Envoy 1.40 keeps all entries and serializes them again for each that comes), and
// initial_stream_window_size bounds what is under way to 1 MiB a worker. The
// figures behind the sizes are in docs/envoy-signals.md.
//
// # Why the fallback's members are DEGRADED
//
// The aggregate cluster makes NAME/failsafe priority 0 and the fallback priority
// 1. Envoy serves the healthy of every priority before the degraded of any. With
// a healthy fallback, overload flags in priority 0 would move traffic into the
// fallback, past the weights (measured on Envoy 1.40: two of four flagged 31 %,
// three of four 68 %, all four 100 %). With a degraded one it is the last in
// the row and gets nothing while priority 0 has a member (measured: 0 % in all
// these cases), and everything once it has none.
package envoybootstrap
