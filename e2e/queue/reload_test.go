package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"testing"
	"time"

	"steelyard/e2e/rig/modelsim"
	"steelyard/e2e/rig/proc"
	"steelyard/e2e/rig/testbed"
)

// TestWaitingRequestsOutliveAReloadOfTheirQueue: it has fewer places than are taken, other headers, and its classes in
// another order, one with another name.
func TestWaitingRequestsOutliveAReloadOfTheirQueue(t *testing.T) {
	t.Parallel()
	testbed.EachCarrier(t, waitingRequestsOutliveAReloadOfTheirQueue)
}

func waitingRequestsOutliveAReloadOfTheirQueue(t *testing.T, by testbed.Carrier) {
	f := queueing(t, by, testbed.Servers(t, modelsim.Options{Slots: 8}), 2,
		"{max_in_flight: 2, classes: [{name: old}, {name: base}, {name: urgent, strict: true}]}")
	c := newCallers(t, f)
	var release [2]context.CancelFunc
	for i := range release {
		var ctx context.Context
		ctx, release[i] = context.WithCancel(t.Context())
		defer release[i]()
		c.send(ctx, 0, 0, "base", "", time.Minute)
		f.Eventually("the place is taken", func() error { return f.Waits(0, i+1) })
	}
	// Those whose class has another name now belong to the last one, in which the order is that of arrival.
	turns := []turn{
		{"base", "", 3}, {"old", "", 4}, {"old", "", 5}, {"urgent", "", 1}, {"old", "", 6}, {"base", "", 7},
		{"urgent", "", 2},
	}
	for i, r := range turns {
		c.send(t.Context(), r.number, i%2, r.class, r.tenant, 20*time.Millisecond)
		f.Eventually("the request waits", func() error { return f.Waits(i+1, 2) })
	}
	f.WriteConfig("queue: {max_in_flight: 1, class_header: x-kind, tenant_header: x-team, " +
		"classes: [{name: urgent, strict: true}, {name: new}, {name: base}]}")
	f.Eventually("the queue has the new classes", func() error {
		q, err := f.Queue()
		if err == nil && q.Classes[0].Name != "urgent" {
			err = fmt.Errorf("classes %+v", q.Classes)
		}
		return errors.Join(err, f.Waits(len(turns), 2))
	})
	release[0]()
	f.Eventually("one place remains, which is taken", func() error { return f.Waits(len(turns), 1) })
	release[1]()
	c.next() // the end of either
	c.inOrder(len(turns))
	f.Eventually("no place is held", func() error { return f.Waits(0, 0) })
	f.Eventually("the new header names the class", func() error {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.URLs[0], nil)
		if err != nil {
			return err
		}
		r.Header.Set("X-Kind", "new")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		resp.Body.Close()
		q, err := f.Queue()
		if err == nil && q.Classes[1].Granted == 0 {
			err = fmt.Errorf("%s: classes %+v", resp.Status, q.Classes)
		}
		return err
	})
}

// TestWaitingRequestsOutliveADrainOfTheirListener: a load balancer is to send this Envoy nothing more. Those that wait
// in it still get their turn.
func TestWaitingRequestsOutliveADrainOfTheirListener(t *testing.T) {
	t.Parallel()
	for name, query := range map[string]url.Values{"at once": nil, "gracefully": {"graceful": {""}}} {
		t.Run(name, func(t *testing.T) {
			testbed.EachCarrier(t, func(t *testing.T, by testbed.Carrier) {
				const waiting = 6
				f, c, release := waitBehindOne(t, by, waiting)
				address, err := f.Envoys[0].Listener(t.Context(), "ingress")
				if err == nil {
					_, err = f.Envoys[0].Post(t.Context(), "/drain_listeners", query)
				}
				if err != nil {
					t.Fatal(err)
				}
				if query == nil {
					f.Eventually("the listener is closed", func() error {
						conn, err := net.Dial("tcp", address)
						if err == nil {
							conn.Close()
							return errors.New("it takes connections")
						}
						return nil
					})
				}
				if err := f.Waits(waiting, 1); err != nil {
					t.Errorf("while it drains: %v", err)
				}
				release()
				c.inOrder(waiting)
				f.Eventually("no place is held", func() error { return f.Waits(0, 0) })
			})
		})
	}
}

// TestAHotRestartFailsNoWaitingRequest: the old process sends what waits in it, while the new one has joined the queue.
// With a picker, it has joined for both.
func TestAHotRestartFailsNoWaitingRequest(t *testing.T) {
	t.Parallel()
	testbed.EachCarrier(t, aHotRestartFailsNoWaitingRequest)
}

func aHotRestartFailsNoWaitingRequest(t *testing.T, by testbed.Carrier) {
	p := testbed.Plan{Servers: testbed.Servers(t, modelsim.Options{Slots: 8}), Cluster: "queue: {max_in_flight: 1}"}
	processes := 2 // in the queue, while there are two of Envoy
	var f *testbed.Fleet
	args := []string{"--module"}
	switch by {
	case testbed.ByModule:
		testbed.WithModule(t)
		f = testbed.WithoutEnvoys(t, p)
	case testbed.ByPicker:
		p.Edits, processes = testbed.Patient, 1
		f = testbed.WithoutEnvoys(t, p)
		args = []string{"--picker", testbed.StartPicker(t, f.Dir, f.XDS, "", "--name", "restarting").Address}
	}
	ports, err := proc.FreeAddresses(2)
	if err != nil {
		t.Fatal(err)
	}
	text := testbed.Run(t, append([]string{"bootstrap", "--cluster", testbed.Cluster, "--xds", f.XDS,
		"--node-id", "restarting",
		"--listen", ports[0], "--admin", ports[1]}, args...)...)
	run := testbed.Epochs(t, testbed.Edited(t, text, p.Edits), 10*time.Second)
	f.URLs = []string{"http://" + ports[0] + "/"}
	// are returns nil when so many requests wait and are in flight, of so many processes.
	are := func(waiting, inFlight, processes int) func() error {
		return func() error {
			q, err := f.Queue()
			if err == nil && (q.Classes[0].Waiting != waiting || q.InFlight.Or(-1) != float64(inFlight) ||
				q.Envoys != processes) {
				err = fmt.Errorf("the queue is %+v, want %d, %d of %d", q, waiting, inFlight, processes)
			}
			return err
		}
	}
	old := run(0)
	c := newCallers(t, f)
	f.Eventually("the old process serves", func() error {
		if a := c.call(t.Context(), 0, 0, "", "", time.Millisecond); a.code != http.StatusOK {
			return fmt.Errorf("%+v", a)
		}
		return nil
	})
	f.Eventually("the old process has joined the queue", are(0, 0, 1))
	first, release := context.WithCancel(t.Context())
	defer release()
	c.send(first, 0, 0, "", "", time.Minute)
	f.Eventually("the place is taken", are(0, 1, 1))
	const ofOld, all = 4, 6
	for i := range ofOld {
		c.send(t.Context(), i+1, 0, "", "", 20*time.Millisecond)
		f.Eventually("the request waits", are(i+1, 1, 1))
	}
	run(1)
	f.Eventually("the new process serves", func() error { return serves(ports[1], 1) })
	f.Eventually("both processes have joined the queue", are(ofOld, 1, processes))
	for i := ofOld; i < all; i++ {
		c.send(t.Context(), i+1, 0, "", "", 20*time.Millisecond)
		f.Eventually("the request waits", are(i+1, 1, processes))
	}
	release()
	c.inOrder(all)
	f.Eventually("no place is held", are(0, 0, processes))
	<-old.Done() // or the test's own timeout
	f.Eventually("the old process has left", are(0, 0, 1))
	if a := c.call(t.Context(), all+1, 0, "", "", time.Millisecond); a.code != http.StatusOK {
		t.Errorf("after the restart: %+v", a)
	}
}

// serves returns nil when the process of this epoch has the admin address of a restarted Envoy, and serves.
func serves(admin string, epoch int) error {
	resp, err := http.Get("http://" + admin + "/server_info")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var info struct {
		State   string
		Options struct {
			Epoch int `json:"restart_epoch"`
		} `json:"command_line_options"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&info); err != nil {
		return err
	}
	if info.State != "LIVE" || info.Options.Epoch != epoch {
		return fmt.Errorf("%+v, want epoch %d live", info, epoch)
	}
	return nil
}
