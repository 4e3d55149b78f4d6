package follow

import (
	"slices"
	"testing"
	"time"
)

func TestAnOutcomeHasItsReasonAndARefusalItsAnswer(t *testing.T) {
	for _, c := range []struct {
		outcome                Outcome
		reason, body, details  string
		retryAfter, refusedFor string
	}{
		{Outcome{Endpoint: "10.0.0.1:80"}, "queue", "", "", "", ""},
		{Outcome{Endpoint: "10.0.0.1:80", Cached: true}, "queue_prefix", "", "", "", ""},
		{Outcome{}, "", "", "", "", ""},
		{Outcome{Refused: "full", RetryAfter: time.Second}, "queue_full",
			"all model servers are busy, and the queue is full\n", "steelyard_queue_full", "1", "full"},
		{Outcome{Refused: "timeout", RetryAfter: 90 * time.Second}, "queue_timeout",
			"no model server was free within the time that a request may wait\n", "steelyard_queue_timeout", "90",
			"timeout"},
		{Outcome{Refused: "later"}, "queue_later", "the queue does not take this request\n", "steelyard_queue_later",
			"0", "later"},
	} {
		if got := c.outcome.Reason(); got != c.reason {
			t.Errorf("%+v: the reason is %q, want %q", c.outcome, got, c.reason)
		}
		if c.outcome.Refused == "" {
			continue
		}
		got := c.outcome.Refusal()
		headers := [][2]string{{"retry-after", c.retryAfter}, {"x-steelyard-refused", c.refusedFor}}
		if got.Body != c.body || got.Details != c.details || !slices.Equal(got.Headers, headers) {
			t.Errorf("%+v: the answer is %+v", c.outcome, got)
		}
	}
}
