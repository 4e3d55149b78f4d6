// Command law is `make bench-law`: it runs many simulated fleets under the law of this checkout, and compares the waits
// with those under the law of another commit.
//
//	make bench-law BASE=main~5 ARGS="--only '^llm/' --seeds 1"
//
// It is not part of the product. Simulated time costs CPU but does not depend on the machine, so the figures of two
// laws can be compared whenever they were measured.
//
// # Rows
//
// A row is a fleet, a source of reports and a seed. Both laws get the same requests. It has the p50, p99, mean and
// largest wait (until the first token in seconds, or until the start of service in mean services), the p50 of the time
// to the end, the p99 of the time for each output token, pushes a second, and the requests refused.
//
// # Comparison
//
// For each fleet and source, the quantities are the means over the seeds, and the ratio is that of the measured law to
// the base. A set (engines or slots or the matrix, by a source) has the geometric mean of the ratios of its fleets. The
// chance in one ratio over three seeds is about 0.05 in the p99 and 0.02 in the mean.
package main
