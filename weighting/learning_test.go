package weighting

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// A server of four slots, half of them busy in the mean, and requests of 50 ms: now and then
// one waits when the server is asked, and the second that follows is like any other.
func TestAPassingQueueOfShortRequestsTeachesNoSlots(t *testing.T) {
	for _, c := range []struct {
		name  string
		gauge bool
		slots float64 // the most that was seen, or what is assumed where nothing shows it
	}{{"with a gauge of running requests", true, 4}, {"with counters only", false, 1}} {
		t.Run(c.name, func(t *testing.T) {
			law := NewLaw(DefaultParams())
			var d Decision
			for i := range 120 {
				now := epoch.Add(time.Duration(i) * time.Second)
				running, waiting := 2.0, 0.0
				if i%4 == 0 {
					running, waiting = 4, 1
				}
				e := Endpoint{Address: "x", Server: ServerReport{
					Queue:       known(waiting, now),
					Completions: known(float64(40*i), now), BusySeconds: known(float64(2*i), now),
				}}
				if c.gauge {
					e.Server.Running = known(running, now)
				}
				d = law.Step(now, Snapshot{Endpoints: []Endpoint{e}, ScrapeInterval: time.Second})
			}
			want(t, "slots", of(t, d, "x").Slots, c.slots)
			want(t, "source", of(t, d, "x").SlotsSource, CapacityAssumed)
		})
	}
}

func TestSlotsAreConfiguredLearnedOrAssumed(t *testing.T) {
	for _, c := range []struct {
		name   string
		x      float64 // configured at x
		slots  float64
		source CapacitySource
	}{
		{"configured", 3, 3, CapacityConfigured},
		{"configured, absurdly large", 1e300, 1e6, CapacityConfigured},
		{"configured, absurdly small", 1e-300, 1e-6, CapacityConfigured},
		{"not configured: the median of the others", 0, 6, CapacityAssumed},
		{"negative", -1, 6, CapacityAssumed},
		{"NaN", math.NaN(), 6, CapacityAssumed},
		{"infinite", math.Inf(1), 6, CapacityAssumed},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := NewLaw(DefaultParams()).Step(epoch, Snapshot{Endpoints: []Endpoint{
				scraped("a", 4, 0, 0, epoch), scraped("b", 8, 0, 0, epoch), scraped("x", c.x, 0, 0, epoch),
			}})
			want(t, "slots", of(t, d, "x").Slots, c.slots)
			want(t, "source", of(t, d, "x").SlotsSource, c.source)
		})
	}
	t.Run("unknown everywhere", func(t *testing.T) {
		d := NewLaw(DefaultParams()).Step(epoch, Snapshot{Endpoints: []Endpoint{scraped("x", 0, 0, 0, epoch)}})
		want(t, "slots", of(t, d, "x").Slots, 1)
		want(t, "source", of(t, d, "x").SlotsSource, CapacityAssumed)
	})
}

// A story of one endpoint's counters and counts, a scrape a second.
func rateAfter(t *testing.T, seconds int, report func(second int, at time.Time) Endpoint) (Decision, *Law) {
	t.Helper()
	law := NewLaw(DefaultParams())
	var d Decision
	for i := range seconds {
		now := epoch.Add(time.Duration(i) * time.Second)
		d = law.Step(now, Snapshot{Endpoints: []Endpoint{report(i, now)}})
	}
	return d, law
}

func TestArrivalRateComesFromWhatThereIs(t *testing.T) {
	for _, c := range []struct {
		name   string
		report func(i int, at time.Time) Endpoint
		rate   float64
		source RateSource
	}{
		{"completions", func(i int, at time.Time) Endpoint {
			e := scraped("x", 4, 0, 4, at)
			e.Server.Completions = known(float64(5*i), at)
			return e
		}, 5, RateCompletions},
		{"twice the completions for ten seconds", func(i int, at time.Time) Endpoint {
			e := scraped("x", 4, 0, 4, at)
			e.Server.Completions = known(float64(5*i+5*max(0, i-50)), at)
			return e
		}, 10, RateCompletions},
		{"completions and growth", func(i int, at time.Time) Endpoint {
			e := scraped("x", 4, float64(2*i), 4, at)
			e.Server.Completions = known(float64(5*i), at)
			return e
		}, 7, RateCompletions},
		{"completions while the queue drains", func(i int, at time.Time) Endpoint {
			e := scraped("x", 4, 200-float64(2*i), 4, at)
			e.Server.Completions = known(float64(5*i), at)
			return e
		}, 3, RateCompletions},
		{"completions only", func(i int, at time.Time) Endpoint {
			return Endpoint{Address: "x", Server: ServerReport{Completions: known(float64(5*i), at)}}
		}, 5, RateCompletions},
		{"rises of the in-flight count", func(i int, at time.Time) Endpoint {
			return counted("x", 4, float64(3*(i%2)), at)
		}, 1.5, RateIncrements},
		{"rises of queue and running", func(i int, at time.Time) Endpoint {
			return scraped("x", 4, float64(3*(i%2)), 4, at)
		}, 1.5, RateIncrements},
		{"completions before rises of a count", func(i int, at time.Time) Endpoint {
			e := counted("x", 4, float64(30*(i%2)), at)
			e.Server.Completions = known(float64(5*i), at)
			return e
		}, 5, RateCompletions},
		{"idle", func(i int, at time.Time) Endpoint {
			e := scraped("x", 4, 0, 0, at)
			e.Server.Completions = known(7, at)
			return e
		}, 0, RateCompletions},
		{"a counter of completions that stands still", func(i int, at time.Time) Endpoint {
			e := scraped("x", 4, float64(3*(i%2)), 4, at)
			e.Server.Completions = known(7, at)
			return e
		}, 1.5, RateIncrements},
		{"never negative", func(i int, at time.Time) Endpoint { // requests that vanish without completing
			e := scraped("x", 4, 1000-float64(10*i), 0, at)
			e.Server.Completions = known(7, at)
			return e
		}, 0, RateCompletions},
		{"nothing known", func(int, time.Time) Endpoint { return Endpoint{Address: "x"} }, 0, RateUnknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, _ := rateAfter(t, 60, c.report)
			// An alternating count's mean leans to its latest sample.
			wantNear(t, "rate", d.ArrivalRate, c.rate, 0.2)
			want(t, "source", d.ArrivalRateSource, c.source)
			if c.source == RateUnknown {
				want(t, "arrivals", d.Arrivals, 1)
			}
		})
	}
}

func TestEndpointWithoutARateCountsAsTheMeanOfTheOthers(t *testing.T) {
	law := NewLaw(DefaultParams())
	var d Decision
	for i := range 20 {
		now := epoch.Add(time.Duration(i) * second)
		s := Snapshot{}
		for n := range 4 {
			e := scraped(fmt.Sprint(n), 4, 0, 2, now)
			if n > 0 {
				e.Server.Completions = known(float64(i*n), now)
			}
			s.Endpoints = append(s.Endpoints, e)
		}
		s.Endpoints[0].Server = ServerReport{}
		d = law.Step(now, s)
	}
	wantNear(t, "rate", d.ArrivalRate, 4*(1+2+3)/3.0, 1e-9)
}

// A restart loses what was queued and running: it did not arrive backwards.
func TestRestartOfAServerIsNoNegativeRate(t *testing.T) {
	d, _ := rateAfter(t, 20, func(i int, at time.Time) Endpoint {
		e := scraped("x", 4, 40, 4, at)
		e.Server.Completions = known(float64(5*i), at)
		if i == 19 { // the collector's sum went on by one
			e = scraped("x", 4, 0, 1, at)
			e.Server.Completions = known(float64(5*18+1), at)
			e.Server.Restarts = 1
		}
		return e
	})
	wantNear(t, "rate", d.ArrivalRate, 5, 1e-9)
}

func TestSumThatGoesBackIsSkippedOnce(t *testing.T) {
	d, _ := rateAfter(t, 20, func(i int, at time.Time) Endpoint {
		e := scraped("x", 4, 0, 4, at)
		e.Server.Completions = known(float64(5*(i%19)), at)
		return e
	})
	wantNear(t, "rate", d.ArrivalRate, 5, 1e-9)
	wantNear(t, "completion rate", d.Endpoints[0].CompletionRate, 5, 1e-9)
}

// A counter that is no longer exported does not stand for a server that stopped.
func TestMissingCounterIsNoStandstill(t *testing.T) {
	report := func(i int, at time.Time) Endpoint {
		e := scraped("x", 4, 0, 4, at)
		if i < 20 {
			e.Server.Completions = known(float64(5*i), at)
			e.Server.QueueSeconds = known(float64(10*i), at)
			e.Server.BusySeconds = known(float64(3*i), at)
		}
		return e
	}
	d, _ := rateAfter(t, 28, report)
	x := d.Endpoints[0]
	wantNear(t, "rate while late", d.ArrivalRate, 5, 1e-9)
	wantNear(t, "completion rate", x.CompletionRate, 5, 1e-9)
	wantNear(t, "mean queue time", x.MeanQueueTime, 2, 1e-9)
	wantNear(t, "busy fraction", x.BusyFraction, 1, 1e-9)
	d, _ = rateAfter(t, 40, report)
	x = d.Endpoints[0]
	want(t, "source when stale", d.ArrivalRateSource, RateIncrements)
	want(t, "completion rate is unknown", math.IsNaN(x.CompletionRate), true)
	want(t, "mean queue time is unknown", math.IsNaN(x.MeanQueueTime), true)
	wantNear(t, "busy fraction", x.BusyFraction, 1, 1e-9)
}

func TestBusyFractionOfAServerWithCountersOnly(t *testing.T) {
	d, _ := rateAfter(t, 20, func(i int, at time.Time) Endpoint {
		return Endpoint{Address: "x", Capacity: 4, Server: ServerReport{
			Queue: known(0, at), Completions: known(float64(5*i), at), BusySeconds: known(float64(3*i), at),
		}}
	})
	wantNear(t, "busy fraction", d.Endpoints[0].BusyFraction, 0.75, 1e-9)
	wantNear(t, "load", d.Endpoints[0].Load, 3, 1e-9)
	want(t, "mean queue time is unknown", math.IsNaN(d.Endpoints[0].MeanQueueTime), true)
}

// Once the counter of busy time has died, its last value is not current, though the queue is
// still reported.
func TestBusyTimeAgesByItsOwnClock(t *testing.T) {
	report := func(i int, at time.Time) Endpoint {
		e := Endpoint{Address: "x", Capacity: 4, Server: ServerReport{Queue: known(0, at)}}
		if i < 20 {
			e.Server.BusySeconds = known(float64(3*i), at)
		}
		return e
	}
	for _, c := range []struct {
		seconds int
		reason  Reason
		busy    bool // known
	}{{20, ReasonFill, true}, {27, ReasonDecay, true}, {40, ReasonFill, false}} {
		d, _ := rateAfter(t, c.seconds, report)
		x := d.Endpoints[0]
		want(t, fmt.Sprintf("reason after %d s", c.seconds), x.Reason, c.reason)
		want(t, fmt.Sprintf("busy fraction known after %d s", c.seconds), !math.IsNaN(x.BusyFraction), c.busy)
	}
}
