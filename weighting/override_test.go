package weighting

import (
	"fmt"
	"testing"
	"time"
)

// overriddenPool is four endpoints of four slots, of which the first is the emptiest.
func overriddenPool(now time.Time, overrides ...Override) Snapshot {
	s := Snapshot{PushDelay: 10 * time.Millisecond, PushPeriod: 200 * time.Millisecond}
	for i := range 4 {
		e := scraped(fmt.Sprintf("10.0.0.%d:80", i+1), 4, 0, float64(i), now)
		e.Server.Completions = known(20*now.Sub(epoch).Seconds(), now)
		if i < len(overrides) {
			e.Override = overrides[i]
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	return s
}

// decideWith runs the law for some seconds with the overrides.
func decideWith(overrides ...Override) Decision {
	law := NewLaw(DefaultParams())
	var d Decision
	for step := range 40 {
		now := epoch.Add(time.Duration(step) * 250 * time.Millisecond)
		d = law.Step(now, overriddenPool(now, overrides...))
	}
	return d
}

// filledWith is what the endpoints from the given one on get of the arrivals, by the fill over only them.
func filledWith(d Decision, from int, part float64) []float64 {
	var vessels []Vessel
	for _, e := range d.Endpoints[from:] {
		vessels = append(vessels, Vessel{Load: e.Load, Slots: e.Slots, Speed: e.RelativeSpeed})
	}
	got := shares(vessels, fill(vessels, d.Arrivals*part), DefaultParams().Floor)
	for i := range got {
		got[i] *= part
	}
	return got
}

func TestADrainedEndpointGetsNothingAndTheOthersAreFilledWithAll(t *testing.T) {
	d := decideWith(Override{Drained: true})
	want(t, "share", d.Endpoints[0].Share, 0)
	want(t, "reason", d.Endpoints[0].Reason, ReasonDrained)
	want(t, "drained", d.Endpoints[0].Override.Drained, true)
	want(t, "whatever the load", d.Fixed(0), 0)
	for i, share := range filledWith(d, 1, 1) {
		wantNear(t, d.Endpoints[i+1].Address, d.Endpoints[i+1].Share, share, 2e-3) // the floors are by another sum
	}
	if free := decideWith(); free.Endpoints[0].Share < 0.3 {
		t.Errorf("without the drain it gets %v, so nothing was shown", free.Endpoints[0].Share)
	}
	n := d.Neutral().Endpoints
	rest := n[1].Capacity + n[2].Capacity + n[3].Capacity
	if n[0].Share != 0 || !near(n[3].Share, n[3].Capacity/rest, 1e-9) {
		t.Errorf("left behind: %+v", n)
	}
}

func TestAPinnedEndpointGetsItsShareAndTheOthersAreFilledWithTheRest(t *testing.T) {
	d := decideWith(Override{Share: 0.05})
	want(t, "share", d.Endpoints[0].Share, 0.05)
	want(t, "reason", d.Endpoints[0].Reason, ReasonPinned)
	want(t, "whatever the load", d.Fixed(0), 0.05)
	want(t, "of one that is filled", d.Fixed(1), 0)
	for i, share := range filledWith(d, 1, 0.95) {
		wantNear(t, d.Endpoints[i+1].Address, d.Endpoints[i+1].Share, share, 2e-3)
	}
}

func TestADrainOfAllEndpointsIsNotInEffect(t *testing.T) {
	drained := Override{Drained: true}
	d, free := decideWith(drained, drained, drained, drained), decideWith()
	for i, e := range d.Endpoints {
		want(t, e.Address, e.Share, free.Endpoints[i].Share)
		want(t, "override", e.Override, Override{})
	}
	d = decideWith(drained, drained, drained)
	wantNear(t, "the last one", d.Endpoints[3].Share, 1, 1e-9)
}

func TestPinsOfMoreThanAllLeaveSomethingToTheOthers(t *testing.T) {
	d := decideWith(Override{Share: 0.8}, Override{Share: 0.8})
	wantNear(t, "first", d.Endpoints[0].Share, mostPinned/2, 1e-9)
	wantNear(t, "others", d.Endpoints[2].Share+d.Endpoints[3].Share, 1-mostPinned, 1e-9)
	all := decideWith(Override{Share: 0.1}, Override{Share: 0.1}, Override{Share: 0.1}, Override{Share: 0.1})
	for _, e := range all.Endpoints {
		wantNear(t, e.Address, e.Share, 0.25, 1e-9)
	}
}

// An overloaded endpoint that is pinned has no flag, which would keep the requests away from it.
func TestAPinIsStrongerThanTheOverloadFlag(t *testing.T) {
	for _, pin := range []float64{0, 0.3} {
		law := NewLaw(DefaultParams())
		var d Decision
		for step := range 60 {
			now := epoch.Add(time.Duration(step) * 250 * time.Millisecond)
			s := overriddenPool(now)
			s.Endpoints[0].Server.Queue = known(100+float64(step%5), now) // a gauge that stands still is not used
			s.Endpoints[0].Override.Share = pin
			d = law.Step(now, s)
		}
		if e := d.Endpoints[0]; e.Overloaded != (pin == 0) || pin > 0 && e.Share != pin {
			t.Errorf("pinned to %v: flagged %v, share %v", pin, e.Overloaded, e.Share)
		}
	}
}

// An idle endpoint that is drained is no room for the requests of a saturated pool.
func TestADrainedEndpointIsNoCapacityForShedding(t *testing.T) {
	p := DefaultParams()
	p.Shedding.Enabled = true
	law := NewLaw(p)
	var d Decision
	for step := range 200 {
		now := epoch.Add(time.Duration(step) * 250 * time.Millisecond)
		s := overriddenPool(now, Override{Drained: true})
		s.Endpoints[0].Server.Completions = known(0, now)
		for i := range s.Endpoints[1:] {
			s.Endpoints[i+1].Server.Running, s.Endpoints[i+1].Server.Queue = known(4, now), known(200, now)
		}
		d = law.Step(now, s)
	}
	if d.DropFraction == 0 {
		t.Errorf("nothing is refused at an expected wait of %v s", d.ExpectedWait)
	}
}

// A pin is not in effect while its endpoint fails, so it keeps nobody from finding out whether it has recovered.
func TestAPinnedEndpointThatFailedIsTriedThoughStreamsStayOpen(t *testing.T) {
	law := NewLaw(DefaultParams())
	var served [4]float64
	ejected := false
	for i := range 20 * 120 {
		now := at(float64(i) * 0.05)
		s := Snapshot{PushDelay: seconds(0.01), PushPeriod: seconds(0.05)}
		for j := range 4 {
			failed := 0.0
			if j == 3 && i > 400 {
				failed = min(float64(i-400), 60)
			} else {
				served[j] += 2
			}
			e := Endpoint{Address: fmt.Sprint(j), Capacity: 16, Exact: true, InFlight: known(2, now),
				Proxies: ProxyReport{Issued: known(served[j]+failed+2, now), Ended: known(served[j]+failed, now),
					Answered: known(served[j]+failed, now), Succeeded: known(served[j], now),
					LatencySeconds: known(served[j]*0.05, now), Failed: known(failed, now), Errors: known(0, now)}}
			if j == 3 {
				e.Override.Share = 0.5
			}
			s.Endpoints = append(s.Endpoints, e)
		}
		e := law.Step(now, s).Endpoints[3]
		ejected = ejected || e.Failing
		if ejected && e.Probed != "" {
			return
		}
	}
	t.Errorf("in a minute and a half it was not tried (ejected: %v)", ejected)
}
