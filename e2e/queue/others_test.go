package queue

import (
	"context"
	"fmt"
	"testing"
	"time"

	"steelyard/e2e/rig/testbed"
)

// TestAChoiceCountsTheRequestsOfOtherEnvoys by Steelyard's own loads, for each slot: a server that one Envoy has left
// empty gets the next requests of another one, and then each what the others have left of its slots.
func TestAChoiceCountsTheRequestsOfOtherEnvoys(t *testing.T) {
	testbed.EachCarrier(t, aChoiceCountsTheRequestsOfOtherEnvoys)
}

func aChoiceCountsTheRequestsOfOtherEnvoys(t *testing.T, by testbed.Carrier) {
	o := testbed.NewOperator(t)
	pool := testbed.Pool(t, 3)
	const slots = 16 // of the last; the others have half as many
	f := by.Launch(t, testbed.Plan{Envoys: 2, Asked: o.Asked(), Cluster: fmt.Sprintf("scrape: {disabled: true}\n"+
		"endpoints:\n  static:\n  - {address: %s, capacity: %d}\n  - {address: %s, capacity: %d}\n"+
		"  - {address: %s, capacity: %d}\n", pool[0].Address(), slots/2, pool[1].Address(), slots/2, pool[2].Address(),
		slots)})
	f.Plan.Servers = pool
	c := newCallers(t, f)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	sent := 0
	// full sends requests that last through an Envoy, until that many are at each server.
	full := func(envoy int, want ...int) {
		t.Helper()
		total := 0
		for _, n := range want {
			total += n
		}
		for ; sent < total; sent++ {
			c.send(ctx, sent, envoy, "", "", time.Minute)
			f.Eventually("Steelyard counts the request", func() error {
				return f.InFlightBetween(float64(sent+1), float64(sent+1))
			})
		}
		f.Eventually("the requests are where there was room", func() error {
			const twice = 2 // may count, for some milliseconds: chosen and reported
			for i, n := range want {
				if got := pool[i].InFlight(); got < n-twice || got > n+twice {
					return fmt.Errorf("server %d has %d requests, want %d", i, got, n)
				}
			}
			return nil
		})
	}
	o.Ask(f, "drain", pool[0].Address())
	f.Eventually("nothing goes to the drained one", func() error {
		if share := f.Shares(0)[pool[0].Address()]; share > 0.001 {
			return fmt.Errorf("share %v", share)
		}
		return nil
	})
	full(0, 0, slots/2, slots)
	o.Ask(f, "undrain", pool[0].Address())
	f.Eventually("it gets requests again", func() error {
		if share := f.Shares(1)[pool[0].Address()]; share < 0.9 {
			return fmt.Errorf("share %v", share)
		}
		return nil
	})
	full(1, slots/2, slots/2, slots)
	full(0, slots, slots, 2*slots)
	for i, want := range []float64{3*slots/2 + 2*slots, slots / 2} {
		stats, err := f.Envoys[i].Stats(t.Context(), namedRequests)
		if got := stats[namedRequests]; got != want || err != nil {
			t.Errorf("Envoy %d: an endpoint was named for %v requests, want %v (%v)", i, got, want, err)
		}
	}
}
