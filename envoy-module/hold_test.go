package main

import (
	"testing"
	"time"

	"steelyard/xds/loads/follow"
)

func TestAHeldRequestIsWokenOnceAndNotAfterItsEnd(t *testing.T) {
	f, err := newFilter(settings{Steelyard: "127.0.0.1:1", Cluster: "llama"}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer f.stop()
	woken, freed := 0, 0
	h := &held{filter: f, wake: func() { woken++ }, free: func() { freed++ }}
	if h.arrive(follow.Arrival{}) {
		t.Fatal("it waits without a Steelyard")
	}
	for _, o := range []follow.Outcome{{Endpoint: "10.0.0.1:80"}, {Refused: "full", RetryAfter: time.Second}} {
		h.settle(o)
		if got := h.result(); got != o {
			t.Errorf("the result is %+v, want %+v", got, o)
		}
	}
	h.end()
	h.settle(follow.Outcome{})
	if woken != 2 || freed != 1 {
		t.Errorf("it was woken %d times and freed %d times, want 2 and 1", woken, freed)
	}
}
