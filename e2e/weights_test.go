package e2e

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"steelyard/e2e/rig/load"
	"steelyard/e2e/rig/modelsim"
	"steelyard/e2e/rig/proc"
	"steelyard/e2e/rig/proc/proctest"
)

// quick returns a load that shows in counts but not in the load of the servers.
func quick(count int) load.Plan {
	return load.Plan{Process: load.Fixed, Rate: 800, Count: count,
		Work: load.Work{Mean: time.Millisecond, Shape: load.Deterministic}, Seed: 1}
}

// exactly has Envoy follow the weights whatever requests it has open itself, so that traffic can be compared with the
// weights.
var exactly = []string{"--lb-policy", "round_robin"}

// wide servers have a slot for each request of these tests.
var wide = modelsim.Options{Slots: 1000}

func TestTrafficFollowsTheWeights(t *testing.T) {
	// Idle servers of unequal capacity: the shares are those of the capacity.
	pool := servers(t, same(4, wide)...)
	endpoints := "endpoints:\n  static:\n"
	for i, s := range pool {
		endpoints += fmt.Sprintf("  - {address: %s, capacity: %d}\n", s.Address(), 100*(i+1))
	}
	f := start(t, plan{servers: pool, cluster: endpoints, envoys: 2, bootstrap: exactly})
	result := f.send(quick(6000)).wait(t)

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
	pool := servers(t, same(4, modelsim.Options{Slots: 2})...)
	f := start(t, plan{servers: pool, envoys: 2})
	busy := pool[0].Address()
	f.eventually("the idle pool is balanced", func() error {
		for i := range f.envoys {
			if share := f.shares(i)[busy]; math.Abs(share-0.25) > 0.05 {
				return fmt.Errorf("envoy %d gives it %.3f, want a quarter", i, share)
			}
		}
		return nil
	})

	// Ten requests of a minute that do not come through the Envoys.
	flood(t, pool[0], 10)
	changed := time.Now()
	f.eventually("every Envoy turns away from it", func() error {
		for i := range f.envoys {
			if share := f.shares(i)[busy]; share > 0.02 {
				return fmt.Errorf("envoy %d still gives it %.3f", i, share)
			}
		}
		return nil
	})
	if took := time.Since(changed); took > time.Second {
		t.Errorf("it took %v, want at most a second", took)
	}
	result := f.send(quick(1000)).wait(t)
	if got := result.Servers[busy]; got > 30 || result.Errors != 0 {
		t.Errorf("the busy server got %d of 1000 requests with %d errors, want at most 30 and none", got, result.Errors)
	}
}

// flood sends n requests of a minute to a server, not through the Envoys, and returns when the server has them. They
// end with the test.
func flood(t *testing.T, s *modelsim.Server, n int) {
	t.Helper()
	before := s.InFlight()
	for range n {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.Address()+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(modelsim.HeaderService, "60")
		done := make(chan struct{})
		go func() {
			defer close(done)
			if resp, err := http.DefaultClient.Do(req); err == nil {
				resp.Body.Close()
			}
		}()
		t.Cleanup(func() { <-done }) // the test's context has ended by then
	}
	for deadline := time.Now().Add(limit); s.InFlight() < before+n; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d requests in flight, want %d", s.InFlight(), before+n)
		}
	}
}

func TestAnOverloadedEndpointIsDegradedAndDrainedWithoutAnError(t *testing.T) {
	pool := servers(t, same(4, modelsim.Options{Slots: 2})...)
	f := start(t, plan{servers: pool, cluster: "overload: {queue_enter: 3, queue_leave: 1, min_dwell: 500ms}"})
	over := pool[0].Address()
	f.eventually("all are healthy", func() error { return healthOf(f.hosts(0), over, "HEALTHY") })

	const flooded = 12 // 2 executing, 10 waiting: 5 per slot
	flood(t, pool[0], flooded)
	f.eventually("Envoy holds it DEGRADED", func() error { return healthOf(f.hosts(0), over, "DEGRADED") })
	e, err := f.endpoint(over)
	if err != nil {
		t.Fatal(err)
	}
	if !e.Overloaded || e.OverloadReason == "" {
		t.Errorf("shown as overloaded %v because %q", e.Overloaded, e.OverloadReason)
	}
	// One after the other, so that the others stay idle. On a machine that stands still for a moment, requests at a
	// fixed rate gather there until they are as busy, and the flag is cleared for that.
	for i := range 1000 {
		resp := f.postWith(t, nil, modelsim.HeaderService, "0.001")
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

const countsOnly = "scrape: {disabled: true}\ninflight: {redis_key: \"inflight:{cluster}\"}\n"

func redisSection(r *proc.Redis) string {
	return fmt.Sprintf("redis: {addresses: [%q]}", r.Address())
}

// setCounts writes in-flight counts as a picker would.
func setCounts(t *testing.T, address string, counts map[string]float64) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: address})
	defer client.Close()
	for member, n := range counts {
		if err := client.ZAdd(t.Context(), "inflight:"+cluster, redis.Z{Member: member, Score: n}).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestInFlightCountsInRedisShiftTrafficWithoutAScrape(t *testing.T) {
	pool := servers(t, same(3, wide)...)
	store := proctest.Redis(t, proc.RedisConfig{})
	setCounts(t, store.Address(), map[string]float64{
		pool[0].Address(): 0, pool[1].Address(): 0, pool[2].Address(): 0, "10.9.9.9:80": 5,
	})
	// Reports of the Envoys would take precedence over Redis.
	f := start(t, plan{servers: pool, cluster: countsOnly, top: redisSection(store),
		bootstrap: slices.Concat(exactly, silent)})
	f.eventually("the idle pool is balanced", func() error {
		if share := f.shares(0)[pool[0].Address()]; math.Abs(share-1.0/3) > 0.05 {
			return fmt.Errorf("share %.3f, want a third", share)
		}
		return nil
	})
	setCounts(t, store.Address(), map[string]float64{pool[0].Address(): 40, pool[1].Address(): 40})
	f.eventually("the least loaded gets it all", func() error {
		if share := f.shares(0)[pool[2].Address()]; share < 0.95 {
			return fmt.Errorf("share %.3f, want nearly all", share)
		}
		return nil
	})
	result := f.send(quick(500)).wait(t)
	if got := result.Servers[pool[2].Address()]; got < 460 {
		t.Errorf("%d of 500 requests went to the least loaded server, want at least 460", got)
	}
	v, err := f.view()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range v.Sources {
		if s.Name == "redis" && s.IgnoredMembers != 1 {
			t.Errorf("%d ignored members shown, want the 1 that is no endpoint", s.IgnoredMembers)
		}
	}
}
