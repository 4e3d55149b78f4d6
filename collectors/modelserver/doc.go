// Package modelserver reads the load of a model server from the body of its metrics page: bytes in, a [Report] out. It
// is pure: no clock, no network, no log. Package scrape fetches the bodies and calls it four times a second for every
// server of a fleet, so its cost matters; `steelyard inspect` calls [Reader.Explain] to show which series gave which
// number.
//
// It does not weigh anything: what a queue means for a weight is decided in package weighting.
//
// # Which series give which field
//
// Samples that differ in labels are parts (engines of data parallelism, models, versions, reasons of finishing), or
// copies that processes or ranks export of the same number. copies.go has the labels of copies, by engine, with their
// sources. Of copies the largest counts, once; parts are added up. Of the utilization the largest is taken, because the
// fullest cache is the one that makes requests wait. Where several ways to measure a field are named, the first that
// the body serves wins; of a sum, every part must be there.
//
//	vllm          queue          vllm:num_requests_waiting
//	              running        vllm:num_requests_running
//	              utilization    max vllm:kv_cache_usage_perc, or max vllm:gpu_cache_usage_perc (older)
//	              block_tokens   max label block_size of vllm:cache_config_info
//	              awake          min vllm:engine_sleep_state{sleep_state="awake"}
//	              completions    vllm:request_success_total or vllm:request_success, {finished_reason!="error"}
//	              queue_seconds  vllm:request_queue_time_seconds_sum
//	              busy_seconds   vllm:request_inference_time_seconds_sum
//	              prompt_tokens     vllm:prompt_tokens_total, or vllm:prompt_tokens
//	              cached_tokens     vllm:prompt_tokens_cached_total, or vllm:prefix_cache_hits_total,
//	                                or vllm:gpu_prefix_cache_hits_total (older)
//	              generated_tokens  vllm:generation_tokens_total, or vllm:generation_tokens
//	              first_tokens      vllm:time_to_first_token_seconds_count
//	              iterations        vllm:iteration_tokens_total_count
//	triton        queue          nv_inference_pending_request_count
//	              completions    nv_inference_request_success
//	              queue_seconds  nv_inference_queue_duration_us / 1e6
//	              busy_seconds   nv_inference_compute_{input,infer,output}_duration_us / 1e6, added up
//	tensorrt-llm  queue          nv_trt_llm_request_metrics{request_type="waiting"}, or trtllm_num_requests_waiting
//	              running        nv_trt_llm_request_metrics{request_type="scheduled"}, or trtllm_num_requests_running
//	              utilization    max nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction"},
//	                             or max trtllm_kv_cache_utilization
//	              block_tokens   max nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="tokens_per"},
//	                             or max trtllm_kv_cache_tokens_per_block
//	              completions    nv_inference_request_success of the models in nv_trt_llm_request_metrics,
//	                             or trtllm_request_success_total, or trtllm_num_requests_completed_total
//	              queue_seconds  trtllm_request_queue_time_seconds_sum
//	              busy_seconds   trtllm_request_inference_time_seconds_sum
//	              prompt_tokens     nv_llm_input_token_len_sum, or trtllm_prompt_tokens_total
//	              cached_tokens     trtllm_prompt_cached_tokens_total
//	              generated_tokens  nv_llm_output_token_len_sum, or trtllm_generation_tokens_total
//	              first_tokens      nv_llm_input_token_len_count, or trtllm_time_to_first_token_seconds_count: all of
//	                                requests that ended; late by their time
//	              iterations        nv_trt_llm_general_metrics{general_type="iteration_counter"}
//	sglang        queue          sglang:num_queue_reqs{priority=""}, and those of these that there are, also with
//	                             {priority=""}: sglang:num_grammar_queue_reqs, sglang:num_prefill_bootstrap_queue_reqs
//	                             (in older versions sglang:num_prefill_prealloc_queue_reqs),
//	                             sglang:num_prefill_inflight_queue_reqs, sglang:num_decode_prealloc_queue_reqs,
//	                             sglang:num_decode_transfer_queue_reqs
//	              running        sglang:num_running_reqs{priority=""}
//	              utilization    max sglang:token_usage
//	              block_tokens   max sglang:page_size, or max label page_size of sglang:cache_config_info (older)
//	              completions    sglang:num_requests_total
//	              queue_seconds  sglang:queue_time_seconds_sum
//	              prompt_tokens     sglang:realtime_tokens_total{mode!="decode"},
//	                                or sglang:prompt_tokens_total (of requests that ended)
//	              cached_tokens     sglang:realtime_tokens_total{mode="prefill_cache"},
//	                                or sglang:cached_tokens_total (of requests that ended)
//	              generated_tokens  sglang:realtime_tokens_total{mode="decode"},
//	                                or sglang:generation_tokens_total (of requests that ended)
//	              first_tokens      sglang:time_to_first_token_seconds_count
//	tgi           queue          tgi_queue_size
//	              running        tgi_batch_current_size
//	              completions    tgi_request_success
//	              queue_seconds  tgi_request_queue_duration_sum
//	              busy_seconds   tgi_request_inference_duration_sum
//	              prompt_tokens     tgi_request_input_length_sum
//	              generated_tokens  tgi_request_generated_tokens_sum
//	              first_tokens      tgi_request_queue_duration_count: of requests that ended; late by their time
//	              iterations        tgi_batch_inference_count
//	custom        as the user names them; utilization max, the others added up
//
// Names of vLLM (0.32.0) and Triton (2.51.0) are checked against bodies recorded
// from these servers (testdata/recorded). The others come from their
// documentation and source:
//   - TensorRT-LLM in Triton: "Triton Metrics" in the README of
//     triton-inference-server/tensorrtllm_backend;
//   - trtllm-serve: tensorrt_llm/metrics/collector.py in NVIDIA/TensorRT-LLM. Its
//     gauges need enable_iter_perf_stats, its histograms and counts of tokens
//     return_perf_metrics, the latter also a version since April 2026;
//   - SGLang: docs.sglang.io "Production Metrics" and
//     python/sglang/srt/observability/metrics_collector.py in sgl-project/sglang. SGLang's own load (get_loads in
//     scheduler_metrics_mixin.py) counts the bootstrap, prealloc and transfer queues as waiting, too; those in the
//     inflight queue wait for the transfer that makes room for others. A request waits in the queue for grammars
//     before it is in num_queue_reqs.
//     num_requests_total counts requests when they finish. With priority
//     scheduling the total stands under priority="" and each priority repeats a
//     part of it, hence the selector, which also takes series without that label;
//   - TGI: huggingface.co/docs/text-generation-inference "Metrics".
//
// No failure of any engine is a completion: a server that refuses what it cannot serve would look like a fast one.
//
// Known limits. Triton counts a request to an ensemble once for the ensemble and
// once for each step of it, so engine triton sees more completions than there
// were requests, always by the same factor. Series whose name
// stands within the braces (the quoted UTF-8 form) are not found.
//
// The series of vLLM's sleep mode is described in its HELP line: awake is 0 while the engine sleeps, whatever the
// level.
//
// # What is unknown
//
// A field is unknown, never zero, when its series is missing; when any sample that it is made of does not parse, is
// negative, infinite or not a number (Triton prints "Nan" for what it has not measured, vLLM labels "None"); when a
// sample has more than 64 labels, or 16 KiB of them, as expfmt compares each label with all before it; while more of
// its series are new than are parsed of one body; when a series occurs twice with different values, as either may be
// wrong; when a share is above 1; and when a sum leaves the range of float64. A series that occurs twice with the same
// value is one. None of that is an error while another field of load is known: a server may stop exporting one series
// and go on with the others. [Reader.Explain] shows what is wrong.
//
// Prometheus refuses a page with any line that does not parse. Lines of series that are not wanted are not parsed here,
// so whatever is wrong with them costs nothing, and a wanted one costs its own number only: half of a load is better
// than none, and what is missing is shown.
//
// A body without one known field of load is an error, and so is one that is no page of metrics (JSON, HTML), and one
// that is cut in mid-line, since half a number is a wrong number; one of OpenMetrics may end with "# EOF", after which
// nothing counts. A body that is cut between lines cannot be distinguished from a short one here: the transport must
// notice that.
//
// # How it is fast
//
// A vLLM body has 600 lines of which twenty matter. The reader finds these by their first bytes, and leaves the grammar
// of their labels to prometheus/common. From one body to the next only values change, so it remembers what each text of
// name and labels stands for, up to a bound, as Prometheus' own scrape cache does: expfmt is called for new series
// only. BenchmarkRead and BenchmarkWhole show the difference to a parse of the whole body. FuzzRead checks that both
// give the same result. Of the two parsers of Prometheus, model/textparse is the faster (13 µs for the lines of a vLLM
// page, and 89 µs for expfmt), but remembering is faster than both, and expfmt is a dependency already.
package modelserver
