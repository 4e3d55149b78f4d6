// Command cost measures what `steelyard serve` costs: CPU seconds per second and
// memory of the real process, and how soon every Envoy has acknowledged a change
// of load. `make bench-cost` runs it; docs/cost.md describes how to read the result.
//
// It starts the real binary, many small model servers and many simulated Envoys:
//
//   - A model server ([fleet]) listens on a loopback address of its own and
//     answers every request with a vLLM page as recorded, 50 KB, in which the
//     series that Steelyard reads are live. It answers with one system call and
//     formats ten numbers, so that a thousand of them, scraped four times a
//     second, leave the machine to the process that is measured.
//   - An Envoy is a client of package e2e/rig/xdstest on a connection of its own: the
//     node of 61 KB in the first message, an ACK for every response.
//
// There are two kinds of settings. In those named after endpoints, every server has traffic of its own (Poisson
// arrivals, exponential services), so that every decision differs from the one before, as in a busy fleet. In those
// named after streams all loads stay the same, except that one of them changes every second; the time runs from that
// change until a stream has acknowledged weights that include it, and so includes the wait for the next scrape.
//
// # What it reports about itself
//
// The bench shares the machine with what it measures. It reports its own CPU time and how late its timers fired; if
// they fired late, the figures are the machine's. CPU times come from the kernel's process clocks, in nanoseconds.
//
// It is not a test: it fails when a target is missed only with --strict.
package main
