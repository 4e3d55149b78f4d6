package ledger

import (
	"fmt"
	"math"
	"testing"
	"time"

	"steelyard/weighting"
)

// recorded returns the recording of the cluster.
func (w *world) recorded(t *testing.T) Recording {
	t.Helper()
	r, ok := w.ticked().Recorded("chat", w.now)
	if !ok {
		t.Fatal("nothing is recorded")
	}
	return r
}

// served lets n requests arrive together every second, each with a second of service in one slot, for some seconds.
func (w *world) served(s *Stream, n, seconds int) {
	for k := range seconds {
		for i := range n {
			s.Begin(w.now, fmt.Sprint(k, " ", i), one)
		}
		for i := range n {
			w.after(time.Second / time.Duration(n))
			s.End(w.now, fmt.Sprint(k, " ", i), one, Outcome{Status: 200,
				Latency: time.Duration(i+1) * time.Second / time.Duration(n)})
		}
	}
}

// recording is a world with an open stream whose requests, to an endpoint with one slot, are recorded.
func recording() (*world, *Stream) {
	w, e := single()
	s := w.open(e)
	report := weighting.ServerReport{Queue: weighting.Reading{Value: 0, At: w.now}}
	w.ledger.Served(one, &report, 1, w.now)
	w.ledger.Record("chat", true, w.now)
	return w, s
}

func TestTheTimeOfServiceIsTheTimeOfSlotsAndItsShapeThatOfFreeOnes(t *testing.T) {
	w, s := recording()
	w.served(s, 2, 100) // two arrive each second, and each takes half a second
	r := w.recorded(t)
	if r.Requests != 200 || r.Length != 100*time.Second || len(r.Envoys) != 1 || r.Envoys[0].Requests != 200 ||
		!r.Began.Equal(w.now.Add(-r.Length)) {
		t.Errorf("%+v", r)
	}
	if n := len(r.Arrivals); n != 11 || r.Arrivals[3] != 20 {
		t.Errorf("arrivals %v", r.Arrivals)
	}
	if len(r.Endpoints) != 1 {
		t.Fatalf("%d endpoints", len(r.Endpoints))
	}
	got := r.Endpoints[0]
	for name, v := range map[string][2]float64{"service": {got.ServiceSeconds, 0.5}, "in flight": {got.InFlight, 1.5},
		"p99": {got.P99, 1}, "p99 of all": {r.P99, 1}, "slots": {got.Slots, 1}} {
		if math.Abs(v[0]/v[1]-1) > 0.05 {
			t.Errorf("%s %v, want %v", name, v[0], v[1])
		}
	}
	if len(r.Service) != serviceSteps || r.Service[0] != 1 || r.Service[serviceSteps-1] != 1 {
		t.Errorf("times of service that are all alike are %v", r.Service)
	}
}

func TestTheBusiestHourIsKeptForADay(t *testing.T) {
	w, e := single()
	s := w.open(e)
	w.ledger.Record("chat", true, w.now)
	pass := func(requests int) {
		w.served(s, requests, 100)
		w.after(time.Hour)
		w.ticked()
	}
	pass(1)
	pass(3)
	busiest := w.now
	for range 22 {
		pass(2)
	}
	if r := w.recorded(t); r.Requests != 300 || r.Began.After(busiest) {
		t.Errorf("%d requests since %v", r.Requests, r.Began)
	}
	pass(1)
	if r := w.recorded(t); r.Requests == 300 {
		t.Errorf("after a day it is still the hour of %v", r.Began)
	}
}

func TestNothingIsRecordedOfRequestsThatFollow(t *testing.T) {
	w, e := single()
	s := w.open(e)
	w.ledger.Record("chat", true, w.now) // between two subscriptions of one Envoy
	w.after(time.Second)
	w.ledger.Record("chat", false, w.now)
	w.served(s, 1, 10)
	if r, ok := w.ticked().Recorded("chat", w.now); ok {
		t.Errorf("%+v", r)
	}
	if r, ok := w.ledger.Recorded("unknown", w.now); ok {
		t.Errorf("%+v", r)
	}
}

func TestTimeWithoutARecordingIsInNone(t *testing.T) {
	w, s := recording()
	w.served(s, 2, 100)
	s.Begin(w.now, "in flight", one)
	w.ledger.Record("chat", false, w.now)
	w.after(30 * time.Minute)
	w.ledger.Record("chat", true, w.now)
	r := w.recorded(t)
	if r.Length != 100*time.Second || r.Requests != 201 {
		t.Errorf("%d requests in %v, want 201 in 100 s", r.Requests, r.Length)
	}
	if got := r.Endpoints[0].ServiceSeconds; math.Abs(got-0.5) > 0.02 {
		t.Errorf("service %v s, want 0.5", got)
	}
}
