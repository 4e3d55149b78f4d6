package health

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"steelyard/e2e/rig/load"
	"steelyard/e2e/rig/modelsim"
	"steelyard/e2e/rig/testbed"
	"steelyard/internal/api"
)

// quiet waits until no incident is about an endpoint, and its series claim no fault.
func (f *fleet) quiet(address string) {
	f.T.Helper()
	f.Eventually("no incident and no series blames "+address, func() error {
		var list api.IncidentList
		if err := f.Get("/api/v1/incidents", &list); err != nil {
			return err
		}
		for _, i := range list.Incidents {
			if i.Subject.Name == address {
				return fmt.Errorf("%s: %s", i.Title, i.Why)
			}
		}
		page, err := f.Answer("/metrics")
		if err != nil {
			return err
		}
		for _, series := range []string{"steelyard_endpoint_outlier", "steelyard_endpoint_probed"} {
			line := fmt.Sprintf(`%s{endpoint=%q,envoy_cluster_name=%q} 0`, series, address, testbed.Cluster)
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
	o := testbed.NewOperator(t)
	pool := testbed.Pool(t, 3)
	f := start(t, testbed.Plan{Servers: pool, Asked: o.Asked()})
	f.Send(load.Plan{Rate: 60, Work: load.Work{Mean: 20 * time.Millisecond}, Seed: 11})
	f.serving(pool)
	stalled := pool[1]
	address := stalled.Address()
	stalled.SetFrozen(true)
	f.flaggedWithin(15*time.Second, address, "stalled since ") // it may have answered too little to be known

	o.Ask(f.Fleet, "drain", address, "--reason", "restart it")
	f.quiet(address)
	e, err := f.Endpoint(address)
	if err != nil || e.State != api.EndpointDrained {
		t.Errorf("the state is %q, want drained (%v)", e.State, err)
	}
	stalled.Close()
	options := testbed.Wide
	options.Address = address
	again, err := modelsim.Start(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { again.Close() })
	f.Eventually("its new process is seen", func() error {
		e, err := f.Endpoint(address)
		if err == nil && (e.LastScrape.Error != "" || !e.OutlierSince.IsZero() || e.Probed != "") {
			err = fmt.Errorf("an outlier since %v: %q, %q", e.OutlierSince, e.Probed, e.LastScrape.Error)
		}
		return err
	})
	f.quiet(address)
	o.Ask(f.Fleet, "undrain", address)
	f.WellAgain(again)
	f.quiet(address)
}
