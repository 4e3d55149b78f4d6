package scrape

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"steelyard/collectors/modelserver"
	"steelyard/internal/credentials"
)

// patience bounds how long a test waits for what must come. It is no sleep:
// a passing test does not wait that long.
const patience = 10 * time.Second

// page returns a body of which engine vllm reads a queue of n.
func page(n int) string {
	return fmt.Sprintf("# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting{model_name=\"m\"} %d\n", n)
}

func target(url string) Target {
	return Target{
		Cluster: "llama", Address: "10.0.0.1:8000", URL: url, Engine: modelserver.EngineVLLM,
		Interval: 20 * time.Millisecond, Timeout: 20 * time.Millisecond, BodyLimit: 1 << 20,
	}
}

// patient returns a target whose timeout no loaded machine reaches.
func patient(url string) Target {
	t := target(url)
	t.Interval, t.Timeout = patience, patience
	return t
}

func serve(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// once scrapes a target a single time, without a loop around it.
func once(t *testing.T, tgt Target) Result {
	t.Helper()
	return looped(t, tgt).scrape(context.Background())
}

// looped returns the loop of a target, to be scraped by hand.
func looped(t *testing.T, tgt Target) *loop {
	t.Helper()
	l, _ := loopAndNetwork(t, tgt)
	return l
}

func loopAndNetwork(t *testing.T, tgt Target) (*loop, *network) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	s := newShared()
	s.network.credentials = credentials.New(log)
	l := newLoop(tgt, s, nil, log)
	if l.broken != nil {
		t.Fatal(l.broken)
	}
	t.Cleanup(l.fetcher.close)
	return l, &s.network
}

// A recorder is a sink that remembers.
type recorder struct {
	mu      sync.Mutex
	results []Result
	more    chan struct{} // capacity one: something was added
}

func newRecorder() *recorder { return &recorder{more: make(chan struct{}, 1)} }

func (r *recorder) sink(res Result) {
	r.mu.Lock()
	r.results = append(r.results, res)
	r.mu.Unlock()
	select {
	case r.more <- struct{}{}:
	default:
	}
}

func (r *recorder) all() []Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Result(nil), r.results...)
}

// await waits until the results fulfil a condition.
func (r *recorder) await(t *testing.T, what string, ok func([]Result) bool) []Result {
	t.Helper()
	deadline := time.After(patience)
	for {
		if all := r.all(); ok(all) {
			return all
		}
		select {
		case <-r.more:
		case <-deadline:
			t.Fatalf("%s: not seen in %d results, last of them %+v", what, len(r.all()), last(r.all()))
		}
	}
}

func last(results []Result) Result {
	if len(results) == 0 {
		return Result{}
	}
	return results[len(results)-1]
}

// start runs a pool and stops it when the test ends.
func start(t *testing.T, p *Pool) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func wantFailure(t *testing.T, r Result, kind, words string) {
	t.Helper()
	if got := Kind(r.Err); got != kind || r.Err == nil || !strings.Contains(r.Err.Error(), words) {
		t.Errorf("kind %s, error %v; want kind %s and an error with %q", got, r.Err, kind, words)
	}
	if r.Report.Queue.Known() {
		t.Errorf("a failed scrape reports a queue: %+v", r.Report)
	}
}

func write(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
