package weighting

import (
	"math"
	"testing"
	"time"
)

// refusing is an endpoint that reported, and refuses connections now.
func refusing(e Endpoint) Endpoint {
	e.Refused = true
	return e
}

func TestAServerThatRefusesIsNeutralAtOnce(t *testing.T) {
	law := NewLaw(DefaultParams())
	then := epoch
	idle := scraped("a", 4, 0, 0, then)
	law.Step(then, Snapshot{Endpoints: []Endpoint{idle, scraped("b", 4, 4, 4, then), scraped("c", 4, 4, 4, then)}})
	now := then.Add(250 * time.Millisecond)
	d := law.Step(now, Snapshot{Endpoints: []Endpoint{refusing(idle), scraped("b", 4, 4, 4, now),
		scraped("c", 4, 4, 4, now)}})
	a := of(t, d, "a")
	want(t, "reason", a.Reason, ReasonNeutral)
	wantNear(t, "load", a.Load, 8, 1e-9) // the median, not the 0 that it last reported
	want(t, "state of the queue", input(t, a, FieldQueue).State, StateNeutral)
	wantNear(t, "share", a.Share, 1.0/3, 1e-9)

	now = now.Add(250 * time.Millisecond)
	d = law.Step(now, Snapshot{Endpoints: []Endpoint{scraped("a", 4, 0, 0, now), scraped("b", 4, 4, 4, now),
		scraped("c", 4, 4, 4, now)}})
	want(t, "reason when it answers again", of(t, d, "a").Reason, ReasonFill)
}

func TestAServerThatRefusesIsNotIdleBecauseNothingIsInFlightThere(t *testing.T) {
	law := NewLaw(DefaultParams())
	pool := func(now time.Time) []Endpoint {
		e := []Endpoint{scraped("a", 4, 0, 4, now), scraped("b", 4, 4, 4, now), scraped("c", 4, 4, 4, now)}
		for i, n := range []float64{0, 8, 8} {
			e[i].InFlight = known(n, now)
		}
		e[0].Refused = true
		return e
	}
	d := law.Step(epoch, Snapshot{Endpoints: pool(epoch)})
	wantNear(t, "load", of(t, d, "a").Load, 8, 1e-9)
}

func TestNoArrivalsAreExpectedAtAServerThatRefuses(t *testing.T) {
	law := NewLaw(DefaultParams())
	var d Decision
	for i := range 20 {
		now := epoch.Add(time.Duration(i) * second)
		s := Snapshot{}
		for _, address := range []string{"a", "b"} {
			e := scraped(address, 4, 0, 2, now)
			e.Server.Completions = known(float64(3*i), now)
			s.Endpoints = append(s.Endpoints, e)
		}
		if i >= 10 {
			s.Endpoints[0] = refusing(scraped("a", 4, 0, 2, epoch.Add(9*second)))
		}
		d = law.Step(now, s)
	}
	wantNear(t, "rate", d.ArrivalRate, 3, 1e-9)
}

func TestWhileMostOfThePoolRefusesNoServerIsGone(t *testing.T) {
	law := NewLaw(DefaultParams())
	now := epoch
	d := law.Step(now, Snapshot{Endpoints: []Endpoint{
		refusing(scraped("a", 4, 0, 0, now)), refusing(scraped("b", 4, 4, 4, now)), scraped("c", 4, 4, 4, now),
	}})
	want(t, "reason", of(t, d, "a").Reason, ReasonFill)
	want(t, "load", of(t, d, "a").Load, 0)
}

func TestAssumedSlotsAreTheSameForAllAndNoFewerThanWereSeenAtOnce(t *testing.T) {
	law := NewLaw(DefaultParams())
	d := law.Step(epoch, Snapshot{Endpoints: []Endpoint{scraped("a", 0, 0, 6, epoch), scraped("b", 0, 0, 1, epoch)}})
	later := epoch.Add(second)
	d2 := law.Step(later,
		Snapshot{Endpoints: []Endpoint{scraped("a", 0, 0, 2, later), scraped("b", 0, 0, 1, later),
			scraped("c", 2, 0, 1, later)}})
	for _, address := range []string{"a", "b"} {
		want(t, "slots of "+address, of(t, d, address).Slots, 6)
		want(t, "source", of(t, d, address).SlotsSource, CapacityAssumed)
		want(t, "slots of "+address+" later, next to a known one", of(t, d2, address).Slots, 6)
	}
	want(t, "slots of the known one", of(t, d2, "c").Slots, 2)
	wantNear(t, "busy", of(t, d, "a").BusyFraction, 1, 1e-9)
}

func TestARestartForgetsWhatTheProcessDid(t *testing.T) {
	law := NewLaw(DefaultParams())
	report := func(i, restarts int, now time.Time) Endpoint {
		e := scraped("a", 4, 4, 4, now)
		e.Server.Completions, e.Server.QueueSeconds = known(float64(2*i), now), known(float64(20*i), now)
		e.Server.Restarts = restarts
		return e
	}
	var d Decision
	for i := range 10 {
		now := epoch.Add(time.Duration(i) * second)
		d = law.Step(now, Snapshot{Endpoints: []Endpoint{report(i, 0, now)}})
	}
	wantNear(t, "completions before", d.Endpoints[0].CompletionRate, 2, 1e-9)
	wantNear(t, "queue time before", d.Endpoints[0].MeanQueueTime, 10, 1e-9)
	now := epoch.Add(10 * second)
	d = law.Step(now, Snapshot{Endpoints: []Endpoint{report(9, 1, now)}})
	if e := d.Endpoints[0]; !math.IsNaN(e.CompletionRate) || !math.IsNaN(e.MeanQueueTime) {
		t.Errorf("after the restart %v completions per second after %v s, want both unknown", e.CompletionRate,
			e.MeanQueueTime)
	}
}
