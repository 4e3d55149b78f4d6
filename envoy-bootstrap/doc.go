// Package envoybootstrap holds the Envoy configurations for Steelyard: the template
// behind `steelyard bootstrap`, and the output of that command for a cluster named
// llama, as files that Envoy can run.
//
//	failsafe.yaml  Envoy balances on its own when the weights get too old
//	shedding.yaml  Envoy refuses requests while the whole pool is saturated
//	attach.yaml    what to add to an existing Envoy configuration
//
// What it is for: every setting that the weights rely on is in one place, with its
// reason, and is tested with Envoy 1.40. What it is not: a general configuration
// language for Envoy. To change more, a user edits the output, or attaches Steelyard
// to an existing configuration.
//
// Only cmd calls it.
//
// # EDS names
//
// One EDS resource has one policy for all its subscribers, and the modes need
// different ones. So the resource's name selects what it carries, for a cluster
// named NAME:
//
//	NAME           weights, DEGRADED where overloaded, drop_overloads when shedding
//	NAME/failsafe  weights, DEGRADED where overloaded, endpoint_stale_after
//	NAME/fallback  all members, no weights, all DEGRADED, sent when the membership changes
//	NAME/members   all members, no weights, DEGRADED where they stall or fail, for policies that hash (affinity)
//
// An Envoy with endpoint_stale_after but without a fallback would lose all its
// endpoints when the control plane stops, and answer 503; one with an aggregate
// cluster would ignore drop_overloads. Separate names prevent both mistakes, and
// Envoys of all kinds can share a cluster.
//
// # What an Envoy reports to Steelyard
//
// Three settings, each optional, all on the connection that the weights come by:
//
//	upstream_log       an entry when a request gets its stream to an endpoint, and one when it ends
//	load_stats_config  the requests in progress at each endpoint, at an interval that Steelyard sets
//	layered_runtime    lets Steelyard switch between the two forms of the log, and off
//
// The forms are two loggers behind runtime filters: one writes each entry at once,
// the other in batches of 2048 bytes or 50 ms. Without the runtime layer, or until
// it arrives, the first is on. No request waits for any of it. Two settings ensure
// that when Steelyard is connected but does not read: buffer_size_bytes is 1 (with 0,
// Envoy 1.40 keeps all entries and serializes them again with each new one), and
// initial_stream_window_size bounds the data in flight to 1 MiB per worker. The
// measurements behind the sizes are in docs/envoy-signals.md.
//
// # Why the fallback's members are DEGRADED
//
// The aggregate cluster makes NAME/failsafe priority 0 and the fallback priority
// 1. Envoy serves the healthy of every priority before the degraded of any. With
// a healthy fallback, overload flags in priority 0 would move traffic into the
// fallback, past the weights (measured on Envoy 1.40: two of four flagged 31 %,
// three of four 68 %, all four 100 %). A degraded fallback is the last
// choice and gets nothing while priority 0 has a member (measured: 0 % in all
// these cases), and everything once it has none.
package envoybootstrap
