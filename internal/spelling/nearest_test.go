package spelling

import (
	"strings"
	"testing"
)

func TestTheWordThatWasMeant(t *testing.T) {
	known := []string{"status", "top", "explain", "events", "simulate", "llama-70b", "tensorrt-llm", "triton"}
	for word, want := range map[string]string{
		"statsu": "status", "stat": "status", "TOP": "top", "explian": "explain", "llama_70b": "llama-70b",
		"trtllm": "tensorrt-llm", "tritonserver": "triton", "kubectl": "", "": "",
		strings.Repeat("s", longestTypo+1): "",
	} {
		if got := Nearest(word, known); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
	keys := []string{"name", "interval", "timeout", "body_limit"}
	for word, want := range map[string]string{
		"intervall": "interval", "inetrval": "interval", "TimeOut": "timeout", "body-limit": "body_limit",
		"bodyLimit": "body_limit", "nam": "name", "colour": "", "x": "",
	} {
		if got := Nearest(word, keys); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
	if got := DidYouMean("evnets", known); got != ": did you mean events?" {
		t.Errorf("got %q", got)
	}
	if got := DidYouMean("nothing-like-it", known); got != "" {
		t.Errorf("got %q", got)
	}
}
