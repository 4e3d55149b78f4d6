package modelserver

import (
	"fmt"
	"testing"
	"time"

	"steelyard/weighting"
)

var t0 = time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)

// body writes a Triton body with the counters of each model: each request has waited half a second.
func body(successes map[string]float64) []byte {
	out := "nv_inference_pending_request_count 1\n"
	for model, n := range successes {
		out += fmt.Sprintf("nv_inference_request_success{model=%q} %v\nnv_inference_queue_duration_us{model=%q} %v\n",
			model, n, model, 5e5*n)
	}
	return []byte(out)
}

func TestSumsNeverGoBack(t *testing.T) {
	r := newReader(t, EngineTriton)
	var c Counters
	for i, step := range []struct {
		what        string
		successes   map[string]float64
		completions float64
		restarts    int
	}{
		{"the first report is where the sums begin", map[string]float64{"a": 100, "b": 10}, 110, 0},
		{"growth adds up", map[string]float64{"a": 103, "b": 11}, 114, 0},
		{"nothing new", map[string]float64{"a": 103, "b": 11}, 114, 0},
		{"a restart, seen in four counters, is one", map[string]float64{"a": 2, "b": 1}, 117, 1},
		{"growth after it", map[string]float64{"a": 4, "b": 1}, 119, 1},
		{"one model reloaded: the other does not count again", map[string]float64{"a": 1, "b": 3}, 122, 1},
		{"a model unloaded", map[string]float64{"b": 5}, 124, 1},
		{"the same back in the next report", map[string]float64{"a": 2, "b": 5}, 125, 1},
		{"a new model", map[string]float64{"a": 2, "b": 5, "c": 6}, 131, 1},
	} {
		at := t0.Add(time.Duration(i) * time.Second)
		report, err := r.Read(body(step.successes))
		if err != nil {
			t.Fatal(err)
		}
		got, _ := c.Observe(at, report)
		want := weighting.ServerReport{
			Queue:        weighting.Reading{Value: 1, At: at},
			Completions:  weighting.Reading{Value: step.completions, At: at},
			QueueSeconds: weighting.Reading{Value: step.completions / 2, At: at},
			Restarts:     step.restarts,
		}
		if got != want {
			t.Errorf("%s:\ngot  %+v\nwant %+v", step.what, got, want)
		}
	}
}

// A part of a server that begins again is no restart, however often, and all that it counts is counted: models that a
// Triton loads again in turn, or unloads and loads later, and an engine of data parallelism. All at once are one.
func TestAPartThatBeginsAgainIsNoRestart(t *testing.T) {
	engines := map[Engine]string{
		EngineTriton: "nv_inference_pending_request_count{model=%[1]q,version=\"1\"} 0\n" +
			"nv_inference_request_success{model=%[1]q,version=\"1\"} %[2]v\n" +
			"nv_inference_queue_duration_us{model=%[1]q,version=\"1\"} %[3]v\n" +
			"nv_inference_compute_input_duration_us{model=%[1]q,version=\"1\"} 0\n" +
			"nv_inference_compute_infer_duration_us{model=%[1]q,version=\"1\"} %[3]v\n" +
			"nv_inference_compute_output_duration_us{model=%[1]q,version=\"1\"} 0\n",
		EngineVLLM: "vllm:num_requests_waiting{engine=%[1]q} 0\n" +
			"vllm:request_success_total{engine=%[1]q,finished_reason=\"stop\"} %[2]v\n" +
			"vllm:request_success_total{engine=%[1]q,finished_reason=\"length\"} 0\n" +
			"vllm:prompt_tokens_total{engine=%[1]q} %[3]v\nvllm:generation_tokens_total{engine=%[1]q} %[3]v\n" +
			"vllm:time_to_first_token_seconds_count{engine=%[1]q} %[2]v\n",
	}
	for e, lines := range engines {
		t.Run(string(e), func(t *testing.T) {
			r := newReader(t, e)
			var c Counters
			counts := []float64{1000, 2000, 3000, 4000}
			sum, at := 10_000., t0
			step := func(restarts int, without int) {
				t.Helper()
				page := ""
				for i, n := range counts {
					if i != without {
						page += fmt.Sprintf(lines, fmt.Sprint(i), n, 1000*n)
					}
				}
				got, wrong := c.Observe(at, readPage(t, r, []byte(page)))
				at = at.Add(time.Second)
				if got.Completions.Value != sum || got.Restarts != restarts || len(wrong) > 0 {
					t.Fatalf("%v after %v: %v completions, want %v; %d restarts, want %d; wrong are %v", counts,
						at.Sub(t0), got.Completions.Value, sum, got.Restarts, restarts, wrong)
				}
			}
			grow := func(restarts, without int) {
				for i := range counts {
					if i != without {
						counts[i]++
						sum++
					}
				}
				step(restarts, without)
			}
			step(0, -1)
			for reload := range 12 {
				k := reload % len(counts)
				if grow(0, -1); reload%3 == 0 {
					grow(0, k)
				}
				counts[k] = 0
				step(0, -1)
				for range 4 {
					grow(0, -1)
				}
			}
			clear(counts)
			step(1, -1)
			grow(1, -1)
		})
	}
}

// Two servers behind one address are no parts that begin again, also where neither has the greater counts of all.
func TestServersThatAnswerInTurnAreRestarts(t *testing.T) {
	r := newReader(t, EngineTriton)
	var c Counters
	for i := range 8 {
		report := readPage(t, r, body([]map[string]float64{{"a": 100, "b": 10}, {"a": 10, "b": 100}}[i%2]))
		if got, _ := c.Observe(t0.Add(time.Duration(i)*time.Second), report); i == 7 && got.Restarts < 3 {
			t.Errorf("%d restarts in %d pages", got.Restarts, i+1)
		}
	}
}

// A value that no server can have come to since the report before, or a fall of one counter of several, is unknown: the
// sum goes on from the old value when that comes back, and otherwise from the new one after ten seconds.
func TestACounterThatIsWrongShowsNothing(t *testing.T) {
	number := func(v float64) Number { return Number{Value: v, Known: true} }
	type step struct {
		completions, sum float64 // sum -1: unknown
		leaps            int
	}
	const unknown = -1
	for name, steps := range map[string][]step{
		"leaps and comes back": {{100, 100, 0}, {1e18, unknown, 1}, {103, 103, 1}, {105, 105, 1}},
		"leaps and stays": {{100, 100, 0}, {5e7, unknown, 1}, {5e7, unknown, 1}, {5e7, 100, 1},
			{5e7 + 3, 103, 1}},
		"by as much as tiny requests make": {{100, 100, 0}, {1_000_100, 1_000_100, 0}, {5_000_100, 5_000_100, 0}},
		"leaps from the start":             {{1e18, unknown, 1}, {103, 103, 1}, {105, 105, 1}},
		"leaps again and again": {{7, 7, 0}, {1e18, unknown, 1}, {8, 8, 1}, {1e18, unknown, 2}, {9, 9, 2},
			{10, 10, 2}},
		"falls and comes back": {{100, 100, 0}, {99.996, unknown, 0}, {100.004, 100.004, 0}},
		"falls and goes on":    {{100, 100, 0}, {0, unknown, 0}, {1, unknown, 0}, {2, 100, 0}, {4, 102, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			var c Counters
			for i, step := range steps {
				at := t0.Add(time.Duration(i) * 5 * time.Second)
				got, wrong := c.Observe(at, Report{Completions: number(step.completions),
					BusySeconds: number(float64(1 + i)), QueueSeconds: number(float64(1 + i))})
				sum := got.Completions.Value
				if !got.Completions.Known() {
					sum = unknown
				}
				if sum != step.sum || got.Restarts != 0 || got.Implausible != step.leaps {
					t.Errorf("report %d, %v: sum %v, %d restarts, %d leaps; want %v, none and %d", i,
						step.completions, sum, got.Restarts, got.Implausible, step.sum, step.leaps)
				}
				if (len(wrong) == 1) != (sum == unknown) || sum == unknown && wrong[0].Field != FieldCompletions {
					t.Errorf("report %d: wrong are %v", i, wrong)
				}
				if got.BusySeconds.Value != float64(1+i) || got.QueueSeconds.Value != float64(1+i) {
					t.Errorf("report %d: the others are %v and %v", i, got.BusySeconds, got.QueueSeconds)
				}
			}
		})
	}
}

// Where there is only one counter, a fall by more than half is a restart.
func TestAFallOfTheOnlyCounter(t *testing.T) {
	number := func(v float64) Number { return Number{Value: v, Known: true} }
	var c Counters
	for i, step := range []struct {
		completions float64
		known       bool
		sum         float64
		restarts    int
	}{{100, true, 100, 0}, {99, false, 0, 0}, {101, true, 101, 0}, {20, true, 121, 1}} {
		got, _ := c.Observe(t0.Add(time.Duration(i)*time.Second), Report{Completions: number(step.completions)})
		if n := got.Completions; n.Known() != step.known || n.Value != step.sum || got.Restarts != step.restarts {
			t.Errorf("report %d: %v, %d restarts; want %v", i, n, got.Restarts, step)
		}
	}
}

// A restart falls deep: several counters that fall by a little are wrong, each by itself.
func TestSeveralCountersThatFallByALittleAreNoRestart(t *testing.T) {
	number := func(v float64) Number { return Number{Value: v, Known: true} }
	report := func(low, high float64) Report {
		return Report{Completions: number(low), QueueSeconds: number(low), BusySeconds: number(low),
			PromptTokens: number(low), CachedTokens: number(low), GeneratedTokens: number(high),
			FirstTokens: number(high), Iterations: number(high)}
	}
	var c Counters
	for i, step := range []struct {
		low, high float64
		restarts  int
		wrong     int
	}{{100, 100, 0, 0}, {99, 101, 0, 5}, {102, 102, 0, 0}, {3, 103, 1, 0}} {
		got, wrong := c.Observe(t0.Add(time.Duration(i)*time.Second), report(step.low, step.high))
		if got.Restarts != step.restarts || len(wrong) != step.wrong {
			t.Errorf("report %d: %d restarts, wrong are %v; want %+v", i, got.Restarts, wrong, step)
		}
	}
}

func TestAnUnknownCounterKeepsItsSum(t *testing.T) {
	number := func(v float64) Number { return Number{Value: v, Known: true} }
	var c Counters
	c.Observe(t0, Report{Completions: number(10), BusySeconds: number(3)})
	gap, _ := c.Observe(t0.Add(1*time.Second), Report{Running: number(2)})
	if gap.Completions.Known() || gap.BusySeconds.Known() || gap.QueueSeconds.Known() {
		t.Errorf("counters known in the gap: %+v", gap)
	}
	if want := (weighting.Reading{Value: 2, At: t0.Add(time.Second)}); gap.Running != want {
		t.Errorf("running %v, want %v", gap.Running, want)
	}
	after, _ := c.Observe(t0.Add(2*time.Second), Report{Completions: number(2), BusySeconds: number(1)})
	if after.Completions.Value != 12 || after.BusySeconds.Value != 4 || after.Restarts != 1 {
		t.Errorf("completions %v, busy %v, restarts %d; want 12, 4, 1",
			after.Completions.Value, after.BusySeconds.Value, after.Restarts)
	}
}

func TestWhetherTheEngineIsAwakeIsDated(t *testing.T) {
	r := newReader(t, EngineVLLM)
	var c Counters
	for page, want := range map[string]weighting.Reading{
		"vllm:num_requests_waiting 1\n": {},
		"vllm:num_requests_waiting 1\nvllm:engine_sleep_state{sleep_state=\"awake\"} 0\n": {Value: 0, At: t0},
		"vllm:num_requests_waiting 1\nvllm:engine_sleep_state{sleep_state=\"awake\"} 1\n": {Value: 1, At: t0},
	} {
		report, err := r.Read([]byte(page))
		if got, _ := c.Observe(t0, report); err != nil || got.Awake != want {
			t.Errorf("%q: %+v, %v, want %+v", page, got.Awake, err, want)
		}
	}
}

func TestForgetsSeriesThatAreGone(t *testing.T) {
	r := newReader(t, EngineTriton)
	var c Counters
	last := 0.0
	for i := range 1000 {
		report, err := r.Read(body(map[string]float64{fmt.Sprint("model-", i): 5}))
		if err != nil {
			t.Fatal(err)
		}
		seen, _ := c.Observe(t0.Add(time.Duration(i)*time.Second), report)
		now := seen.Completions.Value
		if now < last {
			t.Fatalf("report %d: the sum fell from %v to %v", i, last, now)
		}
		last = now
	}
	if n := len(c.of(FieldCompletions).last); n > 100 {
		t.Errorf("%d series remembered, one is alive", n)
	}
	if last != 5000 {
		t.Errorf("sum %v, want 5000", last)
	}
}

func TestCountersOfTheRecordings(t *testing.T) {
	r := newReader(t, EngineVLLM)
	var c Counters
	for _, step := range []struct {
		file        string
		completions float64
		restarts    int
	}{
		{"vllm-0.32.0-idle.prom", 0, 0},
		{"vllm-0.32.0-loaded.prom", 43, 0},
		{"vllm-0.32.0-drained.prom", 68, 0},
		{"vllm-0.32.0-idle.prom", 68, 1},
	} {
		report, err := r.Read(read(t, "recorded", step.file))
		if err != nil {
			t.Fatal(err)
		}
		got, _ := c.Observe(t0, report)
		if got.Completions.Value != step.completions || got.Restarts != step.restarts {
			t.Errorf("%s: %v completions, %d restarts; want %v, %d",
				step.file, got.Completions.Value, got.Restarts, step.completions, step.restarts)
		}
	}
}

// Counts of tokens come as one, or not at all; what an engine does not export, or not in this body, does not move.
func TestTokensAreReadTogether(t *testing.T) {
	number := func(v float64) Number { return Number{Value: v, Known: true} }
	full := func(prompt, first, generated float64) Report {
		return Report{PromptTokens: number(prompt), FirstTokens: number(first), GeneratedTokens: number(generated),
			Queue: number(0)}
	}
	var c Counters
	cached := full(1000, 2, 300)
	cached.CachedTokens, cached.Iterations = number(160), number(40)
	want := func(what string, got, want weighting.TokenCounts) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %+v, want %+v", what, got, want)
		}
	}
	at := func(n int) time.Time { return t0.Add(time.Duration(n) * time.Second) }
	observe := func(n int, rep Report) weighting.ServerReport {
		got, _ := c.Observe(at(n), rep)
		return got
	}
	want("all", observe(0, cached).Tokens,
		weighting.TokenCounts{At: at(0), Prompt: 1000, Cached: 160, Generated: 300, First: 2, Iterations: 40,
			Live: true})
	if got := observe(1, full(1500, 3, 400)).Tokens; !got.At.IsZero() {
		t.Errorf("two are missing for a moment: %+v", got)
	}
	want("two are not exported any more", observe(11, full(1500, 3, 400)).Tokens,
		weighting.TokenCounts{At: at(11), Prompt: 1500, Cached: 160, Generated: 400, First: 3, Iterations: 40})
	if got := observe(12, Report{Queue: number(0), PromptTokens: number(1600)}).Tokens; !got.At.IsZero() {
		t.Errorf("without a count of first tokens: %+v", got)
	}
	restarted := observe(13, full(70, 1, 10))
	want("after a restart", restarted.Tokens,
		weighting.TokenCounts{At: at(13), Prompt: 1670, Cached: 160, Generated: 410, First: 4, Iterations: 40})
	if restarted.Restarts != 1 {
		t.Errorf("%d restarts, want 1", restarted.Restarts)
	}
}

// Of an engine that counts a request only when it ends, a long request looks as if nothing is done.
func TestWhichEnginesCountTheirWorkAsTheyDoIt(t *testing.T) {
	sglang := []byte(`sglang:num_queue_reqs 0
sglang:num_running_reqs 1
sglang:realtime_tokens_total{mode="decode"} 10
sglang:realtime_tokens_total{mode="prefill_compute"} 10
sglang:realtime_tokens_total{mode="prefill_cache"} 10
sglang:time_to_first_token_seconds_count 1
`)
	for _, c := range []struct {
		name   string
		engine Engine
		body   []byte
		counts bool
	}{
		{"vLLM", EngineVLLM, read(t, "recorded", "vllm-0.32.0-loaded.prom"), true},
		{"SGLang", EngineSGLang, sglang, true},
		{"SGLang, older", EngineSGLang, read(t, "handmade", "sglang.prom"), false},
		{"TensorRT-LLM in Triton", EngineTensorRTLLM, read(t, "handmade", "triton-tensorrt-llm.prom"), true},
		{"trtllm-serve", EngineTensorRTLLM, read(t, "handmade", "trtllm-serve.prom"), false},
		{"TGI", EngineTGI, read(t, "handmade", "tgi.prom"), true},
		{"Triton", EngineTriton, read(t, "recorded", "triton-2.51.0-loaded.prom"), false},
	} {
		report, err := newReader(t, c.engine).Read(c.body)
		if err != nil {
			t.Fatal(err)
		}
		var counters Counters
		if got, _ := counters.Observe(t0, report); got.Tokens.Live != c.counts {
			t.Errorf("%s counts its work as it does it: %t, want %t", c.name, got.Tokens.Live, c.counts)
		}
	}
}
