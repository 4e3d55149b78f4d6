// Package conversing is the demo of prefix caches (`steelyard-demo prefix`): conversations with shared system prompts,
// in front of simulated engines that cache what they computed. It plays the same conversations three times: by the
// weights of work; by a header that names the conversation (`bootstrap --affinity`); and by the prompt, in the module
// (`bootstrap --module --prefix`). It compares the times to the first token, and what of the prompts the engines found
// in their caches.
//
// The conversations of each phase are about something else, so that no phase finds what another one left in the caches.
// Before the first, Steelyard sees some of the load, to learn how fast the engines are.
//
// It needs the module: the environment variable ENVOY_DYNAMIC_MODULES_SEARCH_PATH names its folder, as `make
// demo-prefix` sets it.
package conversing
