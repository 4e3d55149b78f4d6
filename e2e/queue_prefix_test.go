package e2e

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"steelyard/controlplane/view"
	"steelyard/e2e/rig/modelsim"
	"steelyard/weighting/sim/engine"
)

// A chat is a conversation with an engine.
type chat struct {
	messages []string // JSON
}

// say sends the next message through an Envoy, and keeps the answer.
func (c *chat) say(t *testing.T, url, text string) error {
	const tokens = 8
	message := func(role, text string) string { return fmt.Sprintf(`{"role": %q, "content": %q}`, role, text) }
	c.messages = append(c.messages, message("user", text))
	body := fmt.Sprintf(`{"model": "tiny", "max_tokens": %d, "messages": [%s]}`, tokens, strings.Join(c.messages, ", "))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"v1/chat/completions",
		strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	var said struct {
		Choices []struct{ Message struct{ Content string } }
	}
	if err = cmp.Or(err, json.Unmarshal(answer, &said)); err != nil || len(said.Choices) != 1 {
		return fmt.Errorf("status %d, %w: %.200q", resp.StatusCode, err, answer)
	}
	c.messages = append(c.messages, message("assistant", said.Choices[0].Message.Content))
	return nil
}

// chats has conversations through an Envoy, twice as many as there are places, and returns how much of their prompts
// the engines had in their caches.
func (f *fleet) chats(t *testing.T, envoy, turns int, topic string, servers []*modelsim.Server) (cached float64) {
	t.Helper()
	const clients, bytes = 16, 3000
	count := func() (hits, all float64) {
		for _, s := range servers {
			c := s.Tokens()
			hits, all = hits+float64(c.CachedTokens), all+float64(c.PromptTokens)
		}
		return hits, all
	}
	hits, all := count()
	var talking sync.WaitGroup
	for client := range clients {
		talking.Go(func() {
			random := rand.New(rand.NewPCG(uint64(client), 1))
			var c chat
			for range turns {
				time.Sleep(time.Duration(random.Int64N(int64(1200 * time.Millisecond)))) // the client thinks
				text := strings.Repeat(fmt.Sprintf("%s %d %x ", topic, client, random.Uint64()), bytes/30)
				if err := c.say(t, f.urls[envoy], text); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	talking.Wait()
	hitsNow, allNow := count()
	return (hitsNow - hits) / (allNow - all)
}

// TestConversationsThatWaitGoWhereTheyAreCached: of two Envoys with the same queue, one looks at prompts. Its requests
// are learned, though they waited, and get places where they are known.
func TestConversationsThatWaitGoWhereTheyAreCached(t *testing.T) {
	t.Parallel()
	eachCarrier(t, conversationsThatWaitGoWhereTheyAreCached)
}

func conversationsThatWaitGoWhereTheyAreCached(t *testing.T, by carrier) {
	p := engine.Defaults()
	p.CacheTokens = 200_000
	pool := servers(t, same(4, modelsim.Options{Batching: &p})...)
	f := by.start(t, plan{servers: pool, cluster: "queue: {max_in_flight: 2}", bootstrap: []string{"--prefix"}})
	by.startEnvoy(t, f)
	f.eventually("the other Envoy has joined the queue", func() error { return f.waits(0, 0) })
	f.chats(t, 1, 2, "to begin with", pool)
	f.eventually("what tokens cost is known", func() error {
		v, err := f.view()
		if err == nil && v.Decision.Unit != view.UnitWork {
			err = fmt.Errorf("the unit of load is %q", v.Decision.Unit)
		}
		return err
	})
	longest := f.longestQueue(t)
	var shares [2]float64
	for envoy, topic := range []string{"by prompt", "by load"} {
		shares[envoy] = f.chats(t, envoy, 5, topic, pool)
	}
	most := longest()
	t.Logf("%.0f %% of the prompts are cached by prompt, %.0f %% by load; up to %d waited", 100*shares[0],
		100*shares[1], most)
	if n := by.choices(t, f, "queue_prefix"); n == 0 {
		t.Error("no request got a place where a part of its prompt is cached")
	}
	if most == 0 {
		t.Error("no request waited")
	}
	if shares[0] < 1.25*shares[1] {
		t.Errorf("%.2f of the prompts are cached by prompt, and %.2f by load", shares[0], shares[1])
	}
}

// TestTheQueueFollowsTheLongestMatch where that is configured, also of engines that count no tokens.
func TestTheQueueFollowsTheLongestMatch(t *testing.T) {
	eachCarrier(t, func(t *testing.T, by carrier) {
		pool := servers(t, same(2, modelsim.Options{Engine: modelsim.Triton, Slots: 8})...)
		f := by.start(t, plan{servers: pool, bootstrap: []string{"--prefix"},
			cluster: "engine: triton\nqueue: {max_in_flight: 8}\nprefix: {choice: longest-match}"})
		const prompts = 12
		for i := range prompts {
			prompt := talk(fmt.Sprint("conversation ", i))
			if first, again := f.post(t, prompt), f.post(t, prompt); again != first {
				t.Errorf("prompt %d went to server %d, and then to %d", i, first, again)
			}
		}
		if n := by.choices(t, f, "queue_prefix"); n != prompts {
			t.Errorf("%v requests got a place by the longest match, want %d", n, prompts)
		}
	})
}

// choices is the count of choices with a reason, of the first Envoy.
func (c carrier) choices(t *testing.T, f *fleet, reason string) float64 {
	t.Helper()
	if c == byPicker {
		return f.pickers[0].choices(t, reason)
	}
	return f.choices(t, 0, reason)
}

// longestQueue returns a function that ends the watching of the queue, and returns how many waited at a time.
func (f *fleet) longestQueue(t *testing.T) func() int {
	most, done := 0, make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(50 * time.Millisecond):
				if q, err := f.queue(); err == nil {
					most = max(most, q.Classes[0].Waiting)
				}
			}
		}
	})
	end := sync.OnceValue(func() int { close(done); watching.Wait(); return most })
	t.Cleanup(func() { end() })
	return end
}
