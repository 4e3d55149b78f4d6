package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"steelyard/e2e/rig/load"
	"steelyard/e2e/rig/modelsim"
	"steelyard/internal/api"
)

// quiet waits until no incident is about an endpoint, and its series claim no fault.
func (f *fleet) quiet(address string) {
	f.t.Helper()
	f.eventually("no incident and no series blames "+address, func() error {
		var list api.IncidentList
		if err := f.get("/api/v1/incidents", &list); err != nil {
			return err
		}
		for _, i := range list.Incidents {
			if i.Subject.Name == address {
				return fmt.Errorf("%s: %s", i.Title, i.Why)
			}
		}
		_, page, err := f.ask("/metrics")
		if err != nil {
			return err
		}
		for _, series := range []string{"steelyard_endpoint_outlier", "steelyard_endpoint_probed"} {
			line := fmt.Sprintf(`%s{endpoint=%q,envoy_cluster_name=%q} 0`, series, address, cluster)
			if !strings.Contains(page, line) {
				return fmt.Errorf("/metrics has no %s", line)
			}
		}
		return nil
	})
}

// TestADrainOfAStalledEndpointEndsWhatPages: what an operator does at night. It hangs and is drained, which ends
// incident and alert; it is restarted, and after the drain it is like any other at once.
func TestADrainOfAStalledEndpointEndsWhatPages(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	pool := servers(t, same(3, wide)...)
	f := start(t, plan{servers: pool, asked: o.asked()})
	f.send(load.Plan{Rate: 60, Work: load.Work{Mean: 20 * time.Millisecond}, Seed: 11})
	f.serving(pool)
	stalled := pool[1]
	address := stalled.Address()
	stalled.SetFrozen(true)
	f.flaggedWithin(15*time.Second, address, "stalled since ") // it may have answered too little to be known

	o.ask(f, "drain", address, "--reason", "restart it")
	f.quiet(address)
	e, err := f.endpoint(address)
	if err != nil || e.State != api.EndpointDrained {
		t.Errorf("the state is %q, want drained (%v)", e.State, err)
	}
	stalled.Close()
	options := wide
	options.Address = address
	again, err := modelsim.Start(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { again.Close() })
	f.eventually("its new process is seen", func() error {
		e, err := f.endpoint(address)
		if err == nil && (e.LastScrape.Error != "" || !e.OutlierSince.IsZero() || e.Probed != "") {
			err = fmt.Errorf("an outlier since %v: %q, %q", e.OutlierSince, e.Probed, e.LastScrape.Error)
		}
		return err
	})
	f.quiet(address)
	o.ask(f, "undrain", address)
	f.wellAgain(again)
	f.quiet(address)
}
