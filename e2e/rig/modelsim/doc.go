// Package modelsim simulates model servers: real HTTP servers on loopback with
// a finite number of slots, one FIFO queue and the metrics page of vLLM or
// Triton. Tests, benchmarks and the demo send real traffic through real proxies
// to them and read from them what a real server would say.
//
// It is not part of the product, and it knows nothing of it: no collector is
// imported, so that a misread series name cannot be wrong on both sides.
//
// # Service
//
// A request needs X-Service-Seconds of work (drawn by the load generator, so
// that every policy under comparison gets the same sequence), or, without that
// header, an exponential draw of the server's own seeded distribution. It
// occupies one of the Slots for
//
//	work / Speed
//
// seconds; while all slots are taken it waits in order of arrival. Work does
// not slow down as slots fill up. A timer that fires late does not slow the
// server either: the next request is taken to start when the one before it was
// due. Answers carry X-Queue-Wait-Seconds, X-Service-Seconds (as executed) and
// X-Server (the serving address).
//
// Clients that disconnect free their slot or leave the queue on vLLM; Triton
// executes what it has once accepted, whether or not somebody still listens.
//
// # Metrics
//
// The pages are recordings of vLLM 0.32.0 and Triton 2.51.0 under load (in
// recordings/) in which the series that say something about load are live:
//
//   - vLLM: running, waiting (and by reason), KV cache usage, successes by
//     finish reason, and the histograms of queue, inference and end-to-end time.
//     The other series keep their recorded values: they are there so that
//     scraping and picking the wanted lines costs what it costs in the field
//     (Options.RealSize, 50 KB).
//   - Triton: the pending gauge (the queue alone), success and failure, count
//     and executions, and the cumulative durations in microseconds. There is no
//     gauge of running requests. Model "sleeper" takes all the traffic; model
//     "batcher" is loaded and idle.
//
// With Options.ORCA, answers carry a load report (header endpoint-load-metrics):
// utilization, completions and failures in a thousand seconds, averaged with
// exponential forgetting. The real vLLM sends none that says all three.
//
// Counters of durations count a request when it completes, as both engines do.
package modelsim
