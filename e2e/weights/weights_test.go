package weights

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"testing"
	"time"

	"steelyard/e2e/rig/modelsim"
	"steelyard/e2e/rig/proc"
	"steelyard/e2e/rig/proc/proctest"
	"steelyard/e2e/rig/testbed"
)

func TestTrafficFollowsTheWeights(t *testing.T) {
	// Idle servers of unequal capacity: the shares are those of the capacity.
	pool := testbed.Pool(t, 4)
	endpoints := "endpoints:\n  static:\n"
	for i, s := range pool {
		endpoints += fmt.Sprintf("  - {address: %s, capacity: %d}\n", s.Address(), 100*(i+1))
	}
	f := start(t, testbed.Plan{Servers: pool, Cluster: endpoints, Envoys: 2, Bootstrap: testbed.Exactly})
	result := f.Send(testbed.Quick(6000)).Wait(t)

	if result.Errors != 0 {
		t.Errorf("%d errors", result.Errors)
	}
	for i, s := range pool {
		want := float64(i+1) / 10
		if got := float64(result.Servers[s.Address()]) / float64(result.Requests); math.Abs(got-want) > 0.03 {
			t.Errorf("server %d got %.3f of the traffic, want %.3f ± 0.03", i, got, want)
		}
	}
}

func TestAQueueThatGrowsLosesTrafficWithinASecond(t *testing.T) {
	pool := testbed.Servers(t, testbed.Same(4, modelsim.Options{Slots: 2})...)
	f := start(t, testbed.Plan{Servers: pool, Envoys: 2})
	busy := pool[0].Address()
	f.Eventually("the idle pool is balanced", func() error {
		for i := range f.Envoys {
			if share := f.Shares(i)[busy]; math.Abs(share-0.25) > 0.05 {
				return fmt.Errorf("envoy %d gives it %.3f, want a quarter", i, share)
			}
		}
		return nil
	})

	// Ten requests of a minute that do not come through the Envoys.
	testbed.Flood(t, pool[0], 10)
	changed := time.Now()
	f.Eventually("every Envoy turns away from it", func() error {
		for i := range f.Envoys {
			if share := f.Shares(i)[busy]; share > 0.02 {
				return fmt.Errorf("envoy %d still gives it %.3f", i, share)
			}
		}
		return nil
	})
	if took := time.Since(changed); took > time.Second {
		t.Errorf("it took %v, want at most a second", took)
	}
	result := f.Send(testbed.Quick(1000)).Wait(t)
	if got := result.Servers[busy]; got > 30 || result.Errors != 0 {
		t.Errorf("the busy server got %d of 1000 requests with %d errors, want at most 30 and none", got, result.Errors)
	}
}

func TestAnOverloadedEndpointIsDegradedAndDrainedWithoutAnError(t *testing.T) {
	pool := testbed.Servers(t, testbed.Same(4, modelsim.Options{Slots: 2})...)
	f := start(t, testbed.Plan{Servers: pool, Cluster: "overload: {queue_enter: 3, queue_leave: 1, min_dwell: 500ms}"})
	over := pool[0].Address()
	f.Eventually("all are healthy", func() error { return healthOf(f.Hosts(0), over, "HEALTHY") })

	const flooded = 12 // 2 executing, 10 waiting: 5 per slot
	testbed.Flood(t, pool[0], flooded)
	f.Eventually("Envoy holds it DEGRADED", func() error { return healthOf(f.Hosts(0), over, "DEGRADED") })
	e, err := f.Endpoint(over)
	if err != nil {
		t.Fatal(err)
	}
	if !e.Overloaded || e.OverloadReason == "" {
		t.Errorf("shown as overloaded %v because %q", e.Overloaded, e.OverloadReason)
	}
	// One after the other, so that the others stay idle. On a machine that stands still for a moment, requests at a
	// fixed rate gather there until they are as busy, and the flag is cleared for that.
	for i := range 1000 {
		resp := f.PostWith(t, nil, modelsim.HeaderService, "0.001")
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("request %d: %s", i, resp.Status)
		}
	}
	if got := pool[0].InFlight() + int(pool[0].Served()); got != flooded {
		t.Errorf("the overloaded server got %d requests, want none", got-flooded)
	}
}

func healthOf(hosts map[string]proc.Host, address, want string) error {
	if got := hosts[address].Health; got != want {
		return fmt.Errorf("%s is %q, want %q", address, got, want)
	}
	return nil
}

func TestInFlightCountsInRedisShiftTrafficWithoutAScrape(t *testing.T) {
	pool := testbed.Pool(t, 3)
	store := proctest.Redis(t, proc.RedisConfig{})
	testbed.SetCounts(t, store.Address(), map[string]float64{
		pool[0].Address(): 0, pool[1].Address(): 0, pool[2].Address(): 0, "10.9.9.9:80": 5,
	})
	// Reports of the Envoys would take precedence over Redis.
	f := start(t, testbed.Plan{Servers: pool, Cluster: testbed.CountsOnly, Top: testbed.RedisSection(store),
		Bootstrap: slices.Concat(testbed.Exactly, testbed.Silent)})
	f.Eventually("the idle pool is balanced", func() error {
		if share := f.Shares(0)[pool[0].Address()]; math.Abs(share-1.0/3) > 0.05 {
			return fmt.Errorf("share %.3f, want a third", share)
		}
		return nil
	})
	testbed.SetCounts(t, store.Address(), map[string]float64{pool[0].Address(): 40, pool[1].Address(): 40})
	f.Eventually("the least loaded gets it all", func() error {
		if share := f.Shares(0)[pool[2].Address()]; share < 0.95 {
			return fmt.Errorf("share %.3f, want nearly all", share)
		}
		return nil
	})
	result := f.Send(testbed.Quick(500)).Wait(t)
	if got := result.Servers[pool[2].Address()]; got < 460 {
		t.Errorf("%d of 500 requests went to the least loaded server, want at least 460", got)
	}
	v, err := f.View()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range v.Sources {
		if s.Name == "redis" && s.IgnoredMembers != 1 {
			t.Errorf("%d ignored members shown, want the 1 that is no endpoint", s.IgnoredMembers)
		}
	}
}
