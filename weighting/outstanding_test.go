package weighting

import (
	"math"
	"testing"
	"time"
)

// An account that began at epoch, of an engine that computes 1,000 tokens a second.
func newAccount() *outstanding {
	o := &outstanding{since: epoch, at: epoch, rate: 1000}
	o.note()
	return o
}

// Requests that their clients gave up, before a token, are begun and never computed.
func TestNoMorePromptsAreOutstandingThanRequestsArePresent(t *testing.T) {
	o, now := newAccount(), epoch.Add(time.Second)
	o.begin(now, 4, 4000)
	o.correct(standing{at: now, present: 1}, 1000)
	wantNear(t, "tokens of the one that is present", o.tokens, 1000, 1e-9)
}

// Slow uploads are in flight and no prompts: those that are computed later differ from them.
func TestRequestsThatAreNeverComputedAreNoPromptsUnderWay(t *testing.T) {
	o, now := newAccount(), epoch.Add(time.Second)
	o.begin(now, 2, 2000)
	for range 10 {
		now = now.Add(time.Second)
		o.drain(now)
		o.correct(standing{at: now, present: math.NaN()}, 1000)
	}
	o.begin(now, 3, 3000)
	wantNear(t, "tokens of three that begin", o.tokens, 3000, 1e-9)
	now = now.Add(500 * time.Millisecond)
	o.drain(now)
	o.correct(standing{at: now, present: math.NaN(), computed: 3}, 1000)
	wantNear(t, "tokens once these are computed", o.tokens, 0, 1e-9)
}

func TestAnEngineThatHoldsRequestsBackDrainsAsItWasSeenTo(t *testing.T) {
	var o outstanding
	half := tokenGrowth{seconds: 1, computed: 500}
	o.hold(&half, true)
	for _, c := range []struct {
		name   string
		recent bool
		waits  bool
		want   float64 // tokens per second
	}{
		{"while requests wait", true, true, 500},
		{"once that is not recent", false, true, 1000},
		{"once none waits", true, false, 1000},
	} {
		t.Run(c.name, func(t *testing.T) {
			o.hold(&half, c.waits)
			o.pace(1000, c.recent)
			wantNear(t, "rate", o.rate, c.want, 1e-9)
		})
	}
}
