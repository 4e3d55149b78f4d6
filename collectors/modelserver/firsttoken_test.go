package modelserver

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// page is a vLLM page with a histogram of requests, all of which took 0.3 s, for two models.
func firstTokenPage(requests int) []byte {
	var b strings.Builder
	for _, model := range []string{"a", "b"} {
		for _, bucket := range []struct {
			le string
			n  int
		}{{"0.25", 0}, {"0.5", requests}, {"+Inf", requests}} {
			fmt.Fprintf(&b, "vllm:time_to_first_token_seconds_bucket{le=%q,model_name=%q} %d\n", bucket.le, model,
				bucket.n)
		}
		fmt.Fprintf(&b, "vllm:time_to_first_token_seconds_sum{model_name=%q} %g\n", model, 0.3*float64(requests))
	}
	return []byte(b.String())
}

func TestFirstTokensAreThoseSinceTheFirstPage(t *testing.T) {
	at := time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)
	f := NewFirstTokens(EngineVLLM)
	if h := f.Observe(at, firstTokenPage(1000)); h != nil {
		t.Fatalf("of the first page: %+v", h)
	}
	h := f.Observe(at.Add(time.Second), firstTokenPage(1010))
	if h == nil || len(h.Bounds) != 3 || !math.IsInf(h.Bounds[2], 1) || h.Counts[0] != 0 ||
		math.Abs(h.Counts[1]-20) > 1e-9 || h.Counts[2] != 0 || math.Abs(h.Sum-6) > 1e-9 {
		t.Fatalf("%+v", h)
	}
	half, _, _ := strings.Cut(string(firstTokenPage(1010)),
		`vllm:time_to_first_token_seconds_bucket{le="0.25",model_name="b"}`)
	h = f.Observe(at.Add(2*time.Second), []byte(half)) // one of two models is gone
	if h == nil || h.Counts[1] < 19 || h.Counts[1] > 20 || math.Abs(h.Sum/h.Counts[1]-0.3) > 1e-9 {
		t.Errorf("the requests of the other model are new: %+v", h)
	}
	h = f.Observe(at.Add(3*time.Second), firstTokenPage(4)) // the server began again
	if h == nil || h.Counts[1] < 19 || h.Counts[1] > 20 || math.Abs(h.Sum/h.Counts[1]-0.3) > 1e-9 {
		t.Errorf("after a restart: %+v", h)
	}
	if h = f.Observe(at.Add(4*time.Second), firstTokenPage(6)); h == nil || h.Counts[1] < 22 || h.Counts[1] > 24 {
		t.Errorf("after it goes on: %+v", h)
	}
	if h := f.Observe(at.Add(10*time.Minute), firstTokenPage(4)); h != nil {
		t.Errorf("ten minutes without a request: %+v", h)
	}
}

func TestAHistogramThatIsNoneIsUnknown(t *testing.T) {
	at := time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)
	for _, body := range []string{"", "x", "vllm:time_to_first_token_seconds_sum 3\n",
		"vllm:time_to_first_token_seconds_bucket{le=\"x\"} 3\nvllm:time_to_first_token_seconds_sum 3\n",
		"vllm:time_to_first_token_seconds_bucket{le=\"1\"} -3\nvllm:time_to_first_token_seconds_sum 3\n"} {
		f := NewFirstTokens(EngineVLLM)
		f.Observe(at, []byte(body))
		if h := f.Observe(at.Add(time.Second), []byte(body)); h != nil {
			t.Errorf("%q: %+v", body, h)
		}
	}
	f := NewFirstTokens(EngineVLLM)
	f.Observe(at, firstTokenPage(10))
	doubtful := append(firstTokenPage(20), "vllm:time_to_first_token_seconds_sum{model_name=\"a\"} 7\n"...)
	if h := f.Observe(at.Add(time.Second), doubtful); h != nil {
		t.Errorf("a sum with two values: %+v", h)
	}
	page := firstTokenPage(20)
	if h := f.Observe(at.Add(2*time.Second), page[:len(page)-2]); h != nil {
		t.Errorf("a page that is cut off: %+v", h)
	}
	if h := f.Observe(at.Add(3*time.Second), append(page, page...)); h == nil || h.Counts[1] != 20 {
		t.Errorf("a page that a registry wrote twice: %+v", h)
	}
	if NewFirstTokens(EngineTriton) != nil {
		t.Error("Triton has such a histogram?")
	}
}

func TestTheRecordedPagesOfVLLMHaveAHistogramOfFirstTokens(t *testing.T) {
	files, err := filepath.Glob("testdata/recorded/*vllm*")
	if err != nil {
		t.Fatal(err)
	}
	read := 0
	for _, file := range files {
		body, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(body), "time_to_first_token_seconds_bucket{") {
			if _, counts, _, ok := NewFirstTokens(EngineVLLM).series.read(body); !ok || len(counts) < 5 {
				t.Errorf("%s: %v", file, counts)
			}
			read++
		}
	}
	if read == 0 {
		t.Errorf("none of %d pages has one", len(files))
	}
}
