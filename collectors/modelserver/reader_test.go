package modelserver

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"steelyard/internal/engines"
)

func read(t testing.TB, path ...string) []byte {
	t.Helper()
	body, err := os.ReadFile(filepath.Join(append([]string{"testdata"}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func newReader(t testing.TB, e Engine) *Reader {
	t.Helper()
	var c Custom
	if e == EngineCustom {
		c = Custom{Queue: "app_queue", Running: "app_running", Utilization: "app_memory", Completions: "app_done_total"}
	}
	r, err := NewReader(e, c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// line prints a report as one line: the values in the order of Fields, with a
// question mark for what is unknown.
func line(r Report) string {
	var words []string
	for _, f := range allFields() {
		if n := r.number(f); n.Known {
			words = append(words, fmt.Sprintf("%s=%v", f, n.Value))
		} else {
			words = append(words, fmt.Sprintf("%s=?", f))
		}
	}
	return strings.Join(words, " ")
}

func TestReadsEveryEngine(t *testing.T) {
	for _, c := range []struct {
		name   string
		engine Engine
		file   []string
		want   string
	}{
		{"vLLM", EngineVLLM, []string{"recorded", "vllm-0.32.0-loaded.prom"},
			"queue=18 running=4 utilization=0.00024415552707079957 block_tokens=128 awake=1 completions=43 " +
				"queue_seconds=61.682022028999995 busy_seconds=32.29528330600033 prompt_tokens=219 cached_tokens=0 " +
				"generated_tokens=17181 first_tokens=47 iterations=4460"},
		{"vLLM that has served nothing yet", EngineVLLM, []string{"recorded", "vllm-0.32.0-idle.prom"},
			"queue=0 running=0 utilization=0 block_tokens=128 awake=1 completions=0 queue_seconds=0 busy_seconds=0 " +
				"prompt_tokens=0 cached_tokens=0 generated_tokens=0 first_tokens=0 iterations=0"},
		{"vLLM with two engines: requests added up, the worse cache", EngineVLLM,
			[]string{"handmade", "vllm-two-engines.prom"},
			"queue=23 running=7 utilization=0.75 block_tokens=128 awake=1 completions=86 " +
				"queue_seconds=123.36404405799999 busy_seconds=64.59056661200066 prompt_tokens=438 cached_tokens=0 " +
				"generated_tokens=34362 first_tokens=94 iterations=8920"},
		{"vLLM without engine label and with the old name of the gauge", EngineVLLM,
			[]string{"handmade", "vllm-0.8-no-engine-label.prom"},
			"queue=3 running=7 utilization=0.25 completions=15 queue_seconds=? busy_seconds=?"},
		{"vLLM in OpenMetrics", EngineVLLM, []string{"handmade", "vllm-openmetrics.prom"},
			"queue=1 running=2 utilization=0.5 completions=20 queue_seconds=4.5 busy_seconds=?"},
		{"Triton never knows its running requests", EngineTriton, []string{"recorded", "triton-2.51.0-loaded.prom"},
			"queue=78 running=? utilization=? completions=205 queue_seconds=466.346242 busy_seconds=105.65557"},
		{"Triton with NaN in its summaries", EngineTriton, []string{"recorded", "triton-2.51.0-summary-idle.prom"},
			"queue=0 running=? utilization=? completions=0 queue_seconds=0 busy_seconds=0"},
		{"Triton with many models and escaped labels", EngineTriton, []string{"handmade", "triton-many-models.prom"},
			"queue=7 running=? utilization=? completions=115 queue_seconds=2 busy_seconds=6"},
		{"Triton's own view of a TensorRT-LLM model", EngineTriton, []string{"handmade", "triton-tensorrt-llm.prom"},
			"queue=1 running=? utilization=? completions=121 queue_seconds=? busy_seconds=?"},
		{"TensorRT-LLM in Triton: completions of its model only", EngineTensorRTLLM,
			[]string{"handmade", "triton-tensorrt-llm.prom"},
			"queue=6 running=8 utilization=0.25 block_tokens=64 completions=40 queue_seconds=? busy_seconds=? " +
				"prompt_tokens=48000 cached_tokens=? generated_tokens=8000 first_tokens=40 iterations=2500"},
		{"TensorRT-LLM served by itself", EngineTensorRTLLM, []string{"handmade", "trtllm-serve.prom"},
			"queue=2 running=5 utilization=0.125 completions=24 queue_seconds=6.5 busy_seconds=48.25 " +
				"prompt_tokens=28800 cached_tokens=9600 generated_tokens=4800 first_tokens=24 iterations=?"},
		{"SGLang that counts tokens when a request ends", EngineSGLang, []string{"handmade", "sglang.prom"},
			"queue=2826 running=162 utilization=0.28 completions=? queue_seconds=? busy_seconds=? " +
				"prompt_tokens=8.128902e+06 cached_tokens=1.5e+06 generated_tokens=7.557572e+06 first_tokens=11017 " +
				"iterations=?"},
		{"SGLang with data parallelism, priorities not counted twice, tokens as they are computed", EngineSGLang,
			[]string{"handmade", "sglang-priorities.prom"},
			"queue=5 running=11 utilization=0.5 completions=321 queue_seconds=12.5 busy_seconds=? " +
				"prompt_tokens=1.2e+06 cached_tokens=900000 generated_tokens=90000 first_tokens=330 iterations=?"},
		{"TGI", EngineTGI, []string{"handmade", "tgi.prom"},
			"queue=3 running=4 utilization=? completions=120 queue_seconds=3.25 busy_seconds=240.5" +
				" prompt_tokens=88200 cached_tokens=? generated_tokens=24000 first_tokens=124 iterations=6190"},
	} {
		t.Run(c.name, func(t *testing.T) {
			report, err := newReader(t, c.engine).Read(read(t, c.file...))
			if err != nil {
				t.Fatal(err)
			}
			want := c.want
			if !strings.Contains(want, "block_tokens") {
				want = strings.Replace(want, " completions", " block_tokens=? completions", 1)
			}
			if !strings.Contains(want, "awake") {
				want = strings.Replace(want, " completions", " awake=? completions", 1)
			}
			if !strings.Contains(want, "prompt_tokens") {
				want += " prompt_tokens=? cached_tokens=? generated_tokens=? first_tokens=? iterations=?"
			}
			if got := line(report); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}

// A server that refuses what it cannot serve would look like a fast one.
func TestFailuresAreNoCompletions(t *testing.T) {
	for e, page := range map[Engine]string{
		EngineVLLM: `vllm:num_requests_waiting 0
vllm:request_success_total{finished_reason="stop"} 3
vllm:request_success_total{finished_reason="length"} 4
vllm:request_success_total{finished_reason="error"} 100
`,
		EngineTriton: `nv_inference_pending_request_count{model="a",version="1"} 0
nv_inference_request_success{model="a",version="1"} 7
nv_inference_request_failure{model="a",reason="REJECTED",version="1"} 100
nv_inference_request_failure{model="a",reason="BACKEND",version="1"} 100
nv_inference_request_failure{model="a",reason="CANCELED",version="1"} 100
nv_inference_request_failure{model="a",reason="OTHER",version="1"} 100
`,
		EngineTensorRTLLM: `nv_trt_llm_request_metrics{model="a",request_type="waiting",version="1"} 0
nv_inference_request_success{model="a",version="1"} 7
nv_inference_request_failure{model="a",reason="REJECTED",version="1"} 100
`,
		EngineSGLang: "sglang:num_queue_reqs 0\nsglang:num_requests_total 7\nsglang:num_aborted_requests_total 100\n",
		EngineTGI:    "tgi_queue_size 0\ntgi_request_success 7\ntgi_request_failure{err=\"overloaded\"} 100\n",
	} {
		if report, err := newReader(t, e).Read([]byte(page)); err != nil || report.Completions != (Number{7, true}) {
			t.Errorf("%s: %v completions, want 7 (%v)", e, report.Completions, err)
		}
	}
}

func TestReadsWhatStrangersWrite(t *testing.T) {
	unknown := line(Report{})
	with := func(s string) string { // replaces the fields in s
		out := unknown
		for _, f := range strings.Fields(s) {
			out = strings.Replace(out, f[:strings.Index(f, "=")+1]+"?", f, 1)
		}
		return out
	}
	for _, c := range []struct {
		name, body, want, err string
	}{
		{"no labels", "app_queue 3\n", "queue=3", ""},
		{"empty labels", "app_queue{} 3\n", "queue=3", ""},
		{"blanks everywhere", " \tapp_queue \t{a=\"b\"}\t 3 \t\n", "queue=3", ""},
		{"no blank before the value", "app_queue{a=\"b\"}3\n", "queue=3", ""},
		{"comma after the last label", "app_queue{a=\"b\",} 3\n", "queue=3", ""},
		{"brace, quote and backslash in a label", `app_queue{a="}\"{\\"} 3` + "\n", "queue=3", ""},
		{"integer timestamp", "app_queue 3 1795246068916\n", "queue=3", ""},
		{"timestamp in seconds, then an exemplar", "app_done_total 3 1795246068.9 # {} 1\n", "completions=3", ""},
		{"blank lines and comments", "\n# HELP app_queue app_queue 9\n\napp_queue 3\n# EOF\n", "queue=3", ""},
		{"a type that does not fit", "# TYPE app_queue histogram\napp_queue 3\n", "queue=3", ""},
		{"sum over labels", "app_queue{a=\"1\"} 3\napp_queue{a=\"2\"} 4\n", "queue=7", ""},
		{"largest share", "app_memory{a=\"1\"} 0.5\napp_memory{a=\"2\"} 0.25\n", "utilization=0.5", ""},
		{"longer names that begin alike", "app_queue_total 9\napp_queue2 9\napp_queue:x 9\napp_queue 3\n", "queue=3",
			""},
		{"exponent", "app_queue 1.5e+01\n", "queue=15", ""},
		{"minus zero", "app_queue -0\n", "queue=0", ""},
		{"garbage in lines of others", "?!\n}{\napp_queue 3\n", "queue=3", ""},

		{"NaN is unknown", "app_queue NaN\napp_running 1\n", "running=1", ""},
		{"NaN as Triton spells it", "app_queue Nan\napp_running 1\n", "running=1", ""},
		{"infinity is unknown", "app_queue +Inf\napp_running 1\n", "running=1", ""},
		{"negative is unknown", "app_queue -1\napp_running 1\n", "running=1", ""},
		{"one bad sample spoils the sum", "app_queue{a=\"1\"} 3\napp_queue{a=\"2\"} -1\napp_running 1\n", "running=1",
			""},
		{"a sum beyond all numbers is unknown", "app_queue{a=\"1\"} 1e308\napp_queue{a=\"2\"} 1e308\napp_running 1\n",
			"running=1", ""},
		{"a share in percent is unknown", "app_memory 85\napp_running 1\n", "running=1", ""},
		{"negative counter is unknown", "app_done_total -4\napp_running 1\n", "running=1", ""},

		{"empty", "", "", "the page is empty"},
		{"cut in a number", "app_queue 18\napp_running 1", "", "cut off"},
		{"cut in a label", "app_running 1\napp_queue{a=\"b", "", "cut off"},
		{"no value", "app_queue\n", "", "none of the series"},
		{"labels that do not end", "app_running 1\napp_queue{a=\"b 3\n", "running=1", ""},
		{"no value after labels", "app_running 1\napp_queue{a=\"b\"}\n", "running=1", ""},
		{"a word for a value", "app_running 1\napp_queue many\n", "running=1", ""},
		{"hexadecimal", "app_running 1\napp_queue 0x1p4\n", "running=1", ""},
		{"digits in groups", "app_running 1\napp_queue 1_000\n", "running=1", ""},
		{"a reserved label", "app_running 1\napp_queue{__name__=\"b\"} 3\n", "running=1", ""},
		{"a label twice", "app_running 1\napp_queue{a=\"b\",a=\"c\"} 3\n", "running=1", ""},
		{"more labels than a series has",
			"app_running 1\napp_queue{" + labels(mostLabels+1) + "} 3\n", "running=1", ""},
		{"as many labels as a series may have", "app_queue{" + labels(mostLabels) + "} 3\n", "queue=3", ""},
		{"a label that is too long", "app_running 1\napp_queue{a=\"" + strings.Repeat("x", mostSeries) + "\"} 3\n",
			"running=1", ""},
		{"nothing but too many labels", "app_queue{" + labels(mostLabels+1) + "} 3\n", "",
			`app_queue{l0=\"\",l1=\"\",l2=\"\",l3=\"\",l4=\"\","…: it has more than 64 labels`},
		{"two lines run into one another", "app_memory 1\napp_queue 3 app_running 4\n", "utilization=1", ""},
		{"two numbers and a third", "app_running 1\napp_queue 3 4 5\n", "running=1", ""},
		{"one line of two is malformed", "app_running 1\napp_queue{a=\"1\"} 3\napp_queue{a=\"2\"} x\n", "running=1",
			""},
		{"a series twice with two values",
			"app_running 1\napp_queue{a=\"1\",b=\"2\"} 3\napp_queue{b=\"2\",a=\"1\"} 4\n", "running=1", ""},
		{"a counter twice with two values", "app_running 1\napp_done_total 3\napp_done_total 4\n", "running=1", ""},
		{"a series twice with one value",
			"app_queue{a=\"1\",b=\"2\"} 3\napp_queue{ b=\"2\", a=\"1\" } 3.0\n", "queue=3", ""},
		{"a label that is empty is absent", "app_queue{a=\"\"} 3\napp_queue 3\n", "queue=3", ""},
		{"a page that a registry wrote twice", "app_queue 3\napp_memory 0.5\napp_queue 3\napp_memory 0.5\n",
			"queue=3 utilization=0.5", ""},
		{"one series is malformed, and nothing else is there", "app_queue{a=\"b\"} many\n", "",
			`no usable value: line "app_queue{a=\"b\"} many": "many" is not a number`},
		{"labels that expfmt refuses", "app_queue{a=b} 3\n", "",
			`no usable value: line "app_queue{a=b} 3": expected '"' at start of label value`},
		{"one series, with two values", "app_queue 3\napp_queue 4\n", "",
			"no usable value: app_queue occurs twice with the same labels, as 3 and as 4"},
		{"OpenMetrics whose last line has no line feed", "app_queue 3\n# EOF", "queue=3", ""},
		{"text whose last line has none", "app_running 1\napp_queue 3", "", "its last line has no line feed"},
		{"a comment that is cut off", "app_queue 3\n# EO", "", "its last line has no line feed"},
		{"lines after the end of OpenMetrics", "app_queue 3\n# EOF\napp_queue 4\napp_running 1\n", "queue=3", ""},
		{"a cut line after the end of OpenMetrics", "app_queue 3\n# EOF\napp_queue 4", "queue=3", ""},
		{"null", "null", "", "a page of JSON, not of metrics"},
		{"a text of JSON", "\"not found\"\n", "", "a page of JSON, not of metrics"},
		{"JSON after a byte order mark", "\ufeff{\"queue\": 3}", "", "a page of JSON, not of metrics"},
		{"OK", "OK", "", `no page of metrics: it begins with "OK": most servers have`},
		{"a sentence", "Not found", "", `no page of metrics: it begins with "Not found"`},
		{"gzip", "\x1f\x8b\x08\x00abc", "", `no page of metrics: it begins with "\x1f\x8b\b\x00abc"`},
		{"nothing usable", "app_queue NaN\napp_running -1\n", "",
			"no usable value: app_queue is NaN: expected a number, 0 or more; app_running is -1"},
		{"a web page", "<html>\n<title>404</title>\n", "", "a page of HTML, not of metrics: most servers have " +
			"metrics at /metrics, and trtllm-serve at /prometheus/metrics (scrape.path)"},
		{"an empty list of JSON", "[]", "", "a page of JSON, not of metrics"},
		{"a cut object of JSON", " {\n  \"queue\": 3,", "", "a page of JSON, not of metrics"},
		{"an empty object of JSON", "{}\n", "", "a page of JSON, not of metrics"},
		{"a name within braces", "{\"other\"} 1\napp_queue 3\n", "queue=3", ""},
		{"nothing but comments", "# EOF\n", "", "none of the series"},
		{"another server", "tgi_queue_size 3\n", "", `it has the series of engine "tgi"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			report, err := newReader(t, EngineCustom).Read([]byte(c.body))
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("error %v, want one with %q", err, c.err)
				}
				if line(report) != unknown {
					t.Errorf("report %s with an error", line(report))
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := line(report); got != with(c.want) {
				t.Errorf("got  %s\nwant %s", got, with(c.want))
			}
			if q := report.Queue; q.Known && math.Signbit(q.Value) {
				t.Errorf("queue is %v", q.Value)
			}
		})
	}
}

// labels is so many labels.
func labels(n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf(`l%d=""`, i)
	}
	return strings.Join(all, ",")
}

func TestABodyCutInMidLineIsRefused(t *testing.T) {
	r := newReader(t, EngineVLLM)
	body := read(t, "recorded", "vllm-0.32.0-loaded.prom")
	for n := 1; n < len(body); n++ {
		if body[n-1] == '\n' {
			continue
		}
		if report, err := r.Read(body[:n]); err == nil {
			t.Fatalf("cut after %d bytes, in %q: read as %s", n, body[max(0, n-30):n], line(report))
		}
	}
}

func TestRefusesNamesThatMakeNoSense(t *testing.T) {
	for _, c := range []struct {
		name   string
		engine Engine
		custom Custom
		want   string
	}{
		{"unknown engine", "vlm", Custom{},
			`unknown engine "vlm": write one of ` + strings.Join(engines.Names(), ", ")},
		{"no engine", "", Custom{}, "write one of"},
		{"custom without names", EngineCustom, Custom{}, "at least one series name"},
		{"names without custom", EngineVLLM, Custom{Queue: "q"}, `write engine "custom"`},
		{"a selector for a name", EngineCustom, Custom{Queue: `q{a="b"}`},
			`queue: "q{a=\"b\"}" is not a valid series name`},
		{"a blank in a name", EngineCustom, Custom{Queue: "q", Utilization: "a b"},
			`utilization: "a b" is not a valid series name`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := NewReader(c.engine, c.custom)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

func TestReportMarshalsUnknownAsNull(t *testing.T) {
	report, err := newReader(t, EngineTriton).Read(read(t, "handmade", "triton-many-models.prom"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"queue":7,"running":null,"utilization":null,"block_tokens":null,"awake":null,"completions":115,` +
		`"queue_seconds":2,"busy_seconds":6,` +
		`"prompt_tokens":null,"cached_tokens":null,"generated_tokens":null,"first_tokens":null,"iterations":null}`
	if string(got) != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestExplainAgreesWithReadAndNamesTheSeries(t *testing.T) {
	r := newReader(t, EngineTensorRTLLM)
	body := read(t, "handmade", "triton-tensorrt-llm.prom")
	report, err := r.Read(body)
	if err != nil {
		t.Fatal(err)
	}
	fields, err := r.Explain(body)
	if err != nil {
		t.Fatal(err)
	}
	if len(fields) != len(allFields()) {
		t.Fatalf("%d fields, want %d", len(fields), len(allFields()))
	}
	for i, f := range fields {
		if f.Field != allFields()[i] || f.Value != *report.number(f.Field) {
			t.Errorf("field %d: %s %v, want %s %v", i, f.Field, f.Value, allFields()[i], *report.number(allFields()[i]))
		}
		if f.Value.Known == (f.Problem != "") {
			t.Errorf("%s: value %v and problem %q", f.Field, f.Value, f.Problem)
		}
	}
	queue := fields[0]
	if got, want := queue.Series, `nv_trt_llm_request_metrics{request_type="waiting"}`; len(got) != 1 ||
		got[0] != want {
		t.Errorf("series of the queue: %q, want %q", got, want)
	}
	if queue.Combine != "sum" || queue.Samples != 1 {
		t.Errorf("queue: %s of %d samples, want sum of 1", queue.Combine, queue.Samples)
	}
}

func TestExplainShowsWhyNothingWasRead(t *testing.T) {
	fields, err := newReader(t, EngineVLLM).Explain([]byte("vllm:kv_cache_usage_perc 3\n"))
	if err == nil {
		t.Fatal("no error for a body without one usable value")
	}
	var got []string
	for _, f := range fields {
		got = append(got, f.Problem)
	}
	if want := "vllm:kv_cache_usage_perc is 3: expected a share, 0 to 1"; got[2] != want {
		t.Errorf("problem of the utilization %q, want %q", got[2], want)
	}
	if want := "not in the body"; got[0] != want {
		t.Errorf("problem of the queue %q, want %q", got[0], want)
	}
}

func TestAReaderServesConcurrentCallers(t *testing.T) {
	r := newReader(t, EngineVLLM)
	loaded, old := read(t, "recorded", "vllm-0.32.0-loaded.prom"), read(t, "handmade", "vllm-0.8-no-engine-label.prom")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				a, errA := r.Read(loaded)
				b, errB := r.Read(old)
				if errA != nil || errB != nil || a.Queue.Value != 18 || b.Queue.Value != 3 {
					t.Errorf("queues %v and %v, errors %v and %v", a.Queue, b.Queue, errA, errB)
				}
			}
		})
	}
	wg.Wait()
}

// allFields lists the fields in the order of the Report.
func allFields() []Field {
	return []Field{
		FieldQueue, FieldRunning, FieldUtilization, FieldBlockTokens, FieldAwake, FieldCompletions, FieldQueueSeconds,
		FieldBusySeconds,
		FieldPromptTokens, FieldCachedTokens, FieldGeneratedTokens, FieldFirstTokens, FieldIterations,
	}
}

func TestTheSizeOfBlocksMayStandInALabelOrAGauge(t *testing.T) {
	for _, c := range []struct {
		name   string
		engine Engine
		body   string
		want   Number
	}{
		{"vLLM", EngineVLLM, "vllm:num_requests_waiting 1\nvllm:cache_config_info{block_size=\"32\"} 1\n",
			Number{32, true}},
		{"the largest of two", EngineVLLM, "vllm:num_requests_waiting 1\n" +
			"vllm:cache_config_info{block_size=\"32\"} 1\nvllm:cache_config_info{block_size=\"64\"} 1\n",
			Number{64, true}},
		{"not resolved yet", EngineVLLM,
			"vllm:num_requests_waiting 1\nvllm:cache_config_info{block_size=\"None\"} 1\n", Number{}},
		{"SGLang that counts tokens when a request ends", EngineSGLang,
			"sglang:num_queue_reqs 1\nsglang:cache_config_info{page_size=\"1\",num_pages=\"9\"} 1\n", Number{1, true}},
		{"SGLang from v0.5.11", EngineSGLang, "sglang:num_queue_reqs 1\nsglang:page_size{tp_rank=\"0\"} 64\n" +
			"sglang:page_size{tp_rank=\"1\"} 64\n", Number{64, true}},
		{"trtllm-serve", EngineTensorRTLLM,
			"trtllm_num_requests_waiting 1\ntrtllm_kv_cache_tokens_per_block 32\n", Number{32, true}},
	} {
		report, err := newReader(t, c.engine).Read([]byte(c.body))
		if err != nil || report.BlockTokens != c.want {
			t.Errorf("%s: %v, want %v (%v)", c.name, report.BlockTokens, c.want, err)
		}
	}
	if _, err := newReader(t, EngineVLLM).Read([]byte("vllm:cache_config_info{block_size=\"32\"} 1\n")); err == nil {
		t.Error("a page without any load is no report")
	}
}

// A verdict names this version to people whose server lacks a series.
func TestTheRecordedVersionOfAnEngineExportsAllThatIsReadOfIt(t *testing.T) {
	for _, engine := range []Engine{EngineVLLM, EngineTriton} {
		page, err := os.ReadFile(filepath.Join("testdata", "recorded",
			string(engine)+"-"+RecordedVersion(engine)+"-loaded.prom"))
		if err != nil {
			t.Fatal(err)
		}
		r, err := NewReader(engine, Custom{})
		if err != nil {
			t.Fatal(err)
		}
		fields, err := r.Explain(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range fields {
			if len(f.Series) > 0 && !f.Value.Known {
				t.Errorf("%s: %s is not on the page", engine, f.Field)
			}
		}
	}
}
