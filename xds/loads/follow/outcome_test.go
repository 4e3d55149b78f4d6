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
		dropped                string
	}{
		{Outcome{Endpoint: "10.0.0.1:80"}, "queue", "", "", "", "", ""},
		{Outcome{Endpoint: "10.0.0.1:80", Cached: true}, "queue_prefix", "", "", "", "", ""},
		{Outcome{}, "", "", "", "", "", ""},
		{Outcome{Refused: "full", RetryAfter: time.Second}, "queue_full",
			"all model servers are busy, and the queue is full\n", "steelyard_queue_full", "1", "full",
			"rejected-saturated"},
		{Outcome{Refused: "timeout", RetryAfter: 90 * time.Second}, "queue_timeout",
			"no model server was free within the time that a request may wait\n", "steelyard_queue_timeout", "90",
			"timeout", "rejected-ttl-expired"},
		{Outcome{Refused: "later"}, "queue_later", "the queue does not take this request\n", "steelyard_queue_later",
			"0", "later", "rejected-saturated"},
	} {
		if got := c.outcome.Reason(); got != c.reason {
			t.Errorf("%+v: the reason is %q, want %q", c.outcome, got, c.reason)
		}
		if c.outcome.Refused == "" {
			continue
		}
		got := c.outcome.Refusal()
		headers := [][2]string{{"retry-after", c.retryAfter}, {"x-steelyard-refused", c.refusedFor},
			{"x-llm-d-request-dropped-reason", c.dropped}}
		if got.Status != 429 || got.Body != c.body || got.Details != c.details || !slices.Equal(got.Headers, headers) {
			t.Errorf("%+v: the answer is %+v", c.outcome, got)
		}
	}
}
