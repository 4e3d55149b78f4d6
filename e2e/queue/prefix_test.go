package queue

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
	"steelyard/e2e/rig/testbed"
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
func fill(t *testing.T, f *testbed.Fleet, envoy, places int) (empty func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var answers sync.WaitGroup
	for range places {
		answers.Go(func() {
			const minutes = 10_000 // tokens
			resp, err := complete(ctx, f.URLs[envoy], minutes, `{"role": "user", "content": "all of it"}`)
			if err == nil {
				resp.Body.Close()
				t.Errorf("a request that was to hold its place ended: %s", resp.Status)
			}
		})
	}
	empty = sync.OnceFunc(func() { cancel(); answers.Wait() })
	t.Cleanup(empty)
	f.Eventually("all places are taken", func() error { return f.Waits(0, places) })
	return empty
}

// isIdle returns nil when nothing is in flight, and the loads of all endpoints show that.
func isIdle(f *testbed.Fleet) error {
	if err := f.Waits(0, 0); err != nil {
		return err
	}
	v, err := f.View()
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
	testbed.EachCarrier(t, conversationsThatWaitGoWhereTheyAreCached)
}

func conversationsThatWaitGoWhereTheyAreCached(t *testing.T, by testbed.Carrier) {
	const conversations, places = 8, 8
	p := engine.Defaults()
	p.CacheTokens = 200_000
	pool := testbed.Servers(t, testbed.Same(places/2, modelsim.Options{Batching: &p})...)
	f := by.Start(t, testbed.Plan{Servers: pool, Cluster: "queue: {max_in_flight: 2}", Bootstrap: []string{"--prefix"}})
	by.StartEnvoy(t, f)
	f.Eventually("the other Envoy has joined the queue", func() error { return f.Waits(0, 0) })
	long := func(text string) string { return strings.Repeat(text+" ", 100) }
	f.Eventually("what tokens cost is known", func() error {
		if _, err := new(chat).say(t, f.URLs[1], long("to begin with")); err != nil {
			return err
		}
		v, err := f.View()
		if err == nil && v.Decision.Unit != api.UnitWork {
			err = fmt.Errorf("the unit of load is %q", v.Decision.Unit)
		}
		return err
	})
	for i := range conversations {
		var c chat
		empty := fill(t, f, 1, places)
		first := make(chan string, 1)
		go func() {
			server, err := c.say(t, f.URLs[0], long(fmt.Sprint("conversation ", i)))
			if err != nil {
				t.Error(err)
			}
			first <- server
		}()
		f.Eventually("the request waits", func() error { return f.Waits(1, places) })
		empty()
		began := <-first
		f.Eventually("all is idle", func() error { return isIdle(f) })
		if next, err := c.say(t, f.URLs[0], "go on"); err != nil || next != began {
			t.Errorf("conversation %d went to %s (%v), and is cached at %s", i, next, err, began)
		}
	}
	if n := by.Choices(t, f, "queue_prefix"); n < conversations {
		t.Errorf("%v requests got a place where a part of their prompt is cached, want %d", n, conversations)
	}
}

// TestTheQueueFollowsTheLongestMatch where that is configured, also of engines that count no tokens.
func TestTheQueueFollowsTheLongestMatch(t *testing.T) {
	testbed.EachCarrier(t, func(t *testing.T, by testbed.Carrier) {
		pool := testbed.Servers(t, testbed.Same(2, modelsim.Options{Engine: modelsim.Triton, Slots: 8})...)
		f := by.Start(t, testbed.Plan{Servers: pool, Bootstrap: []string{"--prefix"},
			Cluster: "engine: triton\nqueue: {max_in_flight: 8}\nprefix: {choice: longest-match}"})
		const prompts = 12
		for i := range prompts {
			prompt := testbed.Talk(fmt.Sprint("conversation ", i))
			if first, again := f.Post(t, prompt), f.Post(t, prompt); again != first {
				t.Errorf("prompt %d went to server %d, and then to %d", i, first, again)
			}
		}
		if n := by.Choices(t, f, "queue_prefix"); n != prompts {
			t.Errorf("%v requests got a place by the longest match, want %d", n, prompts)
		}
	})
}
