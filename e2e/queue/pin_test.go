package queue

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"testing"
	"time"

	"steelyard/e2e/rig/modelsim"
	"steelyard/e2e/rig/testbed"
)

// TestAPinnedEndpointGetsItsShareOfTheChoices by the command of an operator, and a drained one gets none: of a module
// and of a picker, also where one prompt has all its routes elsewhere, and where requests ask a queue for a place.
func TestAPinnedEndpointGetsItsShareOfTheChoices(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cluster string
		flags   []string
	}{
		"by size":                    {},
		"by prompt":                  {flags: []string{"--prefix"}},
		"by the longest prompt":      {cluster: "prefix: {choice: longest-match}", flags: []string{"--prefix"}},
		"with a queue":               {cluster: "queue: {max_in_flight: 1000}"},
		"with a queue and by prompt": {cluster: "queue: {max_in_flight: 1000}", flags: []string{"--prefix"}},
	} {
		t.Run(name, func(t *testing.T) {
			testbed.EachCarrier(t, func(t *testing.T, by testbed.Carrier) {
				aPinnedEndpointGetsItsShare(t, by, c.cluster, c.flags)
			})
		})
	}
}

func aPinnedEndpointGetsItsShare(t *testing.T, by testbed.Carrier, cluster string, flags []string) {
	o := testbed.NewOperator(t)
	pool := testbed.Pool(t, 3)
	f := by.Launch(t, testbed.Plan{Servers: pool, Cluster: cluster, Bootstrap: flags, Asked: o.Asked()})
	pinned := pool[1].Address()
	// is wants that share of the requests there, all of one prompt, and of one Envoy.
	is := func(want float64) {
		t.Helper()
		const requests, chance = 300, 0.1 // of more than three standard deviations
		f.Eventually(fmt.Sprintf("a share of %.2f", want), func() error {
			before := f.EnvoyStat(namedRequests)
			n := 0.
			for range requests {
				resp := f.PostWith(t, testbed.Talk("a conversation"), modelsim.HeaderService, "0.001")
				resp.Body.Close()
				if resp.Header.Get(modelsim.HeaderServer) == pinned {
					n++
				}
			}
			if named := f.EnvoyStat(namedRequests) - before; named != requests {
				return fmt.Errorf("an endpoint was named for %v of %d requests", named, requests)
			}
			if share := n / requests; math.Abs(share-want) > chance || want == 0 && n > 0 {
				return fmt.Errorf("its share is %.3f", share)
			}
			return nil
		})
	}
	o.Ask(f, "pin", pinned, "--share", "70%")
	is(0.7)
	o.Ask(f, "pin", pinned, "--share", "20%")
	is(0.2)
	o.Ask(f, "drain", pinned)
	is(0)
}

// namedRequests counts the requests of an Envoy for which an endpoint was named.
const namedRequests = "cluster." + testbed.Cluster + "_picked.upstream_rq_total"

// TestADrainedEndpointHasNoPlaceInTheQueue: requests wait for the others although it is idle.
func TestADrainedEndpointHasNoPlaceInTheQueue(t *testing.T) {
	testbed.EachCarrier(t, aDrainedEndpointHasNoPlaceInTheQueue)
}

func aDrainedEndpointHasNoPlaceInTheQueue(t *testing.T, by testbed.Carrier) {
	o := testbed.NewOperator(t)
	pool := testbed.Pool(t, 2)
	f := by.Start(t, testbed.Plan{Servers: pool, Asked: o.Asked(), Cluster: "queue: {max_in_flight: 1}"})
	drained := pool[1].Address()
	o.Ask(f, "drain", drained)
	f.Eventually("the drain is in effect", func() error {
		e, err := f.Endpoint(drained)
		if err == nil && e.Reason != "drained" {
			err = fmt.Errorf("the reason is %s", e.Reason)
		}
		return err
	})
	c := newCallers(t, f)
	const requests = 3
	for i := range requests {
		c.send(t.Context(), i, 0, "", "", 100*time.Millisecond)
	}
	for range requests {
		if a := c.next(); a.code != http.StatusOK || a.header.Get(modelsim.HeaderServer) == drained {
			t.Errorf("%+v, want an answer of the other server", a)
		}
		if n := pool[0].InFlight() + pool[1].InFlight(); n > 1 {
			t.Errorf("%d requests are at the servers, and there is one place", n)
		}
	}
	o.Ask(f, "undrain", drained)
	first, release := context.WithCancel(t.Context())
	defer release()
	for i := range 2 {
		c.send(first, i, 0, "", "", time.Minute)
	}
	f.Eventually("it has its place again", func() error { return f.Waits(0, 2) })
}
