// Package report turns the measurements of a bench into rows, targets, tables, plots and JSON.
//
// It is pure except for the files that it writes: measurements come in as values,
// so that every figure that is published can be checked from them. Package bench
// calls it.
//
// # The JSON
//
//	{"valid": true, "rows": [{"policy": "least_request", "service": 1, "group": 1,
//	  "requests": 8000, "wait_p50": …, "wait_p90": …, "wait_p99": …, …}],
//	 "references": [{"policy": "least_request", "service": 1, "group": 2, …}],
//	 "targets": [{"target": …, "measured": …, "limit": …, "holds": …}],
//	 "runs": [{"rows": […], "targets": […]}]}
//
// Waits are in mean service times, as in the rows of `steelyard simulate --json`, which have the same keys; times are
// in seconds; what was not measured is null. A policy has one row at each service time. If rows were measured in
// groups, references has the references of further groups, and ratios to a reference (wait_p99_of_least_request and the
// like) use the one of the same group. The outer rows and targets are over all runs together, and runs has each run
// separately. wait_p99_ci and the like are 95 % intervals (package stats).
//
// An LLMDocument has one row for each policy, with the keys of the rows of
// `steelyard simulate --scenario llm --json`, all times in seconds, and what the row is
// of each reference in "of".
package report
