package modelserver

import (
	"errors"
	"fmt"
	"strings"

	"github.com/prometheus/common/model"

	"steelyard/internal/engines"
)

// Engine is the kind of a model server, which decides which series mean what.
type Engine string

// The engines that can be read.
const (
	EngineVLLM        Engine = engines.VLLM
	EngineTriton      Engine = engines.Triton
	EngineTensorRTLLM Engine = engines.TensorRTLLM
	EngineSGLang      Engine = engines.SGLang
	EngineTGI         Engine = engines.TGI
	EngineCustom      Engine = engines.Custom
)

// Engines lists the engines in the order in which they are documented.
func Engines() []Engine {
	var all []Engine
	for _, name := range engines.Names() {
		all = append(all, Engine(name))
	}
	return all
}

// RecordedVersion is the version of an engine of which a page was recorded, in testdata/recorded: it exports all series
// that are read of the engine. Of the others it is not known, and empty.
func RecordedVersion(e Engine) string {
	return map[Engine]string{EngineVLLM: "0.32.0", EngineTriton: "2.51.0"}[e]
}

// Custom names the series of EngineCustom. Any may be empty, which leaves its
// field unknown, but not all. Samples of one series that differ in labels are
// added up, except that of Utilization the largest counts.
type Custom struct {
	Queue       string // gauge: requests waiting
	Running     string // gauge: requests executing
	Utilization string // gauge: share of the scarce memory in use, 0..1
	Completions string // counter: requests completed
}

// A series selects samples of a metrics body by name and, optionally, label.
type series struct {
	name string
	// With label set, only samples whose label has this value are taken. A label
	// that is absent has the value "", as in Prometheus' own selectors.
	label, value string
	// With except set, only samples whose label has another value than this are taken.
	except string
	// With sameModelAs set, only samples whose label "model" also occurs in the
	// series of that name are taken.
	sameModelAs string
	// With number set, the value is that of the label of this name.
	number string
	// With optional set, the source gives a value without samples of it, too: a server has them or not.
	optional bool
}

// String returns the selector as one would write it in PromQL.
func (s series) String() string {
	if s.number != "" {
		return fmt.Sprintf("label %s of %s", s.number, s.name)
	}
	switch {
	case s.label == "":
		return s.name
	case s.except != "":
		return fmt.Sprintf("%s{%s!=%q}", s.name, s.label, s.except)
	}
	return fmt.Sprintf("%s{%s=%q}", s.name, s.label, s.value)
}

// combine is how the samples of a field become one number.
type combine string

const (
	sum     combine = "sum"
	maximum combine = "max"
	minimum combine = "min"
)

// A source is one way to measure a field. It gives a value only if each of its
// series that is not optional has a sample: a sum that lacks a part would be a wrong number.
type source struct {
	series  []series
	combine combine
	per     float64 // how many units of the series make one unit of the field
}

// A fieldSources lists the ways to measure a field; the first one that the body
// can serve wins.
type fieldSources struct {
	field   Field
	sources []source
}

// Helpers for the table below: the sum or the largest of a series, and a sum of times in microseconds.
func total(s ...series) source        { return source{series: s, combine: sum, per: 1} }
func largest(s series) source         { return source{series: []series{s}, combine: maximum, per: 1} }
func smallest(s series) source        { return source{series: []series{s}, combine: minimum, per: 1} }
func microseconds(s ...series) source { return source{series: s, combine: sum, per: 1e6} }
func named(name string) series        { return series{name: name} }
func labelled(name, label, value string) series {
	return series{name: name, label: label, value: value}
}

// Series of Triton's TensorRT-LLM backend.
const (
	backendRequests = "nv_trt_llm_request_metrics"
	backendBlocks   = "nv_trt_llm_kv_cache_block_metrics"
	backendPrompts  = "nv_llm_input_token_len"
	backendOutputs  = "nv_llm_output_token_len"
	backendGeneral  = "nv_trt_llm_general_metrics"
)

// sglangTokens counts the tokens of each batch as it is computed: prompts, those that a prefix cache answered, and
// outputs, by the label "mode".
const sglangTokens = "sglang:realtime_tokens_total"

// sglangQueues are the requests that wait in the scheduler and, where prefill and decode are separate servers, in the
// queues for that: for a partner (bootstrap; prealloc in older versions), for memory (prealloc), and for the transfer
// of the cache (inflight, transfer). Those whose grammar is compiled are in none of these yet.
func sglangQueues() []series {
	all := []series{labelled("sglang:num_queue_reqs", "priority", "")}
	for _, queue := range []string{"grammar", "prefill_bootstrap", "prefill_prealloc", "prefill_inflight",
		"decode_prealloc", "decode_transfer"} {
		s := labelled("sglang:num_"+queue+"_queue_reqs", "priority", "")
		s.optional = true
		all = append(all, s)
	}
	return all
}

// vllmCompletions are the requests that finished, but for those that failed inside vLLM.
func vllmCompletions(name string) series {
	return series{name: name, label: "finished_reason", except: "error"}
}

// exported is the table of doc.go: which series of an engine give which field. A field that is left out is not
// exported.
var exported = map[Engine]map[Field][]source{
	EngineVLLM: {
		FieldQueue:   {total(named("vllm:num_requests_waiting"))},
		FieldRunning: {total(named("vllm:num_requests_running"))},
		FieldUtilization: {largest(named("vllm:kv_cache_usage_perc")),
			largest(named("vllm:gpu_cache_usage_perc"))}, // its older name
		FieldBlockTokens: {largest(series{name: "vllm:cache_config_info", number: "block_size"})},
		FieldAwake:       {smallest(labelled("vllm:engine_sleep_state", "sleep_state", "awake"))},
		FieldCompletions: {total(vllmCompletions("vllm:request_success_total")),
			total(vllmCompletions("vllm:request_success"))}, // exporters that drop the suffix
		FieldQueueSeconds: {total(named("vllm:request_queue_time_seconds_sum"))},
		FieldBusySeconds:  {total(named("vllm:request_inference_time_seconds_sum"))},
		FieldPromptTokens: {total(named("vllm:prompt_tokens_total")), total(named("vllm:prompt_tokens"))},
		FieldCachedTokens: {total(named("vllm:prompt_tokens_cached_total")),
			total(named("vllm:prefix_cache_hits_total")), // older, with the prompts of preempted requests
			total(named("vllm:gpu_prefix_cache_hits_total"))},
		FieldGeneratedTokens: {total(named("vllm:generation_tokens_total")), total(named("vllm:generation_tokens"))},
		FieldFirstTokens:     {total(named("vllm:time_to_first_token_seconds_count"))},
		FieldIterations:      {total(named("vllm:iteration_tokens_total_count"))},
	},
	EngineTriton: {
		FieldQueue:        {total(named("nv_inference_pending_request_count"))},
		FieldCompletions:  {total(named("nv_inference_request_success"))},
		FieldQueueSeconds: {microseconds(named("nv_inference_queue_duration_us"))},
		FieldBusySeconds: {microseconds(named("nv_inference_compute_input_duration_us"),
			named("nv_inference_compute_infer_duration_us"), named("nv_inference_compute_output_duration_us"))},
	},
	EngineTensorRTLLM: {
		FieldQueue: {total(labelled(backendRequests, "request_type", "waiting")),
			total(named("trtllm_num_requests_waiting"))},
		FieldRunning: {total(labelled(backendRequests, "request_type", "scheduled")),
			total(named("trtllm_num_requests_running"))},
		FieldUtilization: {largest(labelled(backendBlocks, "kv_cache_block_type", "fraction")),
			largest(named("trtllm_kv_cache_utilization"))},
		FieldBlockTokens: {largest(labelled(backendBlocks, "kv_cache_block_type", "tokens_per")),
			largest(named("trtllm_kv_cache_tokens_per_block"))},
		FieldCompletions: {total(series{name: "nv_inference_request_success", sameModelAs: backendRequests}),
			total(named("trtllm_request_success_total")), total(named("trtllm_num_requests_completed_total"))},
		FieldQueueSeconds: {total(named("trtllm_request_queue_time_seconds_sum"))},
		FieldBusySeconds:  {total(named("trtllm_request_inference_time_seconds_sum"))},
		// A request's tokens are counted when it ends.
		FieldPromptTokens:    {total(named(backendPrompts + "_sum")), total(named("trtllm_prompt_tokens_total"))},
		FieldCachedTokens:    {total(named("trtllm_prompt_cached_tokens_total"))},
		FieldGeneratedTokens: {total(named(backendOutputs + "_sum")), total(named("trtllm_generation_tokens_total"))},
		FieldFirstTokens: {total(named(backendPrompts + "_count")),
			total(named("trtllm_time_to_first_token_seconds_count"))},
		FieldIterations: {total(labelled(backendGeneral, "general_type", "iteration_counter"))},
	},
	EngineSGLang: {
		FieldQueue:       {total(sglangQueues()...)},
		FieldRunning:     {total(labelled("sglang:num_running_reqs", "priority", ""))},
		FieldUtilization: {largest(named("sglang:token_usage"))},
		FieldBlockTokens: {largest(named("sglang:page_size")),
			largest(series{name: "sglang:cache_config_info", number: "page_size"})}, // before v0.5.11
		FieldCompletions:  {total(named("sglang:num_requests_total"))},
		FieldQueueSeconds: {total(named("sglang:queue_time_seconds_sum"))},
		// All of its latencies contain the queue: none is of execution.
		// The older counts of tokens rise when a request ends.
		FieldPromptTokens: {total(series{name: sglangTokens, label: "mode", except: "decode"}),
			total(named("sglang:prompt_tokens_total"))},
		FieldCachedTokens: {total(labelled(sglangTokens, "mode", "prefill_cache")),
			total(named("sglang:cached_tokens_total"))},
		FieldGeneratedTokens: {total(labelled(sglangTokens, "mode", "decode")),
			total(named("sglang:generation_tokens_total"))},
		FieldFirstTokens: {total(named("sglang:time_to_first_token_seconds_count"))},
	},
	EngineTGI: {
		FieldQueue:           {total(named("tgi_queue_size"))},
		FieldRunning:         {total(named("tgi_batch_current_size"))},
		FieldCompletions:     {total(named("tgi_request_success"))},
		FieldQueueSeconds:    {total(named("tgi_request_queue_duration_sum"))},
		FieldBusySeconds:     {total(named("tgi_request_inference_duration_sum"))},
		FieldPromptTokens:    {total(named("tgi_request_input_length_sum"))},
		FieldGeneratedTokens: {total(named("tgi_request_generated_tokens_sum"))},
		FieldFirstTokens:     {total(named("tgi_request_queue_duration_count"))},
		FieldIterations:      {total(named("tgi_batch_inference_count"))},
	},
}

// sourcesOf returns the ways to measure each field of an engine's pages, in the order of the fields; nil for an engine
// that is not known.
func sourcesOf(e Engine, c Custom) (all []fieldSources) {
	of := exported[e]
	if e == EngineCustom {
		of = customSources(c)
	}
	if of == nil {
		return nil
	}
	for _, f := range fields {
		all = append(all, fieldSources{f, of[f]})
	}
	return all
}

func customSources(c Custom) map[Field][]source {
	of := make(map[Field][]source)
	names := map[Field]string{FieldQueue: c.Queue, FieldRunning: c.Running, FieldCompletions: c.Completions}
	for f, name := range names {
		if name != "" {
			of[f] = []source{total(named(name))}
		}
	}
	if c.Utilization != "" {
		of[FieldUtilization] = []source{largest(named(c.Utilization))}
	}
	return of
}

// validate checks the engine and the names that go with it.
func validate(e Engine, c Custom) error {
	if e != EngineCustom {
		if sourcesOf(e, c) == nil {
			return fmt.Errorf("unknown engine %q: write one of %s", e, strings.Join(engines.Names(), ", "))
		}
		if c != (Custom{}) {
			return fmt.Errorf("series names are given, but the engine is %q: leave them out or write engine %q", e,
				EngineCustom)
		}
		return nil
	}
	if c == (Custom{}) {
		return errors.New("engine \"custom\" needs at least one series name: queue, running, utilization or " +
			"completions")
	}
	for _, s := range []struct{ field, name string }{
		{"queue", c.Queue}, {"running", c.Running}, {"utilization", c.Utilization}, {"completions", c.Completions},
	} {
		if s.name != "" && !model.LegacyValidation.IsValidMetricName(s.name) {
			return fmt.Errorf("%s: %q is not a valid series name: letters, digits, '_' and ':', without labels",
				s.field, s.name)
		}
	}
	return nil
}
