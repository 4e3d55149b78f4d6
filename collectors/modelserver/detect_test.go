package modelserver

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheEngineIsFoundByItsSeries(t *testing.T) {
	files, err := filepath.Glob("testdata/*/*.prom")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d bodies, %v", len(files), err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		engine, _, _ := strings.Cut(strings.TrimSuffix(name, ".prom"), "-")
		want := Engine(engine)
		switch {
		case strings.HasPrefix(name, "trtllm"):
			want = EngineTensorRTLLM
		case name == "triton-tensorrt-llm.prom": // a Triton with that backend: the backend's series say more
			want = EngineTensorRTLLM
		case strings.HasPrefix(name, "sglang-router"): // it has counts of its own, and no engine's
			want = ""
		}
		body, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := Detect(body); got != want {
			t.Errorf("%s: %q, want %q", file, got, want)
		}
	}
	for name, body := range map[string]string{"nothing": "", "another server": "go_goroutines 7\n", "cut": "vllm:num"} {
		if got, _ := Detect([]byte(body)); got != "" {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestAnEngineWithoutLoadIsFoundByItsNames: samples that no field takes, and comments, are that engine's, too.
func TestAnEngineWithoutLoadIsFoundByItsNames(t *testing.T) {
	for body, want := range map[string]Engine{
		"sglang:num_running_reqs{priority=\"1\"} 2\n":                                   EngineSGLang,
		"nv_trt_llm_request_metrics{request_type=\"active\"} 2\n":                       EngineTensorRTLLM,
		"# HELP vllm:num_requests_running R.\n# TYPE vllm:num_requests_running gauge\n": EngineVLLM,
		"# TYPE tgi_queue_size gauge\n# EOF":                                            EngineTGI,
		"# it is not vllm:num_requests_running\n":                                       "",
	} {
		if got, err := Detect([]byte(body)); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v, want %q", body, got, err, want)
		}
	}
}

// TestSeriesThatWereRenamedAreNamed, whichever engine is asked for.
func TestSeriesThatWereRenamedAreNamed(t *testing.T) {
	for series, of := range map[string]string{"sglang_num_running_reqs": "sglang:num_running_reqs",
		"vllm_num_requests_waiting": "vllm:num_requests_waiting"} {
		body := []byte("# TYPE " + series + " gauge\n" + series + "{a=\"b\"} 1\n")
		want := "it has " + series + ", which is " + of + " renamed"
		_, err := Detect(body)
		_, of := newReader(t, EngineSGLang).Read(body)
		for _, err := range []error{err, of} {
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "engine custom") {
				t.Errorf("%v, want %q and the engine custom", err, want)
			}
		}
	}
}
