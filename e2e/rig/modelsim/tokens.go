package modelsim

import (
	"fmt"
	"strconv"
	"strings"

	"steelyard/sim/engine"
)

// batchingFormat returns vLLM's page with live series of an engine, and with the engine's real configuration.
func batchingFormat(p engine.Params) engineFormat {
	f := formatOf(VLLM)
	f.live = liveTokens
	label := func(name, was, is string) {
		f.recording = strings.Replace(f.recording, fmt.Sprintf("%s=%q", name, was), fmt.Sprintf("%s=%q", name, is), 1)
	}
	const block = 128 // tokens, as recorded
	label("kv_cache_size_tokens", "2097152", strconv.Itoa(p.KVTokens))
	label("num_gpu_blocks", "16384", strconv.Itoa(p.KVTokens/block))
	label("kv_cache_max_concurrency", "2048.0", "1.0") // of requests that fill it
	return f
}

// vllmCounters are the live counters of an engine.
var vllmCounters = map[string]func(*engine.Counters) int{
	"vllm:prompt_tokens_total":        func(c *engine.Counters) int { return c.PromptTokens },
	"vllm:prompt_tokens_cached_total": func(c *engine.Counters) int { return c.CachedTokens },
	"vllm:generation_tokens_total":    func(c *engine.Counters) int { return c.GenerationTokens },
	"vllm:num_preemptions_total":      func(c *engine.Counters) int { return c.Preemptions },
	"vllm:prefix_cache_queries_total": func(c *engine.Counters) int { return c.PromptTokens },
	"vllm:prefix_cache_hits_total":    func(c *engine.Counters) int { return c.CachedTokens },
}

// vllmSources are counters that are split by where tokens came from: the label of the
// one that is live.
var vllmSources = map[string]map[string]func(*engine.Counters) int{
	"vllm:prompt_tokens_by_source_total": {
		`source="local_compute"`:   func(c *engine.Counters) int { return c.PromptTokens - c.CachedTokens },
		`source="local_cache_hit"`: func(c *engine.Counters) int { return c.CachedTokens },
	},
	"vllm:prompt_tokens_cached_by_source_total": {
		`source="device"`: func(c *engine.Counters) int { return c.CachedTokens },
	},
}

// vllmTokenHistograms are the live histograms of an engine, besides those of a server
// with slots.
var vllmTokenHistograms = map[string]func(*tokens) *histogram{
	"vllm:time_to_first_token_seconds":           func(t *tokens) *histogram { return &t.firstToken },
	"vllm:inter_token_latency_seconds":           func(t *tokens) *histogram { return &t.interToken },
	"vllm:request_time_per_output_token_seconds": func(t *tokens) *histogram { return &t.perToken },
	"vllm:request_prefill_time_seconds":          func(t *tokens) *histogram { return &t.prefillTime },
	"vllm:request_decode_time_seconds":           func(t *tokens) *histogram { return &t.decodeTime },
	"vllm:request_prompt_tokens":                 func(t *tokens) *histogram { return &t.prompt },
	"vllm:request_generation_tokens":             func(t *tokens) *histogram { return &t.output },
	"vllm:request_prefill_kv_computed_tokens":    func(t *tokens) *histogram { return &t.computed },
	"vllm:iteration_tokens_total":                func(t *tokens) *histogram { return &t.iteration },
}

// liveTokens returns the source of the value of each live series of an engine.
func liveTokens(series string) live {
	name, labels, _ := strings.Cut(series, "{")
	if of, ok := vllmCounters[name]; ok {
		return func(r state) float64 { return float64(of(&r.tokens.Counters)) }
	}
	if sources, ok := vllmSources[name]; ok {
		for label, of := range sources {
			if strings.Contains(labels, label) {
				return func(r state) float64 { return float64(of(&r.tokens.Counters)) }
			}
		}
		return zero
	}
	for base, of := range vllmTokenHistograms {
		if suffix, ok := strings.CutPrefix(name, base+"_"); ok {
			return liveHistogram("_"+suffix, labels, func(r state) *histogram { return of(r.tokens) })
		}
	}
	return liveVLLM(series)
}
