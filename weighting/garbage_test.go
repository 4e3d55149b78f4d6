package weighting

import (
	"math"
	"testing"
	"time"
)

// A field that the others report and one does not must not make that one look
// better than an equal that reports it.
func TestAFieldThatOnlyOneLeavesOutIsNotZero(t *testing.T) {
	for _, c := range []struct {
		name  string
		blind func(*ServerReport)
	}{
		{"queue", func(s *ServerReport) { s.Queue = Reading{} }},
		{"queue is not a number", func(s *ServerReport) { s.Queue.Value = math.NaN() }},
		{"running", func(s *ServerReport) { s.Running = Reading{} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			pool := []Endpoint{scraped("a", 4, 10, 4, epoch), scraped("b", 4, 10, 4, epoch),
				scraped("c", 4, 10, 4, epoch)}
			c.blind(&pool[2].Server)
			d := NewLaw(DefaultParams()).Step(epoch, Snapshot{Endpoints: pool})
			blind, seeing := of(t, d, "c"), of(t, d, "a")
			if blind.Share > seeing.Share*1.0001 {
				t.Errorf("share %v without the field, %v with it", blind.Share, seeing.Share)
			}
			wantNear(t, "load", blind.Load, 14, 1e-9)
		})
	}
}

func TestAFieldThatNoServerReportsIsNoPartOfAnyLoad(t *testing.T) {
	pool := []Endpoint{scraped("a", 4, 0, 4, epoch), scraped("b", 4, 0, 2, epoch)}
	for i := range pool {
		pool[i].Server.Queue = Reading{}
	}
	d := NewLaw(DefaultParams()).Step(epoch, Snapshot{Endpoints: pool})
	want(t, "load", of(t, d, "a").Load, 4)
	want(t, "reason", of(t, d, "b").Reason, ReasonFill)
}

// leak is a pool whose first endpoint has 20 requests, and a count of its own.
func leak(count float64, now time.Time) Snapshot {
	s := Snapshot{Endpoints: []Endpoint{scraped("a", 0, 16, 4, now), scraped("b", 0, 0, 0, now),
		scraped("c", 0, 0, 0, now)}}
	for i, n := range []float64{count, 0, 0} {
		s.Endpoints[i].InFlight = known(n, now)
	}
	return s
}

func TestALeakedCountThatIsCorrectedDoesNotMakeAFullServerLookIdle(t *testing.T) {
	for _, leaked := range []float64{60, 220, 1.76e9} {
		law, now := NewLaw(DefaultParams()), epoch
		step := func(count float64) EndpointDecision {
			now = now.Add(100 * time.Millisecond)
			return of(t, law.Step(now, leak(count, now)), "a")
		}
		for range 100 {
			step(leaked)
		}
		wantNear(t, "load with the leak", step(leaked).Load, 20, 0.01)
		for range 50 {
			if got := step(20).Load; math.Abs(got-20) > 1 {
				t.Fatalf("load %v after a leak of %v was corrected, want 20", got, leaked)
			}
		}
	}
}

func TestAGarbageCountDoesNotSetTheArrivalRateOfThePool(t *testing.T) {
	law, now := NewLaw(DefaultParams()), epoch
	var d Decision
	for i := range 100 {
		now = now.Add(100 * time.Millisecond)
		s := leak(20, now)
		for n := range s.Endpoints {
			s.Endpoints[n].Server.Completions = known(float64(i), now) // ten a second each
		}
		if i >= 50 && i < 80 {
			s.Endpoints[0].InFlight.Value = 1e308
		}
		d = law.Step(now, s)
		if i > 20 && math.Abs(d.ArrivalRate-30) > 1 {
			t.Fatalf("rate %v at step %d, want 30", d.ArrivalRate, i)
		}
	}
	want(t, "source", d.ArrivalRateSource, RateCompletions)
}

func TestAGarbageGaugeOfOneServerDoesNotSetTheSlotsOfAll(t *testing.T) {
	law := NewLaw(DefaultParams())
	var d Decision
	for i := range 20 {
		now := epoch.Add(time.Duration(i) * second)
		d = law.Step(now, Snapshot{Endpoints: []Endpoint{
			scraped("a", 0, 1e308, 1e308, now), scraped("b", 0, 3, 2, now), scraped("c", 0, 0, 2, now),
		}})
	}
	for _, e := range d.Endpoints {
		if e.Slots > 2 {
			t.Errorf("%s has %v slots (%s), want the 2 that were seen", e.Address, e.Slots, e.SlotsSource)
		}
	}
	want(t, "reason of the garbage", of(t, d, "a").Reason, ReasonFloor)
}

// Impossible counts of tokens are ignored, and those of one engine change nothing for the requests of the others.
func TestGarbageCountsOfTokensTeachNothing(t *testing.T) {
	for _, garbage := range []float64{math.NaN(), math.Inf(1), -1, 1e308} {
		law := NewLaw(DefaultParams())
		var d Decision
		for i := range 40 {
			now := epoch.Add(time.Duration(i) * second)
			var pool []Endpoint
			for _, address := range []string{"a", "b", "c"} {
				e := scraped(address, 0, 0, 10, now)
				n := float64(i)
				e.Server.Tokens = TokenCounts{At: now, Prompt: 5000 * n, Generated: 1000 * n, First: 5 * n,
					Iterations: 25 * n}
				if address == "a" && i%2 == 1 {
					e.Server.Tokens.Prompt = garbage
				}
				pool = append(pool, e)
			}
			d = law.Step(now, Snapshot{Endpoints: pool})
		}
		if d.Work == nil {
			t.Fatalf("%v: the unit is the request", garbage)
		}
		wantNear(t, "prompt tokens of a request", d.Work.PromptTokens, 1000, 0.01)
		for _, e := range d.Endpoints {
			wantNear(t, "share of "+e.Address, e.Share, 1.0/3, 0.25)
		}
	}
}

// Sums that fade for days do not become numbers that nothing is known of.
func TestTokensPerByteAreUnknownAfterDaysWithoutSizes(t *testing.T) {
	k := prompts{}
	k.perByte.add(&tokenGrowth{computed: 1e5, first: 100}, 4000)
	for minute := range 3 * 24 * 60 {
		now := epoch.Add(time.Duration(minute) * time.Minute)
		k.fade(now, 100.0/60)
		k.learn(&tokenGrowth{seconds: 60, computed: 1e5, first: 100}, now)
		if typical := k.perByte.typical(); !math.IsNaN(typical) && math.Abs(typical-0.25) > 1e-9 {
			t.Fatalf("after %d minutes: %v tokens per byte", minute, typical)
		}
	}
	want(t, "known", math.IsNaN(k.perByte.typical()), true)
	wantNear(t, "prompt tokens of a request", k.mean(), 1000, 1e-9)
}

// TestASumOfProxiesThatJumpsIsNoTraffic: a hundred million requests that one of them issued in an instant.
func TestASumOfProxiesThatJumpsIsNoTraffic(t *testing.T) {
	law := NewLaw(DefaultParams())
	for i := range 300 {
		now := at(float64(i) * 0.1)
		sum := func(v float64) Reading {
			if v += float64(i); i >= 200 {
				v += 1e8
			}
			return Reading{Value: v, At: now}
		}
		e := Endpoint{Address: "10.0.0.1:80", Capacity: 4, InFlight: known(3, now), Exact: true}
		e.Proxies = ProxyReport{Issued: sum(3), Ended: sum(0), Answered: known(float64(i), now), LatencySeconds: sum(0)}
		d := law.Step(now, Snapshot{Endpoints: []Endpoint{e}})
		if i > 10 && math.Abs(d.ArrivalRate-10) > 0.5 {
			t.Fatalf("%v after the start: %v requests a second, want 10", now.Sub(epoch), d.ArrivalRate)
		}
		if got := d.Endpoints[0]; i > 10 && (math.Abs(got.Latency-1) > 0.01 || got.Overloaded) {
			t.Fatalf("%v after the start: latency %v, flagged %v", now.Sub(epoch), got.Latency, got.Overloaded)
		}
	}
}
