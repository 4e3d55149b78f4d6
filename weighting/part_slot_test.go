package weighting

import (
	"fmt"
	"testing"
	"time"
)

// A capacity may be given as less than a slot, to weigh endpoints against each other. Each of
// them executes a request at a time all the same: one that does so has none waiting, and one
// that does not is free.
func TestAnEndpointWithLessThanASlotExecutesARequest(t *testing.T) {
	for _, capacity := range []float64{0.1, 0.4, 1} {
		t.Run(fmt.Sprint(capacity), func(t *testing.T) {
			const endpoints, service = 20, 10 * time.Second
			params := DefaultParams()
			params.Shedding.Enabled = true
			law := NewLaw(params)
			now, ended := epoch, 0.0
			for ; now.Before(epoch.Add(2 * time.Minute)); now = now.Add(100 * time.Millisecond) {
				ended += 0.1 / service.Seconds()
				s := Snapshot{PushPeriod: 100 * time.Millisecond}
				for i := range endpoints {
					e := Endpoint{Address: fmt.Sprintf("%02d", i), Capacity: capacity, Exact: true,
						InFlight: known(0, now)}
					e.Proxies = ProxyReport{Issued: known(0, now), Ended: known(0, now)}
					if i%2 == 0 {
						whole := float64(int(ended + float64(i)/endpoints))
						e.InFlight, e.Proxies.Issued, e.Proxies.Ended = known(1, now), known(whole+1, now),
							known(whole, now)
					}
					s.Endpoints = append(s.Endpoints, e)
				}
				d := law.Step(now, s)
				if d.DropFraction > 0 || d.ExpectedWait > 0 {
					t.Fatalf("%v refused and %v s to wait while every other endpoint is idle", d.DropFraction,
						d.ExpectedWait)
				}
				for _, e := range d.Endpoints {
					if e.Overloaded {
						t.Fatalf("%s is flagged with one request: %s", e.Address, e.OverloadReason)
					}
				}
			}
		})
	}
}

func TestAnEndpointWithLessThanASlotAndOneRequestIsNotStalled(t *testing.T) {
	w := newCountedPool(4)
	for i := range w.endpoints {
		b := &w.endpoints[i]
		b.capacity, b.noGauge, b.inFlight, b.issued = 0.4, true, 1, 1
	}
	for i := 1; i < len(w.endpoints); i++ {
		w.endpoints[i].inFlight = 0
	}
	for range 50 {
		d := w.step()
		if e := d.Endpoints[0]; e.Overloaded {
			t.Fatal(e.OverloadReason)
		}
	}
}

// Requests that a server executes do not wait, however few its configured capacity is.
func TestWhatAServerExecutesBeyondItsCapacityDoesNotWait(t *testing.T) {
	params := DefaultParams()
	params.Shedding.Enabled = true
	law := NewLaw(params)
	const running, service, each = 4, 10.0, 250 * time.Millisecond
	for n := range 400 {
		now := epoch.Add(time.Duration(n) * each)
		s := Snapshot{PushPeriod: each}
		for i := range 20 {
			ended := float64(int(float64(n)*each.Seconds()*running/service + float64(i)/20))
			s.Endpoints = append(s.Endpoints, Endpoint{
				Address: fmt.Sprintf("%02d", i), Capacity: 2, Exact: true, InFlight: known(running, now),
				Server: ServerReport{Queue: known(0, now), Running: known(running, now),
					Completions: known(ended, now)},
				Proxies: ProxyReport{Issued: known(ended+running, now), Ended: known(ended, now)},
			})
		}
		if d := law.Step(now, s); d.DropFraction > 0 || d.ExpectedWait > 0 {
			t.Fatalf("after %v: %v refused and %.1f s to wait, where nothing waits", now.Sub(epoch), d.DropFraction,
				d.ExpectedWait)
		}
	}
}
