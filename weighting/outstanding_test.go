package weighting

import (
	"math"
	"testing"
	"time"
)

// Requests that their clients gave up, before a token, are begun and never computed.
func TestNoMorePromptsAreOutstandingThanRequestsArePresent(t *testing.T) {
	var o outstanding
	o.begin(4, 4000)
	o.correct(&tokenGrowth{seconds: 1}, 0, 1, 1000)
	wantNear(t, "tokens of the one that is present", o.tokens, 1000, 1e-9)
}

// Those that wait began last, whatever was computed by guess.
func TestThePromptsOfRequestsThatWaitAreOutstanding(t *testing.T) {
	o := outstanding{at: epoch, rate: 1e9}
	o.begin(1, 5000)
	o.begin(2, 600)
	o.drain(epoch.Add(time.Second))
	o.correct(&tokenGrowth{seconds: 1, first: 1}, 2, 5, 1000)
	wantNear(t, "tokens of the last two", o.tokens, 600, 1e-9)
}

// Slow uploads are in flight and no prompts: after some minutes nothing is left of them.
func TestRequestsThatAreNeverComputedAreForgotten(t *testing.T) {
	o := outstanding{at: epoch, rate: 1000}
	o.begin(2, 2000)
	for range 300 {
		o.correct(&tokenGrowth{seconds: 1}, 0, math.NaN(), 1000)
	}
	wantNear(t, "requests whose prompts are not computed", o.open, 0, 0.02)
	o.begin(3, 3000)
	o.correct(&tokenGrowth{seconds: 1, first: 3}, 0, math.NaN(), 1000)
	if o.tokens > 20 {
		t.Errorf("%v tokens once three others are computed", o.tokens)
	}
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
