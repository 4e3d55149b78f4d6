package load

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"steelyard/e2e/rig/modelsim"
	"steelyard/sim/engine"
)

func TestCompletionsArriveAtTheirMoments(t *testing.T) {
	p := Plan{Targets: []string{"http://a/", "http://b/"}, Seed: 7, Completions: []Completion{
		{At: 0, Prompt: 1, Output: 1}, {At: time.Second, Prompt: 2, Output: 1}, {At: time.Second, Prompt: 3, Output: 1},
	}}
	got := arrivalsOf(t, p)
	if len(got) != 3 {
		t.Fatalf("%d arrivals, want 3", len(got))
	}
	for i, a := range got {
		if a.At != p.Completions[i].At || a.Completion == nil || *a.Completion != p.Completions[i] {
			t.Errorf("arrival %d is %+v, want %+v", i, a, p.Completions[i])
		}
	}
	if again := arrivalsOf(t, p); !slices.Equal(got, again) {
		t.Error("two expansions of one plan differ")
	}
}

func TestCompletionsThatMakeNoSenseAreRefused(t *testing.T) {
	for want, all := range map[string][]Completion{
		"completion 0: 0 tokens of prompt": {{Output: 1}},
		"0 to generate":                    {{Prompt: 1}},
		"completion 1: at 1ns":             {{At: 2, Prompt: 1, Output: 1}, {At: 1, Prompt: 1, Output: 1}},
		"completion 0: at -1s":             {{At: -time.Second, Prompt: 1, Output: 1}},
	} {
		_, err := (Plan{Targets: []string{"http://a/"}, Completions: all}).Arrivals()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}

// What proxies see of a completion is its length, or that it has none.
func TestACompletionIsAsLongAsItSays(t *testing.T) {
	type seen struct {
		length int64 // content-length; -1 without
		bytes  int
	}
	var mu sync.Mutex
	got := make(map[string]seen) // by the tokens of the prompt
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		got[r.Header.Get(headerPrompt)] = seen{r.ContentLength, len(body)}
	}))
	t.Cleanup(server.Close)
	result, err := Run(t.Context(), Plan{Targets: []string{server.URL}, Completions: []Completion{
		{Prompt: 100, Output: 5, Bytes: 420}, {Prompt: 101, Output: 5, Bytes: 420, Chunked: true},
		{Prompt: 1, Output: 5, Bytes: 4},
	}})
	if err != nil || result.Errors > 0 {
		t.Fatalf("%d errors, %v", result.Errors, err)
	}
	if s := got["100"]; s.length != 420 || s.bytes != 420 {
		t.Errorf("of 420 bytes: %+v", s)
	}
	if s := got["101"]; s.length != -1 || s.bytes != 420 {
		t.Errorf("of 420 bytes in chunks: %+v", s)
	}
	if s := got["1"]; s.bytes < 40 || s.length != int64(s.bytes) {
		t.Errorf("of fewer bytes than asking takes: %+v", s)
	}
}

func TestTheFirstTokenIsSeenBeforeTheLast(t *testing.T) {
	params := engine.Defaults()
	s, err := modelsim.Start(modelsim.Options{Batching: &params, StreamInterval: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	got, err := Run(t.Context(), Plan{
		Targets:     []string{"http://" + s.Address() + "/v1/completions"},
		Completions: []Completion{{Prompt: 600, Output: 6, Bytes: 2500}},
	})
	if err != nil || got.Errors > 0 {
		t.Fatalf("%d errors, %v", got.Errors, err)
	}
	// By the engine's constants: 20 ms and 600 tokens at 12,000 a second, then five times
	// at least 20 ms. What is read may be read later.
	first, last := got.Samples[0].FirstByte, got.Samples[0].Latency
	if first < 70*time.Millisecond || last < 170*time.Millisecond || first >= last {
		t.Errorf("first token after %v, last after %v; want 70 ms and 170 ms at least", first, last)
	}
}
