package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"steelyard/e2e/rig/modelsim"
	"steelyard/internal/api"
	"steelyard/sim/engine"
)

// A chat is a conversation with an engine.
type chat struct {
	messages []string // JSON
}

// say sends the next message through an Envoy, keeps the answer, and returns the server that gave it.
func (c *chat) say(t *testing.T, url, text string) (server string, err error) {
	message := func(role, text string) string { return fmt.Sprintf(`{"role": %q, "content": %q}`, role, text) }
	c.messages = append(c.messages, message("user", text))
	const tokens = 8
	resp, err := complete(t.Context(), url, tokens, c.messages...)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	var said struct {
		Choices []struct{ Message struct{ Content string } }
	}
	if err = cmp.Or(err, json.Unmarshal(answer, &said)); err != nil || len(said.Choices) != 1 {
		return "", fmt.Errorf("status %d, %w: %.200q", resp.StatusCode, err, answer)
	}
	c.messages = append(c.messages, message("assistant", said.Choices[0].Message.Content))
	return resp.Header.Get(modelsim.HeaderServer), nil
}

// complete has an engine answer messages with a number of tokens. The caller closes the body of the answer.
func complete(ctx context.Context, url string, tokens int, messages ...string) (*http.Response, error) {
	body := fmt.Sprintf(`{"model": "tiny", "max_tokens": %d, "messages": [%s]}`, tokens, strings.Join(messages, ", "))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	return http.DefaultClient.Do(req)
}

// fill takes all places with requests that an Envoy sends, and returns a function that ends them.
func (f *fleet) fill(t *testing.T, envoy, places int) (empty func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var answers sync.WaitGroup
	for range places {
		answers.Go(func() {
			const minutes = 10_000 // tokens
			resp, err := complete(ctx, f.urls[envoy], minutes, `{"role": "user", "content": "all of it"}`)
			if err == nil {
				resp.Body.Close()
				t.Errorf("a request that was to hold its place ended: %s", resp.Status)
			}
		})
	}
	empty = sync.OnceFunc(func() { cancel(); answers.Wait() })
	t.Cleanup(empty)
	f.eventually("all places are taken", func() error { return f.waits(0, places) })
	return empty
}

// idle returns nil when nothing is in flight, and the loads of all endpoints show that.
func (f *fleet) idle() error {
	if err := f.waits(0, 0); err != nil {
		return err
	}
	v, err := f.view()
	if err != nil {
		return err
	}
	for _, e := range v.Endpoints {
		if e.Load.Or(1) > 0 {
			return fmt.Errorf("the load of %s is %v", e.Address, e.Load.Or(-1))
		}
	}
	return nil
}

// TestConversationsThatWaitGoWhereTheyAreCached: a request that waited for a place was learned, and the next of its
// conversation gets a place where the prompt is cached.
func TestConversationsThatWaitGoWhereTheyAreCached(t *testing.T) {
	t.Parallel()
	eachCarrier(t, conversationsThatWaitGoWhereTheyAreCached)
}

func conversationsThatWaitGoWhereTheyAreCached(t *testing.T, by carrier) {
	const conversations, places = 8, 8
	p := engine.Defaults()
	p.CacheTokens = 200_000
	pool := servers(t, same(places/2, modelsim.Options{Batching: &p})...)
	f := by.start(t, plan{servers: pool, cluster: "queue: {max_in_flight: 2}", bootstrap: []string{"--prefix"}})
	by.startEnvoy(t, f)
	f.eventually("the other Envoy has joined the queue", func() error { return f.waits(0, 0) })
	long := func(text string) string { return strings.Repeat(text+" ", 100) }
	f.eventually("what tokens cost is known", func() error {
		if _, err := new(chat).say(t, f.urls[1], long("to begin with")); err != nil {
			return err
		}
		v, err := f.view()
		if err == nil && v.Decision.Unit != api.UnitWork {
			err = fmt.Errorf("the unit of load is %q", v.Decision.Unit)
		}
		return err
	})
	for i := range conversations {
		var c chat
		empty := f.fill(t, 1, places)
		first := make(chan string, 1)
		go func() {
			server, err := c.say(t, f.urls[0], long(fmt.Sprint("conversation ", i)))
			if err != nil {
				t.Error(err)
			}
			first <- server
		}()
		f.eventually("the request waits", func() error { return f.waits(1, places) })
		empty()
		began := <-first
		f.eventually("all is idle", f.idle)
		if next, err := c.say(t, f.urls[0], "go on"); err != nil || next != began {
			t.Errorf("conversation %d went to %s (%v), and is cached at %s", i, next, err, began)
		}
	}
	if n := by.choices(t, f, "queue_prefix"); n < conversations {
		t.Errorf("%v requests got a place where a part of their prompt is cached, want %d", n, conversations)
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
