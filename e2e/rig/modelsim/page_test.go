package modelsim

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// values returns the samples of a body by series, labels included.
func values(t *testing.T, body string) map[string]float64 {
	t.Helper()
	all := make(map[string]float64)
	for line := range strings.Lines(body) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		v, err := strconv.ParseFloat(strings.TrimSpace(line[at+1:]), 64)
		if err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		all[line[:at]] = v
	}
	return all
}

// skeleton returns a body without its numbers.
func skeleton(body string) []string {
	var all []string
	for line := range strings.Lines(body) {
		if !strings.HasPrefix(line, "#") {
			line = line[:strings.LastIndexByte(line, ' ')]
		}
		all = append(all, line)
	}
	return all
}

// loaded returns a state in which every number is another one.
func loaded(e Engine) state {
	r := state{waiting: 7, running: 3, totals: newTotals(e), kvUsage: 0.25}
	r.served, r.failed, r.aborted = 100, 5, 2
	for _, d := range []time.Duration{100 * time.Millisecond, 700 * time.Millisecond} {
		r.queueTime.observe(d)
		r.busyTime.observe(2 * d)
		r.totalTime.observe(3 * d)
	}
	return r
}

func TestWholePageHasTheShapeOfTheRecording(t *testing.T) {
	for _, e := range []Engine{VLLM, Triton} {
		t.Run(string(e), func(t *testing.T) {
			f := formatOf(e)
			got := skeleton(string(newPage(f, true).render(loaded(e))))
			if want := skeleton(f.recording); !slices.Equal(got, want) {
				t.Errorf("series and comments differ from the recording: %d lines, want %d", len(got), len(want))
			}
		})
	}
}

func TestWholeVLLMPageIsOfRealSize(t *testing.T) {
	got := len(newPage(formatOf(VLLM), true).render(loaded(VLLM)))
	if want := len(vllmRecording); got < want*9/10 || got > want*11/10 {
		t.Errorf("%d bytes, want about %d", got, want)
	}
}

func TestLivePageIsAPartOfTheWhole(t *testing.T) {
	for _, e := range []Engine{VLLM, Triton} {
		t.Run(string(e), func(t *testing.T) {
			whole := values(t, string(newPage(formatOf(e), true).render(loaded(e))))
			part := values(t, string(newPage(formatOf(e), false).render(loaded(e))))
			if len(part) == 0 || len(part) >= len(whole) {
				t.Fatalf("%d series of %d", len(part), len(whole))
			}
			for series, v := range part {
				if w, ok := whole[series]; !ok || w != v {
					t.Errorf("%s is %v, in the whole page %v", series, v, w)
				}
			}
		})
	}
}

func TestLiveSeriesFollowTheServer(t *testing.T) {
	tests := []struct {
		engine Engine
		want   map[string]float64
	}{
		{VLLM, map[string]float64{
			`vllm:num_requests_running{engine="0",model_name="tiny"}`:                             3,
			`vllm:num_requests_waiting{engine="0",model_name="tiny"}`:                             7,
			`vllm:num_requests_waiting_by_reason{engine="0",model_name="tiny",reason="capacity"}`: 7,
			`vllm:num_requests_waiting_by_reason{engine="0",model_name="tiny",reason="deferred"}`: 0,
			`vllm:kv_cache_usage_perc{engine="0",model_name="tiny"}`:                              0.25,
			`vllm:request_success_total{engine="0",finished_reason="length",model_name="tiny"}`:   100,
			`vllm:request_success_total{engine="0",finished_reason="error",model_name="tiny"}`:    5,
			`vllm:request_success_total{engine="0",finished_reason="abort",model_name="tiny"}`:    2,
			`vllm:request_success_total{engine="0",finished_reason="stop",model_name="tiny"}`:     0,
			`vllm:request_queue_time_seconds_sum{engine="0",model_name="tiny"}`:                   0.8,
			`vllm:request_queue_time_seconds_count{engine="0",model_name="tiny"}`:                 2,
			`vllm:request_queue_time_seconds_bucket{engine="0",le="0.3",model_name="tiny"}`:       1,
			`vllm:request_queue_time_seconds_bucket{engine="0",le="+Inf",model_name="tiny"}`:      2,
			`vllm:request_inference_time_seconds_sum{engine="0",model_name="tiny"}`:               1.6,
			`vllm:e2e_request_latency_seconds_sum{engine="0",model_name="tiny"}`:                  2.4,
			`http_requests_total{handler="/v1/completions",method="POST",status="2xx"}`:           100,
			`vllm:prompt_tokens_total{engine="0",model_name="tiny"}`:                              219, // as recorded
		}},
		{Triton, map[string]float64{
			`nv_inference_pending_request_count{model="sleeper",version="1"}`:             7,
			`nv_inference_pending_request_count{model="batcher",version="1"}`:             0,
			`nv_inference_request_success{model="sleeper",version="1"}`:                   100,
			`nv_inference_request_success{model="batcher",version="1"}`:                   0,
			`nv_inference_request_failure{model="sleeper",reason="BACKEND",version="1"}`:  5,
			`nv_inference_request_failure{model="sleeper",reason="REJECTED",version="1"}`: 0,
			`nv_inference_count{model="sleeper",version="1"}`:                             100,
			`nv_inference_exec_count{model="sleeper",version="1"}`:                        100,
			`nv_inference_request_duration_us{model="sleeper",version="1"}`:               2.4e6,
			`nv_inference_queue_duration_us{model="sleeper",version="1"}`:                 0.8e6,
			`nv_inference_compute_infer_duration_us{model="sleeper",version="1"}`:         1.6e6,
			`nv_inference_compute_input_duration_us{model="sleeper",version="1"}`:         0,
			`nv_inference_compute_infer_duration_us{model="batcher",version="1"}`:         0,
			`nv_cpu_memory_total_bytes`:                                                   25276502016, // as recorded
		}},
	}
	for _, tt := range tests {
		t.Run(string(tt.engine), func(t *testing.T) {
			got := values(t, string(newPage(formatOf(tt.engine), true).render(loaded(tt.engine))))
			for series, want := range tt.want {
				if v, ok := got[series]; !ok || v != want {
					t.Errorf("%s is %v (there: %t), want %v", series, v, ok, want)
				}
			}
		})
	}
}

func TestNumbersAreWrittenAsTheEngineWritesThem(t *testing.T) {
	tests := []struct {
		v              float64
		python, triton string
	}{
		{0, "0.0", "0"},
		{18, "18.0", "18"},
		{0.00024415552707079957, "0.00024415552707079957", "0.00024415552707079957"},
		{1047740416, "1.047740416e+09", "1047740416"},
		{999999.5, "999999.5", "999999.5"},
	}
	for _, tt := range tests {
		if got := string(appendPython(nil, tt.v)); got != tt.python {
			t.Errorf("vLLM: %v is written %q, want %q", tt.v, got, tt.python)
		}
		if got := string(appendPlain(nil, tt.v)); got != tt.triton {
			t.Errorf("Triton: %v is written %q, want %q", tt.v, got, tt.triton)
		}
	}
}

func BenchmarkRenderVLLM(b *testing.B) {
	p, r := newPage(formatOf(VLLM), true), loaded(VLLM)
	b.ReportAllocs()
	for b.Loop() {
		b.SetBytes(int64(len(p.render(r))))
	}
}
