package modelsim

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"steelyard/weighting/sim/engine"
)

// TestAnEngineWithACacheComputesTheBeginningOfAConversationOnce, by its text.
func TestAnEngineWithACacheComputesTheBeginningOfAConversationOnce(t *testing.T) {
	params := engine.Defaults()
	params.CacheTokens = 100 * engine.CacheBlock
	s, err := Start(Options{Batching: &params, BytesPerToken: 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	message := func(name string, blocks int) string {
		return fmt.Sprintf(`{"role":"user","content":%q}`, strings.Repeat(name, blocks*engine.CacheBlock*4))
	}
	ask := func(messages ...string) {
		t.Helper()
		resp, err := http.Post("http://"+s.Address()+"/v1/chat/completions", "application/json",
			strings.NewReader(`{"max_tokens":1,"messages":[`+strings.Join(messages, ",")+"]}"))
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%v, %v", resp, err)
		}
		resp.Body.Close()
	}
	for _, c := range []struct {
		messages []string
		cached   int // blocks, of all so far
	}{
		{[]string{message("a", 4)}, 0},
		{[]string{message("a", 4), message("b", 3)}, 4},
		{[]string{message("c", 1), message("a", 4)}, 4},
		{[]string{message("a", 2), message("d", 1)}, 6},
	} {
		ask(c.messages...)
		if _, cached := s.PromptTokens(); cached != c.cached*engine.CacheBlock {
			t.Errorf("after %d messages %d tokens were cached, want %d blocks", len(c.messages), cached, c.cached)
		}
	}
}
