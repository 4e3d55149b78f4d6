package modelserver

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestSeriesThatRepeatNumbersAreReadOnce has a page for each way in which engines write a number more than once, or in
// parts: the fields that are not named are unknown.
func TestSeriesThatRepeatNumbersAreReadOnce(t *testing.T) {
	ranks := func(name string, values ...float64) (lines string) { // of one SGLang, by tensor parallel rank
		for rank, v := range values {
			lines += fmt.Sprintf("%s{engine_type=\"unified\",moe_ep_rank=\"%d\",pp_rank=\"0\",tp_rank=\"%d\"} %v\n",
				name, rank/2, rank, v)
		}
		return lines
	}
	for _, c := range []struct {
		name       string
		engine     Engine
		page, want string
		samples    int // samples behind the number of running requests
	}{
		{name: "processes of a vLLM", engine: EngineVLLM, want: "queue=3 running=40", samples: 1,
			page: `vllm:num_requests_running{engine="0",pid="120"} 40
vllm:num_requests_running{engine="0",pid="121"} 40
vllm:num_requests_waiting{engine="0",pid="120"} 3
vllm:num_requests_waiting{engine="0",pid="121"} 3
`},
		{name: "processes of a vLLM with two engines", engine: EngineVLLM, want: "running=60", samples: 2,
			page: `vllm:num_requests_running{engine="0",pid="120"} 40
vllm:num_requests_running{engine="1",pid="120"} 20
vllm:num_requests_running{engine="0",pid="121"} 40
vllm:num_requests_running{engine="1",pid="121"} 20
`},
		{name: "one process is behind", engine: EngineVLLM, want: "running=41", samples: 1,
			page: "vllm:num_requests_running{pid=\"1\"} 40\nvllm:num_requests_running{pid=\"2\"} 41\n" +
				"vllm:num_requests_running 0\n"},
		{name: "one process has garbage", engine: EngineVLLM, want: "queue=1",
			page: "vllm:num_requests_running{pid=\"1\"} 40\nvllm:num_requests_running{pid=\"2\"} NaN\n" +
				"vllm:num_requests_waiting 1\n"},
		{name: "a counter of two processes", engine: EngineVLLM, want: "queue=0 completions=9",
			page: "vllm:num_requests_waiting 0\n" +
				"vllm:request_success_total{finished_reason=\"stop\",pid=\"1\"} 7\n" +
				"vllm:request_success_total{finished_reason=\"stop\",pid=\"2\"} 7\n" +
				"vllm:request_success_total{finished_reason=\"abort\",pid=\"2\"} 2\n"},
		{name: "context parallelism of an SGLang", engine: EngineSGLang, want: "queue=1 running=4 utilization=0.3",
			samples: 1,
			page: ranks("sglang:num_running_reqs", 4, 4, 4, 4) + ranks("sglang:num_queue_reqs", 1, 1, 1, 1) +
				ranks("sglang:token_usage", 0.3, 0.3, 0.3, 0.3)},
		{name: "stages of a pipeline", engine: EngineSGLang, want: "running=5", samples: 1,
			page: `sglang:num_running_reqs{pp_rank="0",tp_rank="0"} 5
sglang:num_running_reqs{pp_rank="1",tp_rank="4"} 5
`},
		{name: "data parallelism with tensor and expert parallelism", engine: EngineSGLang, samples: 4,
			want: "queue=0 running=10 utilization=0.3",
			page: `sglang:num_running_reqs{dp_rank="0",moe_ep_rank="0",tp_rank="0"} 1
sglang:num_queue_reqs{dp_rank="0",moe_ep_rank="0",tp_rank="0"} 0
sglang:token_usage{dp_rank="0",moe_ep_rank="0",tp_rank="0"} 0
sglang:num_running_reqs{dp_rank="1",moe_ep_rank="1",tp_rank="2"} 2
sglang:num_queue_reqs{dp_rank="1",moe_ep_rank="1",tp_rank="2"} 0
sglang:token_usage{dp_rank="1",moe_ep_rank="1",tp_rank="2"} 0.1
sglang:num_running_reqs{dp_rank="2",moe_ep_rank="2",tp_rank="4"} 3
sglang:num_queue_reqs{dp_rank="2",moe_ep_rank="2",tp_rank="4"} 0
sglang:token_usage{dp_rank="2",moe_ep_rank="2",tp_rank="4"} 0.2
sglang:num_running_reqs{dp_rank="3",moe_ep_rank="3",tp_rank="6"} 4
sglang:num_queue_reqs{dp_rank="3",moe_ep_rank="3",tp_rank="6"} 0
sglang:token_usage{dp_rank="3",moe_ep_rank="3",tp_rank="6"} 0.3
`},
		{name: "all schedulers, with data parallelism", engine: EngineSGLang, want: "running=7", samples: 2,
			page: `sglang:num_running_reqs{dp_rank="0",tp_rank="0"} 3
sglang:num_running_reqs{dp_rank="0",tp_rank="1"} 3
sglang:num_running_reqs{dp_rank="1",tp_rank="2"} 4
sglang:num_running_reqs{dp_rank="1",tp_rank="3"} 4
`},
		{name: "versions and models of a Triton that change together", engine: EngineTriton, want: "queue=7",
			page: `nv_inference_pending_request_count{model="m1",version="1"} 3
nv_inference_pending_request_count{model="m2",version="2"} 4
`},
		{name: "labels of one's own that change together", engine: EngineCustom, want: "queue=6 running=2", samples: 2,
			page: `app_queue{gpu="0",worker="0"} 3
app_running{gpu="0",worker="0"} 1
app_queue{gpu="1",worker="1"} 3
app_running{gpu="1",worker="1"} 1
`},
		{name: "processes of one's own", engine: EngineCustom, want: "queue=7",
			page: "app_queue{pid=\"1\"} 3\napp_queue{pid=\"2\"} 4\n"},
		{name: "the queues of a decode server", engine: EngineSGLang, want: "queue=35 running=7", samples: 1,
			page: `sglang:num_running_reqs{engine_type="decode",tp_rank="0"} 7
sglang:num_queue_reqs{engine_type="decode",tp_rank="0"} 1
sglang:num_decode_prealloc_queue_reqs{engine_type="decode",tp_rank="0"} 25
sglang:num_decode_prealloc_queue_reqs{engine_type="decode",tp_rank="1"} 25
sglang:num_decode_transfer_queue_reqs{engine_type="decode",tp_rank="0",priority=""} 9
sglang:num_decode_transfer_queue_reqs{engine_type="decode",tp_rank="0",priority="3"} 9
`},
		{name: "the queues of a prefill server", engine: EngineSGLang, want: "queue=15",
			page: "sglang:num_queue_reqs 1\nsglang:num_prefill_bootstrap_queue_reqs 4\n" +
				"sglang:num_prefill_inflight_queue_reqs 10\n"},
		{name: "the queue of an older prefill server", engine: EngineSGLang, want: "queue=5",
			page: "sglang:num_queue_reqs 1\nsglang:num_prefill_prealloc_queue_reqs 4\n"},
		{name: "the queue for grammars", engine: EngineSGLang, want: "queue=6 running=2", samples: 1,
			page: "sglang:num_running_reqs 2\nsglang:num_queue_reqs 1\nsglang:num_grammar_queue_reqs 5\n"},
		{name: "one of its queues is garbage", engine: EngineSGLang, want: "running=1", samples: 1,
			page: "sglang:num_running_reqs 1\nsglang:num_queue_reqs 1\nsglang:num_prefill_inflight_queue_reqs x\n"},
		{name: "no queue of its scheduler", engine: EngineSGLang, want: "running=1", samples: 1,
			page: "sglang:num_running_reqs 1\nsglang:num_decode_prealloc_queue_reqs 4\n"},
		{name: "an engine that sleeps, of two", engine: EngineVLLM, want: "queue=0 awake=0",
			page: `vllm:num_requests_waiting 0
vllm:engine_sleep_state{engine="0",sleep_state="awake"} 1
vllm:engine_sleep_state{engine="0",sleep_state="discard_all"} 0
vllm:engine_sleep_state{engine="1",sleep_state="awake"} 0
vllm:engine_sleep_state{engine="1",sleep_state="discard_all"} 1
`},
		{name: "an engine that is awake", engine: EngineVLLM, want: "queue=0 awake=1",
			page: `vllm:num_requests_waiting 0
vllm:engine_sleep_state{sleep_state="awake"} 1
vllm:engine_sleep_state{sleep_state="weights_offloaded"} 0
`},
		{name: "no state of sleep that makes sense", engine: EngineVLLM, want: "queue=0",
			page: "vllm:num_requests_waiting 0\nvllm:engine_sleep_state{sleep_state=\"awake\"} 7\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newReader(t, c.engine)
			report, err := r.Read([]byte(c.page))
			if err != nil {
				t.Fatal(err)
			}
			var known []string
			for _, word := range strings.Fields(line(report)) {
				if !strings.HasSuffix(word, "?") {
					known = append(known, word)
				}
			}
			if got := strings.Join(known, " "); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			sources, err := r.Explain([]byte(c.page))
			if err != nil || sources[1].Field != FieldRunning ||
				report.Running.Known && sources[1].Samples != c.samples {
				t.Errorf("running requests: %+v, %v, want %d samples", sources[1], err, c.samples)
			}
		})
	}
}

// TestAnyPageOfDistinctSeriesReadsAsExpfmtReadsIt generates pages in which several labels change together, and compares
// with sums over what expfmt makes of the whole page.
func TestAnyPageOfDistinctSeriesReadsAsExpfmtReadsIt(t *testing.T) {
	labels := []string{"a", "b", "dp_rank", "engine", "mode", "model", "model_name", "moe_ep_rank", "pid", "priority",
		"sleep_state", "tp_rank", "version"}
	rapid.Check(t, func(t *rapid.T) {
		e := rapid.SampledFrom(Engines()).Draw(t, "engine")
		c := Custom{}
		if e == EngineCustom {
			c = Custom{Queue: "app_queue", Running: "app_running", Utilization: "app_memory",
				Completions: "app_done_total"}
		}
		r, err := NewReader(e, c)
		if err != nil {
			t.Fatal(err)
		}
		set := rapid.MapOfN(rapid.SampledFrom(labels), rapid.StringMatching(`[0-3"\\é]{1,2}|awake|decode`), 0, 5)
		page := map[string]int{}
		for range rapid.IntRange(1, 40).Draw(t, "lines") {
			var sample strings.Builder
			sample.WriteString(rapid.SampledFrom(r.picker.names).Draw(t, "name") + "{")
			values := set.Draw(t, "labels")
			for _, name := range slices.Sorted(maps.Keys(values)) {
				escaped := strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(values[name])
				fmt.Fprintf(&sample, "%s=\"%s\",", name, escaped)
			}
			page[sample.String()+"}"] = rapid.IntRange(0, 3).Draw(t, "value")
		}
		var body strings.Builder
		for _, sample := range rapid.Permutation(slices.Sorted(maps.Keys(page))).Draw(t, "order") {
			fmt.Fprintf(&body, "%s %d\n", sample, page[sample])
		}
		for range 2 { // the second time its label sets are known
			report, _ := r.Read([]byte(body.String())) // an error leaves all unknown, and so must the whole page
			whole, err := parseWhole([]byte(body.String()))
			if err != nil {
				t.Fatal(err)
			}
			want := newPlainPage(whole).readWhole(r)
			for _, f := range allFields() {
				if got := *report.number(f); got.Known != want[f].Known ||
					math.Abs(got.Value-want[f].Value) > 1e-9*got.Value {
					t.Fatalf("%s %s: %v, by expfmt %v, of\n%s", e, f, got, want[f], &body)
				}
			}
		}
	})
}

// What is wrong with a number of the load is reported with the others.
func TestAReportNamesTheNumberInDoubt(t *testing.T) {
	for page, want := range map[string]string{
		"app_queue 1\napp_running 1\n": "",
		"app_queue 1\n":                "",
		"app_queue 1\napp_running 1\napp_running 2\n": "app_running occurs twice with the same labels, " +
			"as 1 and as 2",
		"app_queue 1\napp_memory 85\napp_done_total x\n": "app_memory is 85: expected a share, 0 to 1",
		"app_queue 1\napp_done_total x\n":                `line "app_done_total x": "x" is not a number`,
	} {
		if report, err := newReader(t, EngineCustom).Read([]byte(page)); err != nil || report.Doubt != want {
			t.Errorf("%q: %q, %v, want %q", page, report.Doubt, err, want)
		}
	}
	report, err := newReader(t, EngineVLLM).Read(
		[]byte("vllm:num_requests_waiting 1\nvllm:cache_config_info{block_size=\"None\"} 1\n"))
	if err != nil || report.Doubt != "" {
		t.Errorf("a size of blocks that is not resolved yet: %q, %v", report.Doubt, err)
	}
}

// A sum has one series for each part, whichever process or rank a page has it of.
func TestCopiesOfACounterAreOneSeries(t *testing.T) {
	r := newReader(t, EngineSGLang)
	var c Counters
	for i, page := range []string{
		`sglang:num_queue_reqs 0
sglang:realtime_tokens_total{dp_rank="0",mode="decode",tp_rank="0"} 100
sglang:realtime_tokens_total{dp_rank="0",mode="decode",tp_rank="1"} 100
`, `sglang:num_queue_reqs 0
sglang:realtime_tokens_total{dp_rank="0",mode="decode",tp_rank="1"} 150
`} {
		report, err := r.Read([]byte(page))
		if err != nil {
			t.Fatal(err)
		}
		c.Observe(t0.Add(time.Duration(i)*time.Second), report)
		tokens := c.of(FieldGeneratedTokens)
		if want := 100 + 50*float64(i); tokens.sum != want || len(tokens.last) != 1 || c.restarts != 0 {
			t.Errorf("page %d: %v tokens of %d series, %d restarts; want %v", i, tokens.sum, len(tokens.last),
				c.restarts, want)
		}
	}
}

// What is parsed of one page has a bound, with many labels or few; the number in question is unknown meanwhile, and all
// others are read. A page that stays as it is becomes known.
func TestTheWorkForNewLabelSetsHasABound(t *testing.T) {
	for _, c := range []struct{ labels, most int }{{1, 16_200}, {mostLabels, 260}} {
		t.Run(fmt.Sprint(c.labels, " labels"), func(t *testing.T) {
			s := newSamples([]string{"q", "other"}, EngineCustom)
			p := newPicker(s.names)
			page := []byte("other 1\n")
			for i := range 2 * c.most {
				page = fmt.Appendf(page, "q{id=\"%d\"", i)
				for k := range c.labels - 1 {
					page = fmt.Appendf(page, ",l%d=\"\"", k)
				}
				page = append(page, "} 1\n"...)
			}
			s.read(&p, page)
			if n := len(s.texts); n > c.most || n < c.most/2 || !errors.Is(s.faults[0], errManySets) {
				t.Errorf("%d label sets of one page, want about %d; %v", n, c.most, s.faults[0])
			}
			if s.faults[1] != nil || len(s.byName[1]) != 1 {
				t.Errorf("the other number: %d samples, %v", len(s.byName[1]), s.faults[1])
			}
			for range 2 {
				s.read(&p, page)
			}
			if len(s.byName[0]) != 2*c.most || s.faults[0] != nil {
				t.Errorf("%d samples of a page that stays, want %d; %v", len(s.byName[0]), 2*c.most, s.faults[0])
			}
		})
	}
}

// Each label set of a page is new, as those with an id in them may be: what is remembered of them has a bound.
func TestTheMemoryOfLabelSetsHasABound(t *testing.T) {
	s := newSamples([]string{"q"}, EngineCustom)
	p := newPicker(s.names)
	const lines = 100
	long := strings.Repeat("x", mostRemembered/4/lines)
	for i := range 40 {
		page := fmt.Appendf(nil, "q{id=\"%d\"} 1\n", i)
		for k := range lines {
			page = fmt.Appendf(page, "q{text=\"%d %d%s\"} 1\n", i, k, long)
		}
		s.read(&p, page)
		if len(s.byName[0]) != 1+lines || s.faults[0] != nil {
			t.Fatalf("page %d: %d samples, %v", i, len(s.byName[0]), s.faults[0])
		}
		if most := 2 * mostRemembered; s.remembered > most {
			t.Fatalf("page %d: %d bytes are remembered, want %d at most", i, s.remembered, most)
		}
	}
	if len(s.texts)+len(s.sets) > 20*lines {
		t.Errorf("%d texts and %d label sets after 40 pages of %d", len(s.texts), len(s.sets), 1+lines)
	}
}

func TestEachMeaningOfALabelHasASource(t *testing.T) {
	for _, e := range Engines() {
		if len(labelMeanings[e]) == 0 {
			t.Errorf("%s has no labels in the table", e)
		}
		for _, m := range labelMeanings[e] {
			if m.label == "" || m.source == "" {
				t.Errorf("%s: %+v", e, m)
			}
		}
	}
}
