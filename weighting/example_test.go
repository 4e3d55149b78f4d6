package weighting_test

import (
	"fmt"
	"time"

	"steelyard/weighting"
)

// Three endpoints of one slot each, of which the first is idle, the second busy, and the third has a queue.
func ExampleLaw_Step() {
	law := weighting.NewLaw(weighting.DefaultParams())
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	endpoint := func(address string, waiting, running float64) weighting.Endpoint {
		return weighting.Endpoint{
			Address: address, Capacity: 1,
			Server: weighting.ServerReport{
				Queue:   weighting.Reading{Value: waiting, At: now},
				Running: weighting.Reading{Value: running, At: now},
			},
		}
	}
	decision := law.Step(now, weighting.Snapshot{Endpoints: []weighting.Endpoint{
		endpoint("10.0.0.1:8000", 0, 0),
		endpoint("10.0.0.2:8000", 0, 1),
		endpoint("10.0.0.3:8000", 4, 1),
	}})
	for _, e := range decision.Endpoints {
		fmt.Printf("%s load %.0f share %.2f %s\n", e.Address, e.Load, e.Share, e.Reason)
	}
	// Output:
	// 10.0.0.1:8000 load 0 share 0.67 fill
	// 10.0.0.2:8000 load 1 share 0.33 fill
	// 10.0.0.3:8000 load 5 share 0.00 floor
}
