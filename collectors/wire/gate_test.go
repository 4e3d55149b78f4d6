package wire

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"steelyard/collectors/ledger"
)

func TestAGateCountsStreamsUntilItIsClosed(t *testing.T) {
	g := NewGate(1)
	inside, leave := make(chan struct{}), make(chan struct{})
	results := make(chan error, 2)
	for range 2 {
		go func() {
			results <- g.Run(func(func()) error { inside <- struct{}{}; <-leave; return errors.New("left") })
		}()
		<-inside
	}
	if g.Open() != 2 || g.Refused() != 0 {
		t.Errorf("%d open, %d refused; want 2 and none", g.Open(), g.Refused())
	}
	close(leave)
	for range 2 {
		if err := <-results; err == nil || err.Error() != "left" {
			t.Errorf("%v", err)
		}
	}
	g.Close()
	if g.Open() != 0 {
		t.Errorf("%d open, want 0", g.Open())
	}
	if err := g.Run(func(func()) error { return nil }); status.Code(err) != codes.Unavailable {
		t.Errorf("after Close: %v", err)
	}
	g.Close()
}

func TestAGateKnowsTheFirstAndTheLastOfAnEnvoy(t *testing.T) {
	g := NewGate(2)
	a, b := ledger.Envoy{NodeID: "a", Host: "10.0.0.1"}, ledger.Envoy{NodeID: "b", Host: "10.0.0.1"}
	for _, step := range []struct {
		envoy ledger.Envoy
		first bool
		code  codes.Code
	}{{a, true, codes.OK}, {a, false, codes.OK}, {a, false, codes.ResourceExhausted}, {b, true, codes.OK}} {
		if first, err := g.Admit(step.envoy); first != step.first || status.Code(err) != step.code {
			t.Errorf("%v: first %v, %v; want %+v", step.envoy, first, err, step)
		}
	}
	if len(g.streams) != 2 || g.Refused() != 1 {
		t.Errorf("%d speak, want 2; %d refused, want 1", len(g.streams), g.Refused())
	}
	if g.Dismiss(a) || !g.Dismiss(a) || !g.Dismiss(b) || len(g.streams) != 0 {
		t.Errorf("the last of each: %v", g.streams)
	}
}

// TestCloseEndsStreamsThatWait: the handler returns, which is what ends a stream,
// and what it served is waited for.
func TestCloseEndsStreamsThatWait(t *testing.T) {
	g := NewGate(1)
	inside, ended := make(chan struct{}), make(chan struct{})
	result := make(chan error)
	go func() {
		result <- g.Run(func(named func()) error { named(); named(); close(inside); <-ended; return nil })
	}()
	<-inside
	go func() { <-result; close(ended) }() // as gRPC does
	g.Close()
	if g.Open() != 0 {
		t.Error("a stream is left")
	}
}

// TestAStreamThatNamesNoNodeIsEnded: it would hold its place for ever.
func TestAStreamThatNamesNoNodeIsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(1)
		start, gone := time.Now(), make(chan struct{})
		wait := func(func()) error { <-gone; return errors.New("canceled, as gRPC does") }
		if err := g.Run(wait); status.Code(err) != codes.DeadlineExceeded || time.Since(start) != patience {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		close(gone)
		synctest.Wait()
		if g.Open() != 0 || g.Refused() != 1 {
			t.Errorf("%d open, %d refused; want 0 and 1", g.Open(), g.Refused())
		}
		err := g.Run(func(named func()) error {
			named()
			time.Sleep(time.Hour)
			return nil
		})
		if err != nil || g.Refused() != 1 {
			t.Errorf("one that is named: %v", err)
		}
		g.Close()
	})
}
