// Package modelsim simulates model servers: real HTTP servers on loopback with a finite number of slots and one FIFO
// queue, or with an engine that batches continuously, and the metrics page of vLLM or Triton. Tests, benchmarks and the
// demo send real traffic through real proxies to them and read from them what a real server would report.
//
// It is not part of the product, and does not depend on it: no collector is
// imported, so that a misread series name cannot be wrong on both sides. The engine
// is that of package sim/engine, which the simulator has too.
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
// Clients that disconnect free their slot or leave the queue on vLLM; Triton executes every request that it has
// accepted, whether or not the client is still connected.
//
// # Engines
//
// With Options.Batching the server simulates vLLM by package engine, in real time, and answers POST /v1/completions and
// /v1/chat/completions, as a stream or as a whole, always with as many tokens as requested. A prompt has as many tokens
// as its text has bytes / BytesPerToken (a list of token IDs has its length, an image 1,000), or X-Prompt-Tokens. The
// header of a stream comes at once, before its first token; the first token is sent alone, and StreamInterval tokens in
// each piece after it.
//
// With CacheTokens in Options.Batching, a prompt is found in the prefix cache by its text, together with the answer
// before it: for a chat that repeats a conversation and continues it, only what is new is computed. A message of an
// answer must be repeated exactly.
//
// An engine has one timer, for the end of the iteration under way. An iteration that
// ends late, because the timer fired late, counts as ended in time.
//
// # Metrics
//
// The pages are recordings of vLLM 0.32.0 and Triton 2.51.0 under load (in
// recordings/) in which the series about load are live:
//
//   - vLLM: running, waiting (and by reason), KV cache usage, successes by
//     finish reason, and the histograms of queue, inference and end-to-end time. Of an
//     engine the counters of tokens, cached tokens and preemptions too, the
//     histograms of what comes between (first token, prefill, decode, time per token)
//     and of tokens, and the size of the KV cache. Gauges are those of the last
//     scheduling.
//     The other series keep their recorded values: they are there so that
//     scraping and picking the wanted lines costs what it costs in the field
//     (Options.RealSize, 50 KB).
//   - Triton: the pending gauge (only the queue), success and failure, count
//     and executions, and the cumulative durations in microseconds. There is no
//     gauge of running requests. Model "sleeper" takes all the traffic; model
//     "batcher" is loaded and idle.
//
// With Options.ORCA, answers carry a load report (header endpoint-load-metrics):
// utilization, completions and failures in a thousand seconds, averaged with
// exponential forgetting. The real vLLM sends none with all three.
//
// Counters of durations count a request when it completes, as both engines do.
package modelsim
