package e2e

import (
	"net/http"
	"slices"
	"testing"
	"time"
)

// TestNoWaitingRequestFailsWhenItsPickerDies or hangs: it goes by the weights within seconds. The others keep waiting.
func TestNoWaitingRequestFailsWhenItsPickerDies(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name          string
		die, comeBack func(*fleet) error
	}{
		{"killed", func(f *fleet) error { return f.pickers[0].Kill() }, func(f *fleet) error {
			f.pickers[0] = startPicker(t, f.dir, f.xds, f.pickers[0].address, "--name", "envoy-0")
			return nil
		}},
		{"hangs", func(f *fleet) error { return f.pickers[0].Pause() }, func(f *fleet) error {
			return f.pickers[0].Resume()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			const each, allowed = 4, 5 * time.Second
			f, calls, release := waitBehindOne(t, byPicker, 2*each)
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
			f.eventually("the Envoys have joined the queue again", func() error { return f.waits(0, 0) })
		})
	}
}
