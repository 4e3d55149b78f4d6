package load

import (
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// headerPrompt gives a simulated engine the number of tokens of the prompt, whatever its bytes.
const headerPrompt = "X-Prompt-Tokens"

// headerConversation names the conversation of a request.
const headerConversation = "X-Conversation-Id"

// A Completion is a request to a language model that streams its answer.
type Completion struct {
	At             time.Duration // since the start; no earlier than that of the one before
	Prompt, Output int           // tokens, at least 1
	Bytes          int           // of the body; as many as asking takes, if that is more
	Chunked        bool          // the body comes without a content-length

	Text         string // the body, in place of Prompt, Output and Bytes
	Conversation string // X-Conversation-Id; none when empty
}

// body returns the text of the request. Its prompt is as long as it takes to fill the bytes.
func (c *Completion) body() string {
	if c.Text != "" {
		return c.Text
	}
	head := fmt.Sprintf(`{"stream":true,"max_tokens":%d,"prompt":"`, c.Output)
	const tail = `"}`
	return head + strings.Repeat("x", max(1, c.Bytes-len(head)-len(tail))) + tail
}

// reader returns the body for package http, which sends the length of a strings.Reader and
// chunks what it does not know.
func (c *Completion) reader() io.Reader {
	body := strings.NewReader(c.body())
	if c.Chunked {
		return struct{ io.Reader }{body}
	}
	return body
}

// setHeaders sends what the body does not contain.
func (c *Completion) setHeaders(h http.Header) {
	if c.Text == "" {
		h.Set(headerPrompt, strconv.Itoa(c.Prompt))
	}
	if c.Conversation != "" {
		h.Set(headerConversation, c.Conversation)
	}
}

// validateCompletions checks the requests of a plan that has them.
func (p Plan) validateCompletions() error {
	var last time.Duration
	for i, c := range p.Completions {
		switch {
		case c.Text == "" && (c.Prompt < 1 || c.Output < 1):
			return fmt.Errorf("completion %d: %d tokens of prompt and %d to generate, want 1 of each at least",
				i, c.Prompt, c.Output)
		case c.At < last:
			return fmt.Errorf("completion %d: at %v, want it no earlier than the one before, at %v", i, c.At, last)
		}
		last = c.At
	}
	return nil
}

// completions returns the arrivals of a plan that has them.
func (p Plan) completions() iter.Seq[Arrival] {
	return func(yield func(Arrival) bool) {
		targets := rand.New(rand.NewPCG(p.Seed, 3))
		pick := picker(p.Shares, len(p.Targets))
		for i := range p.Completions {
			c := &p.Completions[i]
			if !yield(Arrival{At: c.At, Target: pick(targets.Float64()), Completion: c}) {
				return
			}
		}
	}
}

// A firstRead remembers when the first byte came.
type firstRead struct {
	io.Reader
	at time.Time // zero before
}

// Read implements io.Reader.
func (f *firstRead) Read(b []byte) (int, error) {
	n, err := f.Reader.Read(b)
	if n > 0 && f.at.IsZero() {
		f.at = time.Now()
	}
	return n, err
}
