package testbed

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"steelyard/e2e/rig/load"
	"steelyard/e2e/rig/modelsim"
)

// Steady returns a load that the pools of these tests carry easily.
func Steady(d time.Duration) load.Plan {
	return load.Plan{Rate: 100, Duration: d, Work: load.Work{Mean: 10 * time.Millisecond}, Seed: 2}
}

// Traffic is a load that goes on while the test does something.
type Traffic struct {
	cancel context.CancelFunc
	done   chan struct{}
	result load.Result
	err    error
}

// Send starts the load through all Envoys; stop ends it and returns the outcome.
func (f *Fleet) Send(p load.Plan) *Traffic {
	f.T.Helper()
	p.Targets = f.URLs
	if p.Duration == 0 && p.Count == 0 {
		p.Duration = 10 * time.Minute // until stop
	}
	ctx, cancel := context.WithCancel(f.T.Context())
	tr := &Traffic{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(tr.done)
		tr.result, tr.err = load.Run(ctx, p)
	}()
	f.T.Cleanup(func() { cancel(); <-tr.done })
	return tr
}

// Wait returns the outcome of a load that ends by itself.
func (tr *Traffic) Wait(t *testing.T) load.Result {
	t.Helper()
	<-tr.done
	if tr.err != nil {
		t.Fatal(tr.err)
	}
	return tr.result
}

// Stop ends a load and returns how many requests it sent, and how many of them failed. Requests that are open at this
// moment do not count as failed.
func (tr *Traffic) Stop(t *testing.T) (requests, failed int) {
	t.Helper()
	tr.cancel()
	<-tr.done
	if tr.err != nil && !errors.Is(tr.err, context.Canceled) {
		t.Fatal(tr.err)
	}
	for _, s := range tr.result.Samples {
		if s.Failed() && !errors.Is(s.Err, context.Canceled) {
			failed++
		}
	}
	return len(tr.result.Samples), failed
}

// Ask sends a request and returns when it is answered or has failed.
func Ask(ctx context.Context, url string, headers ...string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("{}"))
	if err != nil {
		panic(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	if resp, err := http.DefaultClient.Do(req); err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
}

// Asking sends n requests at once and returns a function that waits for them.
func Asking(ctx context.Context, t *testing.T, n int, url string, headers ...string) (wait func()) {
	t.Helper()
	done := make(chan struct{})
	for range n {
		go func() {
			Ask(ctx, url, headers...)
			done <- struct{}{}
		}()
	}
	return func() {
		for range n {
			<-done
		}
	}
}

// Addresses of servers.
func Addresses(pool []*modelsim.Server) []string {
	out := make([]string, len(pool))
	for i, s := range pool {
		out[i] = s.Address()
	}
	return out
}

// Quick returns a load that shows in counts but not in the load of the servers.
func Quick(count int) load.Plan {
	return load.Plan{Process: load.Fixed, Rate: 800, Count: count,
		Work: load.Work{Mean: time.Millisecond, Shape: load.Deterministic}, Seed: 1}
}

// Flood sends n requests of a minute to a server, not through the Envoys, and returns when the server has them. They
// end with the test.
func Flood(t *testing.T, s *modelsim.Server, n int) {
	t.Helper()
	before := s.InFlight()
	for range n {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.Address()+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(modelsim.HeaderService, "60")
		done := make(chan struct{})
		go func() {
			defer close(done)
			if resp, err := http.DefaultClient.Do(req); err == nil {
				resp.Body.Close()
			}
		}()
		t.Cleanup(func() { <-done }) // the test's context has ended by then
	}
	for deadline := time.Now().Add(Limit); s.InFlight() < before+n; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d requests in flight, want %d", s.InFlight(), before+n)
		}
	}
}
