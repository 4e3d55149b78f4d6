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
