package streams

import (
	"errors"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"steelyard/internal/envoyid"
)

func TestAGateCountsStreamsUntilItIsClosed(t *testing.T) {
	g := New(Limits{Streams: 2, What: "streams"})
	inside, leave := make(chan struct{}), make(chan struct{})
	results := make(chan error, 2)
	for range 2 {
		go func() {
			results <- g.Run(func() error { inside <- struct{}{}; <-leave; return errors.New("left") })
		}()
		<-inside
	}
	if g.Open() != 2 || g.Refused() != 0 {
		t.Errorf("%d open, %d refused; want 2 and none", g.Open(), g.Refused())
	}
	err := g.Run(func() error { return nil })
	if status.Code(err) != codes.ResourceExhausted || status.Convert(err).Message() != "2 streams, which is the limit" {
		t.Errorf("one more than the limit: %v", err)
	}
	close(leave)
	for range 2 {
		if err := <-results; err == nil || err.Error() != "left" {
			t.Errorf("%v", err)
		}
	}
	g.Close()
	g.Wait()
	if g.Open() != 0 || g.Refused() != 1 {
		t.Errorf("%d open, %d refused; want 0 and 1", g.Open(), g.Refused())
	}
	if err := g.Run(func() error { return nil }); status.Code(err) != codes.Unavailable {
		t.Errorf("after Close: %v", err)
	}
	g.Close()
}

func TestAGateKnowsTheFirstAndTheLastOfAnEnvoy(t *testing.T) {
	g := New(Limits{Each: 2})
	a, b := envoyid.ID{NodeID: "a", Host: "10.0.0.1"}, envoyid.ID{NodeID: "b", Host: "10.0.0.1"}
	for _, step := range []struct {
		envoy envoyid.ID
		first bool
		code  codes.Code
	}{{a, true, codes.OK}, {a, false, codes.OK}, {a, false, codes.ResourceExhausted}, {b, true, codes.OK}} {
		if first, err := g.Admit(step.envoy); first != step.first || status.Code(err) != step.code {
			t.Errorf("%v: first %v, %v; want %+v", step.envoy, first, err, step)
		}
	}
	if len(g.each) != 2 || g.Refused() != 1 {
		t.Errorf("%d Envoys, want 2; %d refused, want 1", len(g.each), g.Refused())
	}
	if g.Dismiss(a) || !g.Dismiss(a) || !g.Dismiss(b) || len(g.each) != 0 {
		t.Errorf("the last of each: %v", g.each)
	}
}

// TestCloseEndsStreamsThatWait: the handler returns, which is what ends a stream,
// and what it served is waited for.
func TestCloseEndsStreamsThatWait(t *testing.T) {
	g := New(Limits{})
	inside, ended := make(chan struct{}), make(chan struct{})
	result := make(chan error)
	go func() {
		result <- g.Run(func() error { close(inside); <-ended; return nil })
	}()
	<-inside
	go func() { <-result; close(ended) }() // as gRPC does
	g.Close()
	g.Wait()
	if g.Open() != 0 {
		t.Error("a stream is left")
	}
}
