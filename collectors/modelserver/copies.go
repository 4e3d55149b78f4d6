package modelserver

// A labelMeaning says what it means when series of a name differ in a label.
type labelMeaning struct {
	label  string
	copies bool   // they repeat one number; else each is a part of it
	source string // where this is documented, or follows from
}

// labelMeanings is the one table of which labels distinguish copies, by engine. A label that is not in it distinguishes
// parts: only a label that is known to repeat numbers may hide some. So it lists parts only where they could be taken
// for copies.
//
// Parts are added up, and the counters of one may begin again by themselves ([Counters]). Of copies the largest counts,
// since one that is read a moment before the others shows less.
var labelMeanings = map[Engine][]labelMeaning{
	EngineVLLM: {
		processes,
		{"engine", false, "an engine core of data parallelism, with its own scheduler: " +
			"vllm/v1/metrics/loggers.py in vllm-project/vllm"},
	},
	EngineSGLang: {
		processes,
		{"dp_rank", false, "a scheduler with requests of its own: " +
			"python/sglang/srt/observability/metrics_collector.py in sgl-project/sglang"},
		{"tp_rank", true, "the ranks of a scheduler have the same requests. With context parallelism, and with " +
			"--enable-metrics-for-all-schedulers, all of them export: github.com/sgl-project/sglang/issues/31896"},
		{"pp_rank", true, "each stage of a pipeline has all requests, and exports (its attn_tp_rank is 0): " +
			"scheduler_metrics_mixin.py, in the same folder"},
		{"moe_ep_rank", true, "experts are spread over the ranks of the schedulers: metrics_collector.py"},
		{"cp_rank", true, "context parallelism, if a version shows it: github.com/sgl-project/sglang/pull/38825"},
		{"attn_cp_rank", true, "the same, by its name in the source"},
	},
	EngineTensorRTLLM: {
		processes,
		{"model", false, "a model of a Triton: docs/user_guide/metrics.md in triton-inference-server/server"},
		{"version", false, "the same"},
	},
	EngineTriton: {
		{"model", false, "it has its own queue: docs/user_guide/metrics.md in triton-inference-server/server"},
		{"version", false, "the same"},
	},
	EngineTGI: {
		{"method", false, "prefill or next_token, which are different batches: \"Metrics\" in " +
			"huggingface.co/docs/text-generation-inference"},
	},
	EngineCustom: {
		{"pid", false, "each process of your own server may count its own requests. If it does not, the " +
			"gauge needs the multiprocess_mode mostrecent or max: prometheus.github.io/client_python/multiprocess"},
	},
}

// processes is the label of a gauge in each process of a server, in the engines that have it: they export what each
// process heard last of the same schedulers.
var processes = labelMeaning{"pid", true, "the multiprocess_mode of a gauge that names none: " +
	"prometheus.github.io/client_python/multiprocess; github.com/vllm-project/vllm/pull/18053"}

// labelsOfEngine returns the labels by which copies differ in the pages of an engine, and those by which parts differ.
func labelsOfEngine(e Engine) (copies, parts []string) {
	for _, m := range labelMeanings[e] {
		if m.copies {
			copies = append(copies, m.label)
		} else {
			parts = append(parts, m.label)
		}
	}
	return copies, parts
}
