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
	// With sameModelAs set, only samples whose label "model" also occurs in the
	// series of that name are taken.
	sameModelAs string
	// With number set, the value is that of the label of this name.
	number string
}

// String returns the selector as one would write it in PromQL.
func (s series) String() string {
	if s.number != "" {
		return fmt.Sprintf("label %s of %s", s.number, s.name)
	}
	if s.label == "" {
		return s.name
	}
	return fmt.Sprintf("%s{%s=%q}", s.name, s.label, s.value)
}

// combine is how the samples of a field become one number.
type combine string

const (
	sum     combine = "sum"
	maximum combine = "max"
)

// A source is one way to measure a field. It gives a value only if each of its
// series has a sample: a sum that lacks a part would be a wrong number.
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

// from, largest and summed are helpers for the tables below.
func from(f Field, s ...source) fieldSources { return fieldSources{field: f, sources: s} }
func largest(s series) source                { return source{series: []series{s}, combine: maximum, per: 1} }
func summed(per float64, s ...series) source {
	return source{series: s, combine: sum, per: per}
}
func named(name string) series { return series{name: name} }
func labelled(name, label, value string) series {
	return series{name: name, label: label, value: value}
}

// microseconds is how many of Triton's units of time make a second.
const microseconds = 1e6

// sourcesOf is the table of doc.go: which series of an engine give which field.
func sourcesOf(e Engine, c Custom) []fieldSources {
	switch e {
	case EngineVLLM:
		return vllmSources()
	case EngineTriton:
		return tritonSources()
	case EngineTensorRTLLM:
		return tensorRTLLMSources()
	case EngineSGLang:
		return sglangSources()
	case EngineTGI:
		return tgiSources()
	case EngineCustom:
		return customSources(c)
	}
	return nil
}

func vllmSources() []fieldSources {
	return []fieldSources{
		from(FieldQueue, summed(1, named("vllm:num_requests_waiting"))),
		from(FieldRunning, summed(1, named("vllm:num_requests_running"))),
		from(FieldUtilization,
			largest(named("vllm:kv_cache_usage_perc")),
			largest(named("vllm:gpu_cache_usage_perc"))), // its older name
		from(FieldBlockTokens, largest(series{name: "vllm:cache_config_info", number: "block_size"})),
		from(FieldCompletions,
			summed(1, named("vllm:request_success_total")),
			summed(1, named("vllm:request_success"))), // exporters that drop the suffix
		from(FieldQueueSeconds, summed(1, named("vllm:request_queue_time_seconds_sum"))),
		from(FieldBusySeconds, summed(1, named("vllm:request_inference_time_seconds_sum"))),
		from(FieldPromptTokens, summed(1, named("vllm:prompt_tokens_total")), summed(1, named("vllm:prompt_tokens"))),
		from(FieldCachedTokens,
			summed(1, named("vllm:prompt_tokens_cached_total")),
			summed(1, named("vllm:prefix_cache_hits_total")), // older, with the prompts of preempted requests
			summed(1, named("vllm:gpu_prefix_cache_hits_total"))),
		from(FieldGeneratedTokens,
			summed(1, named("vllm:generation_tokens_total")), summed(1, named("vllm:generation_tokens"))),
		from(FieldFirstTokens, summed(1, named("vllm:time_to_first_token_seconds_count"))),
		from(FieldIterations, summed(1, named("vllm:iteration_tokens_total_count"))),
	}
}

func tritonSources() []fieldSources {
	success, failure := named("nv_inference_request_success"), named("nv_inference_request_failure")
	return []fieldSources{
		from(FieldQueue, summed(1, named("nv_inference_pending_request_count"))),
		from(FieldRunning),     // not exported
		from(FieldUtilization), // not exported
		from(FieldBlockTokens),
		from(FieldCompletions, summed(1, success, failure), summed(1, success)),
		from(FieldQueueSeconds, summed(microseconds, named("nv_inference_queue_duration_us"))),
		from(FieldBusySeconds, summed(microseconds,
			named("nv_inference_compute_input_duration_us"),
			named("nv_inference_compute_infer_duration_us"),
			named("nv_inference_compute_output_duration_us"))),
		from(FieldPromptTokens), from(FieldCachedTokens), from(FieldGeneratedTokens), from(FieldFirstTokens),
		from(FieldIterations),
	}
}

func tensorRTLLMSources() []fieldSources {
	const requests, blocks = "nv_trt_llm_request_metrics", "nv_trt_llm_kv_cache_block_metrics"
	return []fieldSources{
		from(FieldQueue,
			summed(1, labelled(requests, "request_type", "waiting")),
			summed(1, named("trtllm_num_requests_waiting"))),
		from(FieldRunning,
			summed(1, labelled(requests, "request_type", "scheduled")),
			summed(1, named("trtllm_num_requests_running"))),
		from(FieldUtilization,
			largest(labelled(blocks, "kv_cache_block_type", "fraction")),
			largest(named("trtllm_kv_cache_utilization"))),
		from(FieldBlockTokens,
			largest(labelled(blocks, "kv_cache_block_type", "tokens_per")),
			largest(named("trtllm_kv_cache_tokens_per_block"))),
		from(FieldCompletions,
			summed(1, series{name: "nv_inference_request_success", sameModelAs: requests}),
			summed(1, named("trtllm_request_success_total")),
			summed(1, named("trtllm_num_requests_completed_total"))),
		from(FieldQueueSeconds, summed(1, named("trtllm_request_queue_time_seconds_sum"))),
		from(FieldBusySeconds, summed(1, named("trtllm_request_inference_time_seconds_sum"))),
		from(FieldPromptTokens), from(FieldCachedTokens), from(FieldGeneratedTokens), // not exported
		from(FieldFirstTokens, summed(1, named("trtllm_time_to_first_token_seconds_count"))),
		from(FieldIterations),
	}
}

func sglangSources() []fieldSources {
	return []fieldSources{
		from(FieldQueue, summed(1, labelled("sglang:num_queue_reqs", "priority", ""))),
		from(FieldRunning, summed(1, labelled("sglang:num_running_reqs", "priority", ""))),
		from(FieldUtilization, largest(named("sglang:token_usage"))),
		from(FieldBlockTokens, largest(series{name: "sglang:cache_config_info", number: "page_size"})),
		from(FieldCompletions, summed(1, named("sglang:num_requests_total"))),
		from(FieldQueueSeconds, summed(1, named("sglang:queue_time_seconds_sum"))),
		from(FieldBusySeconds), // only latencies that contain the queue
		from(FieldPromptTokens, summed(1, named("sglang:prompt_tokens_total"))),
		from(FieldCachedTokens, summed(1, named("sglang:cached_tokens_total"))),
		from(FieldGeneratedTokens, summed(1, named("sglang:generation_tokens_total"))),
		from(FieldFirstTokens, summed(1, named("sglang:time_to_first_token_seconds_count"))),
		from(FieldIterations),
	}
}

func tgiSources() []fieldSources {
	return []fieldSources{
		from(FieldQueue, summed(1, named("tgi_queue_size"))),
		from(FieldRunning, summed(1, named("tgi_batch_current_size"))),
		from(FieldUtilization), // not exported
		from(FieldBlockTokens),
		from(FieldCompletions, summed(1, named("tgi_request_success"))),
		from(FieldQueueSeconds, summed(1, named("tgi_request_queue_duration_sum"))),
		from(FieldBusySeconds, summed(1, named("tgi_request_inference_duration_sum"))),
		from(FieldPromptTokens, summed(1, named("tgi_request_input_length_sum"))),
		from(FieldCachedTokens),
		from(FieldGeneratedTokens, summed(1, named("tgi_request_generated_tokens_sum"))),
		from(FieldFirstTokens, summed(1, named("tgi_request_queue_duration_count"))),
		from(FieldIterations, summed(1, named("tgi_batch_inference_count"))),
	}
}

func customSources(c Custom) []fieldSources {
	optional := func(f Field, name string, combined func(series) source) fieldSources {
		if name == "" {
			return from(f)
		}
		return from(f, combined(named(name)))
	}
	total := func(s series) source { return summed(1, s) }
	return []fieldSources{
		optional(FieldQueue, c.Queue, total),
		optional(FieldRunning, c.Running, total),
		optional(FieldUtilization, c.Utilization, largest),
		from(FieldBlockTokens),
		optional(FieldCompletions, c.Completions, total),
		from(FieldQueueSeconds),
		from(FieldBusySeconds),
		from(FieldPromptTokens), from(FieldCachedTokens), from(FieldGeneratedTokens), from(FieldFirstTokens),
		from(FieldIterations),
	}
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
