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
	for _, c := range []struct {
		outcome follow.Outcome
		reason  string
	}{
		{follow.Outcome{Endpoint: "10.0.0.1:80"}, "queue"},
		{follow.Outcome{Refused: "full", RetryAfter: time.Second}, "queue_full"},
	} {
		h.settle(c.outcome)
		if o, reason := h.result(); o != c.outcome || reason != c.reason {
			t.Errorf("the result is %+v for the reason %s, want %+v for %s", o, reason, c.outcome, c.reason)
		}
	}
	h.end()
	h.settle(follow.Outcome{})
	if woken != 2 || freed != 1 {
		t.Errorf("it was woken %d times and freed %d times, want 2 and 1", woken, freed)
	}
}

func TestEachRefusalHasItsText(t *testing.T) {
	texts := map[string]bool{}
	for _, reason := range []string{"full", "timeout", "of a later version"} {
		texts[refusal(reason)] = true
	}
	if len(texts) != 3 || texts[""] {
		t.Errorf("the texts are %v", texts)
	}
}
