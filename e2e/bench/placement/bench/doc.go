// Package bench measures on real Envoys how well policies place requests.
//
// # The design of the placement bench
//
// Every policy is a row with Envoys, servers and control plane of its own
// (package fleet), and all rows get the identical sequence of requests: the same
// moments, the same work, the same Envoy for each. Service is a timer in a
// simulated server, so a machine of two cores carries a fleet of 200 busy
// servers while it idles.
//
// Rows run at the same time as far as the machine can carry them, so that a disturbance of the machine affects all of
// them. Ninety Envoys are too much for two cores, so the rows of a service time are measured in groups, one after the
// other, with Options.Group rows of Steelyard in each. Every group also has LEAST_REQUEST and the bound, and gets the
// same requests, and ratios are formed inside a group only. If services are so short that even a group is too much
// (Options.Together, in requests per second), its rows take turns, in blocks of some seconds, in a different order each
// time.
//
// The processes of the rows have a lower priority (nice) than the load generator and the servers, which represent other
// machines and would otherwise wait for a core behind them.
//
// Each block begins with empty queues. Its first requests are a warm-up that is sent and not counted: Options.WarmUp
// mean service times, after which the queues of the bad policies have nearly reached their length. All rows are treated
// alike, and the remaining bias favours the worse ones.
//
// # What is measured
//
//   - The wait, by the servers, of every counted request. Of a row whose requests wait in their Envoys, latency less
//     service: its way counts as wait.
//   - What the way through the Envoys adds: latency less wait less service.
//   - CPU seconds of each Envoy and of Steelyard from /proc while counted requests
//     arrive, its resident memory, and the pushes that it counts itself.
//   - How late the generator sent requests. If it is late by more than Options.Lateness of the mean service at p99, in
//     any row of any run, the figures are not a result: the machine was too busy.
//
// Package main calls it, and passes the results to package report.
package bench
