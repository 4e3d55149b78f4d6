package modelsim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
)

// Bounds and habits of the API of OpenAI, as vLLM has them.
const (
	largestBody   = 64 << 20 // bytes
	defaultTokens = 16       // generated, if nobody says how many
	chatTokens    = 4        // of the template, for each message
	imageTokens   = 1000     // of an image, whatever its bytes
)

// A completion is the body of a request, as far as it matters here.
type completion struct {
	Prompt   json.RawMessage `json:"prompt"`
	Messages []struct {
		Content json.RawMessage `json:"content"`
	} `json:"messages"`
	MaxTokens           *int `json:"max_tokens"`
	MaxCompletionTokens *int `json:"max_completion_tokens"`
	Stream              bool `json:"stream"`
	StreamOptions       struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
}

// output is the tokens to generate: as many as may be, for nothing ends an answer.
func (c *completion) output() int {
	switch {
	case c.MaxCompletionTokens != nil:
		return *c.MaxCompletionTokens
	case c.MaxTokens != nil:
		return *c.MaxTokens
	}
	return defaultTokens
}

// prompt is the tokens of the prompt: as many as a list of them has, or by the bytes
// of the text.
func (c *completion) prompt(bytesPerToken float64) (int, error) {
	if c.Messages == nil {
		return contentTokens(c.Prompt, bytesPerToken)
	}
	sum := 0
	for i, m := range c.Messages {
		n, err := contentTokens(m.Content, bytesPerToken)
		if err != nil {
			return 0, fmt.Errorf("message %d: %w", i, err)
		}
		sum += n + chatTokens
	}
	return sum, nil
}

var errNoPrompt = errors.New("no prompt: want a text, a list of tokens, or messages with texts and images")

// contentTokens is the tokens of a text, a list of tokens or the parts of a message.
func contentTokens(content json.RawMessage, bytesPerToken float64) (int, error) {
	var text string
	if json.Unmarshal(content, &text) == nil {
		return int(math.Ceil(float64(len(text)) / bytesPerToken)), nil
	}
	var ids []int
	if json.Unmarshal(content, &ids) == nil {
		return len(ids), nil
	}
	var parts []struct{ Type, Text string }
	if json.Unmarshal(content, &parts) != nil {
		return 0, errNoPrompt
	}
	sum := 0
	for _, p := range parts {
		switch p.Type {
		case "text":
			sum += int(math.Ceil(float64(len(p.Text)) / bytesPerToken))
		case "image_url":
			sum += imageTokens
		default:
			return 0, errNoPrompt
		}
	}
	return sum, nil
}

// sizes are the tokens of a request, those to generate and whether it asks for a
// stream; the error is the client's.
func (s *Server) sizes(r *http.Request, body []byte) (c completion, prompt, output int, err error) {
	if err := json.Unmarshal(body, &c); err != nil {
		return c, 0, 0, fmt.Errorf("the body: %w", err)
	}
	if text := r.Header.Get(HeaderPromptTokens); text != "" {
		prompt, err = strconv.Atoi(text)
	} else {
		prompt, err = c.prompt(s.options.BytesPerToken)
	}
	output = c.output()
	switch {
	case err != nil:
		return c, 0, 0, err
	case prompt < 1 || output < 1:
		return c, 0, 0, fmt.Errorf("%d tokens of prompt and %d to generate: want 1 of each at least", prompt, output)
	case prompt > math.MaxInt32 || output > math.MaxInt32 || !s.options.Batching.Fits(prompt, output):
		return c, 0, 0, fmt.Errorf("%d tokens of prompt and %d to generate: the context is of %d", prompt, output,
			s.options.Batching.KVTokens)
	}
	return c, prompt, output, nil
}

// serveCompletion answers completions and chats alike.
func (s *Server) serveCompletion(w http.ResponseWriter, r *http.Request) {
	if o := s.options.Observer; o != nil {
		o.Begin(s.address)
		defer o.End(s.address)
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, largestBody))
	if err != nil {
		refuse(w, http.StatusRequestEntityTooLarge, err.Error())
		return
	}
	switch ServingFault(s.servingFault.Load()) {
	case ServingUnavailable:
		http.Error(w, "unavailable", http.StatusServiceUnavailable)
		return
	case ServingFailing:
		refuse(w, http.StatusInternalServerError, "EngineCore encountered an issue")
		return
	}
	asked, prompt, output, err := s.sizes(r, body)
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	a := answer{w: w, isChat: strings.Contains(r.URL.Path, "chat"), prompt: prompt, output: output}
	w.Header().Set(HeaderServer, s.address)
	every := 0
	if asked.Stream {
		every = s.options.StreamInterval
		a.begin()
	}
	c := s.batcher.arrive(prompt, output, every)
	for sent := 0; sent < output; {
		if !s.awaitNews(r, c) {
			s.batcher.leave(c)
			panic(http.ErrAbortHandler) // there is nobody to read on
		}
		n := s.batcher.generated(c)
		if asked.Stream {
			a.piece(n-sent, n == output)
		}
		sent = n
	}
	if asked.Stream {
		a.end(asked.StreamOptions.IncludeUsage)
	} else {
		a.whole()
	}
}

// awaitNews reports whether there are tokens; false when the client or the server
// has gone.
func (s *Server) awaitNews(r *http.Request, c *call) bool {
	select {
	case <-c.news:
		return true
	case <-r.Context().Done():
		return false
	case <-s.closed:
		return false
	}
}

// refuse answers as vLLM does with what it does not execute.
func refuse(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{
		"message": message, "type": http.StatusText(status), "param": nil, "code": status,
	}})
}

// An answer is written in the form of completions or of chats.
type answer struct {
	w              http.ResponseWriter
	isChat         bool
	prompt, output int // tokens
}

// begin sends the header of a stream, before there is any token, as vLLM does.
func (a *answer) begin() {
	a.w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	a.w.WriteHeader(http.StatusOK)
	a.flush()
}

// piece sends some tokens of a stream.
func (a *answer) piece(tokens int, isLast bool) {
	text, reason := strings.Repeat(" token", tokens), "null"
	if isLast {
		reason = `"length"`
	}
	if a.isChat {
		a.event(`{"id":"chatcmpl-0","object":"chat.completion.chunk","model":"tiny",` +
			`"choices":[{"index":0,"delta":{"content":"` + text + `"},"finish_reason":` + reason + `}]}`)
		return
	}
	a.event(`{"id":"cmpl-0","object":"text_completion","model":"tiny","choices":[{"index":0,"text":"` +
		text + `","finish_reason":` + reason + `}]}`)
}

// end closes a stream.
func (a *answer) end(usage bool) {
	if usage {
		a.event(`{"id":"cmpl-0","choices":[],"usage":` + a.usage() + `}`)
	}
	a.event("[DONE]")
}

// whole is the answer that is no stream.
func (a *answer) whole() {
	a.w.Header().Set("Content-Type", "application/json")
	text := strings.Repeat(" token", a.output)
	choice, object := `"text":"`+text+`"`, "text_completion"
	if a.isChat {
		choice, object = `"message":{"role":"assistant","content":"`+text+`"}`, "chat.completion"
	}
	_, _ = io.WriteString(a.w, `{"id":"cmpl-0","object":"`+object+`","model":"tiny","choices":[{"index":0,`+choice+
		`,"finish_reason":"length"}],"usage":`+a.usage()+`}`)
}

func (a *answer) usage() string {
	return fmt.Sprintf(`{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}`, a.prompt, a.output,
		a.prompt+a.output)
}

func (a *answer) event(data string) {
	var b bytes.Buffer
	b.WriteString("data: ")
	b.WriteString(data)
	b.WriteString("\n\n")
	_, _ = a.w.Write(b.Bytes())
	a.flush()
}

func (a *answer) flush() { _ = http.NewResponseController(a.w).Flush() }
