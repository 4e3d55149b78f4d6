package queue

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"steelyard/e2e/rig/modelsim"
	"steelyard/e2e/rig/testbed"
	"steelyard/xds/places"
)

// A crowd is requests that wait in the queue of one Envoy, over few connections.
type crowd struct {
	f        *testbed.Fleet
	client   *http.Client
	waiting  sync.WaitGroup
	answered atomic.Int64 // that have not left
}

func newCrowd(t *testing.T, f *testbed.Fleet) *crowd {
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	c := &crowd{f: f, client: &http.Client{Transport: transport}}
	t.Cleanup(func() {
		c.waiting.Wait()
		transport.CloseIdleConnections()
		if n := c.answered.Load(); n > 0 {
			t.Errorf("%d requests of the crowd did not wait", n)
		}
	})
	return c
}

// join has a number of requests of a class wait until ctx is done.
func (c *crowd) join(ctx context.Context, requests int, class string) {
	for range requests {
		c.waiting.Go(func() {
			_ = c.ask(ctx, class, 10*time.Minute)
			if ctx.Err() == nil {
				c.answered.Add(1)
			}
		})
	}
}

// ask sends a request of a class, and returns an error unless it is answered with 200.
func (c *crowd) ask(ctx context.Context, class string, service time.Duration) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.f.URLs[0], nil)
	if err != nil {
		return err
	}
	r.Header.Set(modelsim.HeaderService, fmt.Sprint(service.Seconds()))
	r.Header.Set("X-Steelyard-Class", class)
	resp, err := c.client.Do(r)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	return nil
}

// unhurried is for a busy machine, where a picker that waits for a CPU would be taken for one that hangs.
var unhurried = []testbed.Edit{{"connection_keepalive: {interval: 1s, timeout: 2s}",
	"connection_keepalive: {interval: 60s, timeout: 60s}"}}

// TestRequestsBeyondThoseThatAnEnvoyMayQueueAreChosenForAtOnce, and counted. Once one has left, the next waits again.
func TestRequestsBeyondThoseThatAnEnvoyMayQueueAreChosenForAtOnce(t *testing.T) {
	t.Parallel()
	testbed.EachCarrier(t, requestsBeyondThoseThatAnEnvoyMayQueueAreChosenForAtOnce)
}

func requestsBeyondThoseThatAnEnvoyMayQueueAreChosenForAtOnce(t *testing.T, by testbed.Carrier) {
	const others = places.MaxRequests - 1 // than the one that holds the place
	p := testbed.Plan{Servers: testbed.Servers(t, modelsim.Options{Slots: 8}),
		Cluster: "queue: {max_in_flight: 1, classes: " +
			"[{name: a, max_waiting: 10000, max_wait: 9m}, {name: b, max_waiting: 10000, max_wait: 9m}]}"}
	if by == testbed.ByPicker {
		p.Edits = unhurried
	}
	f := by.Start(t, p)
	c := newCrowd(t, f)
	all, leave := context.WithCancel(t.Context())
	defer leave()
	c.join(all, 1, "a")
	f.Eventually("the place is taken", func() error { return f.Waits(0, 1) })
	one, leaves := context.WithCancel(all)
	defer leaves()
	c.join(one, 1, "a")
	for waiting := 1; waiting < others; {
		more := min(1024, others-waiting)
		c.join(all, more, []string{"a", "b"}[waiting/1024%2])
		waiting += more
		f.Eventually("they wait", func() error { return f.Waits(waiting, 1) })
	}
	if n := by.Unqueued(t, f); n != 0 {
		t.Errorf("%v of them did not wait", n)
	}
	soon, cancel := context.WithTimeout(t.Context(), testbed.Limit)
	defer cancel()
	if err := c.ask(soon, "a", time.Millisecond); err != nil {
		t.Errorf("one more: %v", err)
	}
	if n := by.Unqueued(t, f); n != 1 {
		t.Errorf("%v are counted, want 1", n)
	}
	leaves()
	f.Eventually("one has left", func() error { return f.Waits(others-1, 1) })
	c.join(all, 1, "b")
	f.Eventually("the next waits", func() error { return f.Waits(others, 1) })
	if n := by.Unqueued(t, f); n != 1 {
		t.Errorf("%v are counted, want 1", n)
	}
	leave()
	f.Eventually("none waits", func() error { return f.Waits(0, 0) })
}

// TestACrowdThatLeavesAtOnceTakesNobodyElseOutOfTheQueue: Envoy resets the picker's stream of each, in one turn of its
// loop, on the connection that has the streams of all others.
func TestACrowdThatLeavesAtOnceTakesNobodyElseOutOfTheQueue(t *testing.T) {
	const leaving, staying = 3000, 20
	f := testbed.ByPicker.Start(t, testbed.Plan{Servers: testbed.Servers(t, modelsim.Options{Slots: 8}),
		Cluster: "queue: {max_in_flight: 1, " +
			"classes: [{name: a, max_waiting: 10000, max_wait: 9m}]}", Edits: unhurried})
	others, c := newCrowd(t, f), newCrowd(t, f) // with connections of their own
	all, end := context.WithCancel(t.Context())
	defer end()
	others.join(all, 1, "a")
	f.Eventually("the place is taken", func() error { return f.Waits(0, 1) })
	others.join(all, staying, "a")
	f.Eventually("some wait", func() error { return f.Waits(staying, 1) })
	soon, leave := context.WithCancel(all)
	defer leave()
	for waiting := staying; waiting < staying+leaving; {
		c.join(soon, leaving/5, "a")
		waiting += leaving / 5
		f.Eventually("the crowd waits", func() error { return f.Waits(waiting, 1) })
	}
	leave()
	f.Eventually("the others wait", func() error { return f.Waits(staying, 1) })
	if n := f.EnvoyStat("cluster.steelyard_picker.upstream_cx_destroy_with_active_rq"); n != 0 {
		t.Errorf("Envoy has ended %v connections to its picker that had streams", n)
	}
}
