// Command llm is `make bench-llm`: it measures on real Envoys how soon requests to
// language models get their first token under Steelyard's weights, under Envoy's own
// policies, and under a generator that sees every engine and chooses for each request.
//
//	make bench-llm ARGS="--quick"
//
// It is not part of the product.
//
// # The rows
//
// Every row is a fleet of its own (package placement/fleet): Envoys, engines that batch continuously (package
// sim/engine in real time), and a Steelyard if the row has one. All rows get the same requests at the same
// time, those of a trace with its times stretched to the requested load: any disturbance of the machine affects all of
// them.
//
// Load 1 is what the engines complete when they always have work. A body has as many bytes as the prompt has tokens ·
// 4.2, with a random spread as in the simulator. The answer is a stream of which the first token and the end are sent,
// and nothing in between: times per token are the mean of each request.
//
// With --conversations, engines have a prefix cache of 2 M tokens, and the requests are chats that share beginnings
// (package trace), with a text of 4 bytes for each token, by which engines and pickers find out what is shared. Load 1
// is then what the engines complete without a cache. The answers that later turns contain have texts of their own, so
// that engines compute them again.
//
// # What is measured
//
//   - The time to the first token, the time to the last one, and the mean between two tokens, as measured by the
//     client. They count from when a request was due.
//   - The requests running at each engine, every half second: their means show whether equal engines are used equally.
//   - The share of the prompts' tokens that the engines found in their prefix caches.
//   - CPU seconds of each Envoy and of Steelyard, its memory and its pushes.
//   - How late the generator sent requests. If any row is later at p99 than Options.Lateness, the figures are not a
//     result: the machine was too busy.
//
// The first seconds of requests are a warm-up that is sent and not counted: engines fill
// up, and Steelyard learns what is not configured.
package main
