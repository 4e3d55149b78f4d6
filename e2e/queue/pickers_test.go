package queue

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"steelyard/e2e/rig/modelsim"
	"steelyard/e2e/rig/testbed"
)

// TestNoWaitingRequestFailsWhenItsPickerDies or hangs: it goes by the weights within seconds. The others keep waiting.
func TestNoWaitingRequestFailsWhenItsPickerDies(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name          string
		die, comeBack func(*testbed.Fleet) error
	}{
		{"killed", func(f *testbed.Fleet) error { return f.Pickers[0].Kill() }, func(f *testbed.Fleet) error {
			f.Pickers[0] = testbed.StartPicker(t, f.Dir, f.XDS, f.Pickers[0].Address, "--name", "envoy-0")
			return nil
		}},
		{"hangs", func(f *testbed.Fleet) error { return f.Pickers[0].Pause() }, func(f *testbed.Fleet) error {
			return f.Pickers[0].Resume()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			const each, allowed = 4, 5 * time.Second
			f, calls, release := waitBehindOne(t, testbed.ByPicker, 2*each)
			late := lateness(t)
			began := time.Now()
			if err := c.die(f); err != nil {
				t.Fatal(err)
			}
			for range each {
				if a := calls.next(); a.number%2 != 0 || a.code != http.StatusOK {
					t.Errorf("request %d: %+v", a.number, a)
				}
			}
			slack := late()
			took := time.Since(began)
			t.Logf("the requests waited for %v after their picker", took)
			if took > allowed+slack {
				t.Errorf("the requests waited for %v, want at most %v (and %v, for the machine)", took, allowed, slack)
			}
			if err := c.comeBack(f); err != nil {
				t.Fatal(err)
			}
			release()
			var order []int
			for len(order) < each {
				a := calls.next()
				if a.number == 0 {
					continue
				}
				if a.code != http.StatusOK {
					t.Errorf("request %d: %+v", a.number, a)
				}
				order = append(order, a.number)
			}
			if !slices.IsSorted(order) {
				t.Errorf("the order of the answers is %v", order)
			}
			f.Eventually("the Envoys have joined the queue again", func() error { return f.Waits(0, 0) })
		})
	}
}

// TestARequestMayWaitForLongerThanAPickerMayTakeToAnswer, for its place by its headers and by its body.
func TestARequestMayWaitForLongerThanAPickerMayTakeToAnswer(t *testing.T) {
	t.Parallel()
	const allowed = 3 * time.Second // for an answer
	f := testbed.WithoutEnvoys(t, testbed.Plan{Servers: testbed.Pool(t, 1), Cluster: "queue: {max_in_flight: 1}",
		Edits: []testbed.Edit{
			{"message_timeout: 0.1s", fmt.Sprintf("message_timeout: %vs", allowed.Seconds())}, testbed.Patient[1]}})
	testbed.ByPicker.StartEnvoy(t, f, "--prefix")
	f.Eventually("the Envoy has joined the queue", func() error { return f.Waits(0, 0) })
	c := newCallers(t, f)
	first, release := context.WithCancel(t.Context())
	defer release()
	c.send(first, 0, 0, "", "", time.Minute)
	f.Eventually("the place is taken", func() error { return f.Waits(0, 1) })
	c.send(t.Context(), 1, 0, "", "", time.Millisecond)
	c.sending.Go(func() {
		resp := f.PostWith(t, testbed.Talk("a conversation"), modelsim.HeaderService, "0.001")
		resp.Body.Close()
		c.answers <- answer{number: 2, code: resp.StatusCode}
	})
	f.Eventually("two wait", func() error { return f.Waits(2, 1) })
	since := time.Now()
	f.Eventually("they wait for longer", func() error {
		if age := time.Since(since); age < allowed+allowed/2 {
			return fmt.Errorf("for %v", age)
		}
		return f.Waits(2, 1)
	})
	release()
	for range 3 {
		if a := c.next(); a.number > 0 && a.code != http.StatusOK {
			t.Errorf("request %d: %+v", a.number, a)
		}
	}
	if n := f.EnvoyStat("http.ingress.ext_proc.message_timeouts"); n != 0 {
		t.Errorf("the picker was too late %v times", n)
	}
	if n := f.Pickers[0].Choices(t, "queue"); n != 3 {
		t.Errorf("%v requests were sent by the queue, want 3", n)
	}
}
