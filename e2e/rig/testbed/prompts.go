package testbed

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// PostWith sends a prompt with more headers, names and values by turns. The caller closes the body of the answer.
func (f *Fleet) PostWith(t *testing.T, body []byte, headers ...string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.URLs[0], bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for pair := range slices.Chunk(headers, 2) {
		req.Header.Set(pair[0], pair[1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// Post sends a body to the first Envoy, and returns the number of the server that answered.
func (f *Fleet) Post(t *testing.T, body []byte) int {
	t.Helper()
	return f.PostTo(t, 0, body)
}

// PostTo sends it to an Envoy.
func (f *Fleet) PostTo(t *testing.T, envoy int, body []byte) int {
	t.Helper()
	before := make([]uint64, len(f.Plan.Servers))
	for i, s := range f.Plan.Servers {
		before[i] = s.Served()
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.URLs[envoy], bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Service-Seconds", "0.001")
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("a body of %d bytes: status %d, error %v", len(body), resp.StatusCode, err)
	}
	for i, s := range f.Plan.Servers {
		if s.Served() > before[i] {
			return i
		}
	}
	t.Fatal("no server has answered")
	return -1
}

// Talk returns a chat whose messages are named.
func Talk(messages ...string) []byte {
	var b strings.Builder
	b.WriteString(`{"model": "llama", "messages": [`)
	for i, m := range messages {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, `{"role": "user", "content": %q}`, strings.Repeat(m+" ", 400))
	}
	b.WriteString("]}")
	return []byte(b.String())
}
