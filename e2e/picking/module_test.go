package picking

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"steelyard/e2e/rig/load"
	"steelyard/e2e/rig/modelsim"
	"steelyard/e2e/rig/testbed"
	"steelyard/xds/loads/loadsv1"
)

func TestTheModuleNamesTheEndpointInsideEnvoy(t *testing.T) {
	testbed.WithModule(t)
	for _, mode := range []string{"failsafe", "shedding"} {
		t.Run(mode, func(t *testing.T) {
			pool := testbed.Pool(t, 3)
			f := withoutEnvoys(t, testbed.Plan{Servers: pool})
			// Envoy's own control plane is Steelyard; only the module follows other loads.
			loads := serveLoads(t, &one{addresses: []string{pool[1].Address(), pool[0].Address(), pool[2].Address()}})
			f.follows(loads, "--mode", mode)
			f.StartEnvoy(0)
			f.Eventually("the module has loads", func() error {
				before := pool[1].Served()
				const some = 20
				f.Send(testbed.Quick(some)).Wait(t)
				if got := pool[1].Served() - before; got != some {
					return fmt.Errorf("%d of %d requests went to the named endpoint", got, some)
				}
				return nil
			})
			const requests = 200
			before := []uint64{pool[0].Served(), pool[1].Served(), pool[2].Served()}
			if r := f.Send(testbed.Quick(requests)).Wait(t); r.Errors != 0 {
				t.Errorf("%d errors: %v", r.Errors, r.Codes)
			}
			for i, want := range []uint64{0, requests, 0} {
				if got := pool[i].Served() - before[i]; got != want {
					t.Errorf("server %d served %d, want %d", i, got, want)
				}
			}
		})
	}
}

// TestRequestsThatDoNotWaitInTheirQueueAreCounted: the loads say that there is one, which is not served.
func TestRequestsThatDoNotWaitInTheirQueueAreCounted(t *testing.T) {
	testbed.WithModule(t)
	pool := testbed.Pool(t, 1)
	f := withoutEnvoys(t, testbed.Plan{Servers: pool})
	loads := serveLoads(t, &one{addresses: []string{pool[0].Address()}, queue: &loadsv1.QueueHeaders{Class: "x-class"}})
	f.follows(loads)
	f.StartEnvoy(0)
	unqueued := func() float64 { return f.EnvoyStat("dynamicmodulescustom.picker_unqueued") }
	f.Eventually("the module has loads", func() error {
		if f.Send(testbed.Quick(1)).Wait(t); unqueued() == 0 {
			return errors.New("no request was counted")
		}
		return nil
	})
	before := unqueued()
	const requests = 20
	if r := f.Send(testbed.Quick(requests)).Wait(t); r.Errors != 0 {
		t.Errorf("%d errors: %v", r.Errors, r.Codes)
	}
	if got := unqueued() - before; got != requests {
		t.Errorf("%v of %d requests were counted", got, requests)
	}
}

// TestNoRequestFailsWithTheModuleWhenTheControlPlaneDiesOrHangs, and the module falls back to the weights. Each request
// waits for its body.
func TestNoRequestFailsWithTheModuleWhenTheControlPlaneDiesOrHangs(t *testing.T) {
	t.Parallel()
	testbed.WithModule(t)
	pool := testbed.Servers(t, testbed.Same(4, modelsim.Options{Slots: 8})...)
	f := start(t, testbed.Plan{Servers: pool, Envoys: 2, Bootstrap: []string{"--module", "--prefix"},
		Cluster: "push: {heartbeat: 300ms, endpoint_stale_after: 1s}"})
	traffic := f.Send(load.Plan{Rate: 60, Seed: 7, Work: load.Work{Mean: 30 * time.Millisecond}})
	named := func() float64 {
		t.Helper()
		const counter = "cluster." + testbed.Cluster + "_picked.upstream_rq_total"
		stats, err := f.Envoys[0].Stats(t.Context(), counter)
		if err != nil {
			t.Fatal(err)
		}
		return stats[counter]
	}
	picked := func(what string, want bool) {
		t.Helper()
		f.Eventually(what, func() error {
			before, served := named(), f.Served()
			f.Eventually("requests are served", func() error {
				if got := f.Served() - served; got < 60 {
					return fmt.Errorf("%d served", got)
				}
				return nil
			})
			if got := named() - before; (got > 10) != want || !want && got > 0 {
				return fmt.Errorf("%v requests with a named endpoint", got)
			}
			return nil
		})
	}
	picked("the module chooses", true)
	if err := f.Control.Kill(); err != nil {
		t.Fatal(err)
	}
	picked("without loads the weights decide", false)
	f.Control = f.StartControl("steelyard-2")
	picked("the module chooses again", true)
	if err := f.Control.Pause(); err != nil {
		t.Fatal(err)
	}
	picked("without newer loads the weights decide", false)
	if err := f.Control.Resume(); err != nil {
		t.Fatal(err)
	}
	picked("the module chooses after it hung", true)
	if sent, failed := traffic.Stop(t); failed != 0 {
		t.Errorf("%d of %d requests failed", failed, sent)
	}
	for _, reason := range []string{"fill", "stale"} {
		if f.Choices(t, 0, reason) == 0 {
			t.Errorf("no choice is counted for the reason %s", reason)
		}
	}
}
