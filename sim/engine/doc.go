// Package engine emulates a model server that batches continuously, as vLLM does:
// iterations that compute prompts and generate tokens, a token budget, a limit on
// sequences, and a KV cache that can run short.
//
// It is pure: time is an argument, and nothing happens by itself. Its caller asks
// [Engine.Next] when something will happen and calls [Engine.Step] then. The
// simulator (package sim) does so in simulated time, the model servers of
// e2e/rig/modelsim in real time, so that both are the same server.
//
// # An iteration
//
// Every iteration computes some prompt tokens and generates one token for each
// sequence whose prompt is computed. It lasts, at speed 1,
//
//	Iteration + Sequence · n + Context · c + p / PrefillRate
//
//	n   sequences that decode
//	c   tokens of context (prompt and generated) of those sequences
//	p   prompt tokens computed in this iteration
//
// The defaults are about those of a model of 70 billion parameters on four H100.
//
// # Scheduling
//
// As in vLLM 0.32 with chunked prefill, once for each iteration: first the running
// sequences, in the order in which they were admitted, one token each for those
// that decode and as much of the prompt as the budget allows for one that does not;
// then the waiting ones, first come, first served, while there is budget, a free
// place among the sequences and room in the KV cache for the whole prompt. A
// sequence that decodes and finds the KV cache full evicts the one admitted last
// (which may be itself), which waits in front of all others and is computed again,
// what it has generated included. The iteration in which the last token of a prompt
// is computed generates the first token. With Params.PromptsFirst an iteration has prompts
// or sequences that decode, and prompts as long as there are any.
//
// Cached tokens of a prompt are not computed. They take their room in the KV cache
// all the same. How many there are, the caller says; or, with Params.CacheTokens, the
// engine finds it when it admits the request: it remembers the blocks of the prompts
// and answers that it computed, and forgets those first that were used least recently.
//
// # What it exports
//
// [Gauges] are those of the last scheduling: a request that arrives during an
// iteration is in none of them until the next one begins. [Counters] have vLLM's
// names and moments: prompt tokens count when the first token of the request is
// generated, the times of a request when it ends.
//
// Not emulated: speculative decoding, priorities, several sequences for a request,
// swapping, LoRA, the time between iterations in which a server does something else.
package engine
