package e2e

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"steelyard/e2e/rig/load"
	"steelyard/e2e/rig/modelsim"
	"steelyard/e2e/rig/proc"
	"steelyard/xds/loads/loadsv1"
)

// withModule builds the module, and has Envoys that the test starts find it.
func withModule(t *testing.T) {
	t.Helper()
	folder, err := proc.BuildModule()
	if err != nil {
		t.Fatal(err)
	}
	// It stays: tests that run at the same time have the same module.
	if err := os.Setenv(proc.ModulePath, folder); err != nil {
		t.Fatal(err)
	}
}

func TestTheModuleNamesTheEndpointInsideEnvoy(t *testing.T) {
	withModule(t)
	for _, mode := range []string{"failsafe", "shedding"} {
		t.Run(mode, func(t *testing.T) {
			pool := servers(t, same(3, wide)...)
			f := withoutEnvoys(t, plan{servers: pool})
			// Envoy's own control plane is Steelyard; only the module follows other loads.
			loads := serveLoads(t, &one{addresses: []string{pool[1].Address(), pool[0].Address(), pool[2].Address()}})
			f.follows(loads, "--mode", mode)
			f.startEnvoy(0)
			f.eventually("the module has loads", func() error {
				before := pool[1].Served()
				const some = 20
				f.send(quick(some)).wait(t)
				if got := pool[1].Served() - before; got != some {
					return fmt.Errorf("%d of %d requests went to the named endpoint", got, some)
				}
				return nil
			})
			const requests = 200
			before := []uint64{pool[0].Served(), pool[1].Served(), pool[2].Served()}
			if r := f.send(quick(requests)).wait(t); r.Errors != 0 {
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
	withModule(t)
	pool := servers(t, same(1, wide)...)
	f := withoutEnvoys(t, plan{servers: pool})
	loads := serveLoads(t, &one{addresses: []string{pool[0].Address()}, queue: &loadsv1.QueueHeaders{Class: "x-class"}})
	f.follows(loads)
	f.startEnvoy(0)
	unqueued := func() float64 { return f.envoyStat("dynamicmodulescustom.picker_unqueued") }
	f.eventually("the module has loads", func() error {
		if f.send(quick(1)).wait(t); unqueued() == 0 {
			return errors.New("no request was counted")
		}
		return nil
	})
	before := unqueued()
	const requests = 20
	if r := f.send(quick(requests)).wait(t); r.Errors != 0 {
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
	withModule(t)
	pool := servers(t, same(4, modelsim.Options{Slots: 8})...)
	f := start(t, plan{servers: pool, envoys: 2, bootstrap: []string{"--module", "--prefix"},
		cluster: "push: {heartbeat: 300ms, endpoint_stale_after: 1s}"})
	traffic := f.send(load.Plan{Rate: 60, Seed: 7, Work: load.Work{Mean: 30 * time.Millisecond}})
	named := func() float64 {
		t.Helper()
		const counter = "cluster." + cluster + "_picked.upstream_rq_total"
		stats, err := f.envoys[0].Stats(t.Context(), counter)
		if err != nil {
			t.Fatal(err)
		}
		return stats[counter]
	}
	picked := func(what string, want bool) {
		t.Helper()
		f.eventually(what, func() error {
			before, served := named(), f.served()
			f.eventually("requests are served", func() error {
				if got := f.served() - served; got < 60 {
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
	if err := f.control.Kill(); err != nil {
		t.Fatal(err)
	}
	picked("without loads the weights decide", false)
	f.control = f.startControl("steelyard-2")
	picked("the module chooses again", true)
	if err := f.control.Pause(); err != nil {
		t.Fatal(err)
	}
	picked("without newer loads the weights decide", false)
	if err := f.control.Resume(); err != nil {
		t.Fatal(err)
	}
	picked("the module chooses after it hung", true)
	if sent, failed := traffic.stop(t); failed != 0 {
		t.Errorf("%d of %d requests failed", failed, sent)
	}
	for _, reason := range []string{"fill", "stale"} {
		if f.choices(t, 0, reason) == 0 {
			t.Errorf("no choice is counted for the reason %s", reason)
		}
	}
}
