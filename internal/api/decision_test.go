package api

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"steelyard/weighting"
)

var noon = time.Date(2026, 3, 14, 12, 0, 0, 250e6, time.UTC)

func TestFromDecisionBeforeTheFirstStepIsUnknown(t *testing.T) {
	decision, endpoints := FromDecision(weighting.Decision{}, noon)
	if decision != (Decision{}) || len(endpoints) != 0 {
		t.Fatalf("got %+v and %d endpoints", decision, len(endpoints))
	}
}

func TestFromDecisionKeepsEveryNumber(t *testing.T) {
	d := weighting.Decision{
		At: noon.Add(-2 * time.Second), ArrivalRate: 1, ArrivalRateSource: weighting.RateIncrements,
		Horizon:  300 * time.Millisecond,
		Arrivals: 4, WaterLevel: 5, MedianLoad: math.NaN(), DropFraction: 0.25, ExpectedWait: 1.5,
		Work: &weighting.Work{
			PromptTokens: 1000, OutputTokens: 200, Requests: 50, Engines: 3, CountedAt: noon.Add(-4 * time.Second),
			TokensPerByte: 0.25, SizedAt: noon.Add(-5 * time.Second), BySize: true, PrefillRate: 12_000,
			Cached: 0.4, Iteration: math.NaN(),
		},
		Endpoints: []weighting.EndpointDecision{{
			Work: &weighting.EndpointWork{PromptTokens: 3000, Source: weighting.WorkInFlight,
				ReportedAt: noon.Add(-3 * time.Second), Requests: 2.5, Seconds: math.NaN(), PrefillRate: 6000,
				PrefillSource: weighting.PrefillConfigured, RatedAt: noon.Add(-6 * time.Second)},
			Address: "10.0.0.1:80", Zone: "a", Share: 1, Overloaded: true, OverloadReason: "queue",
			Reason: weighting.ReasonFloor,
			Load:   7, LoadSource: weighting.LoadScraped, Capacity: 8, Slots: 9, SlotsSource: weighting.CapacityAssumed,
			RelativeSpeed: 1.5, Ramp: 0.5, Unproxied: -2,
			Inputs: []weighting.Input{
				{Field: weighting.FieldQueue, Value: 3, Age: time.Second, State: weighting.StateFresh},
				{Field: weighting.FieldRunning, Value: math.NaN(), State: weighting.StateUnknown},
			},
			CompletionRate: 10, MeanQueueTime: 0.5, BusyFraction: math.Inf(1), Latency: 1.25, LatencyAge: time.Second,
		}},
	}
	decision, endpoints := FromDecision(d, noon)
	wantDecision := Decision{
		At: At(d.At), AgeSeconds: Num(2), ArrivalRate: Num(1), ArrivalRateSource: "increments",
		HorizonSeconds: Num(0.3),
		Arrivals:       Num(4), WaterLevel: Num(5), MedianLoad: Number{}, DropFraction: Num(0.25),
		ExpectedWait: Num(1.5), Unit: UnitWork,
		Work: Work{PromptTokens: Num(1000), OutputTokens: Num(200), Requests: Num(50), TokensPerByte: Num(0.25),
			Engines: 3, CountedAgeSeconds: Num(4), TokensPerByteAgeSeconds: Num(5), BySize: true,
			CachedShare: Num(0.4), PrefillRate: Num(12_000)},
	}
	wantEndpoints := []Endpoint{{
		Work: EndpointWork{PromptTokens: Num(3000), Source: "in_flight", AgeSeconds: Num(3), Requests: Num(2.5),
			PrefillRate: Num(6000), PrefillRateSource: "configured", PrefillRateAgeSeconds: Num(6)},
		Address: "10.0.0.1:80", Zone: "a", Share: Num(1), Overloaded: true, OverloadReason: "queue", Reason: "floor",
		Load: Num(7), LoadSource: "scraped", Capacity: Num(8), Slots: Num(9), SlotsSource: "assumed",
		RelativeSpeed: Num(1.5), Ramp: Num(0.5), Unproxied: Num(-2),
		// The loop last decided two seconds ago, so its inputs are older by that.
		Inputs:         []Input{{"queue", Num(3), Num(3), "fresh"}, {"running", Number{}, Number{}, "unknown"}},
		CompletionRate: Num(10), MeanQueueTimeSeconds: Num(0.5), BusyFraction: Number{}, LatencySeconds: Num(1.25),
		LatencyAgeSeconds: Num(3),
	}}
	exact := cmp.Comparer(func(a, b Number) bool { return a == b })
	if diff := cmp.Diff(wantDecision, decision, exact); diff != "" {
		t.Errorf("decision (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(wantEndpoints, endpoints, exact); diff != "" {
		t.Errorf("endpoints (-want +got):\n%s", diff)
	}
}

// What stands in for an unknown number is not reported as one that is known.
func TestFromDecisionDoesNotReportWhatStandsIn(t *testing.T) {
	decision, endpoints := FromDecision(weighting.Decision{
		At: noon, ArrivalRate: 0, ArrivalRateSource: weighting.RateUnknown,
		Work: &weighting.Work{PromptTokens: 100}, // by engines that do not count what a cache answers, maybe
		Endpoints: []weighting.EndpointDecision{{
			Load: 1, LoadSource: weighting.LoadMedian, Unproxied: 0, Slots: 4,
			Work: &weighting.EndpointWork{PromptTokens: 100, Requests: 1, Seconds: 0.1, PrefillRate: 1000},
		}},
	}, noon)
	if rate, known := decision.ArrivalRate.Value(); known {
		t.Errorf("a rate of %g, whose source is unknown", rate)
	}
	if share, known := decision.Work.CachedShare.Value(); known {
		t.Errorf("a share of %g is cached", share)
	}
	e := &endpoints[0]
	for name, n := range map[string]Number{"load": e.Load, "unproxied": e.Unproxied, "tokens": e.Work.PromptTokens,
		"work": e.Work.Requests, "seconds": e.Work.Seconds} {
		if v, known := n.Value(); known {
			t.Errorf("%s is %g of an endpoint of which nothing is known", name, v)
		}
	}
	if e.Slots.Or(0) != 4 || e.Work.PrefillRate.Or(0) != 1000 {
		t.Errorf("%+v", e)
	}
}

func TestFromDecisionOfHostileNumbersIsValidJSON(t *testing.T) {
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), 1e308, -1} {
		d := weighting.Decision{
			At: noon, ArrivalRate: v, Arrivals: v, WaterLevel: v, MedianLoad: v, DropFraction: v, ExpectedWait: v,
			Horizon: math.MaxInt64,
			Endpoints: []weighting.EndpointDecision{{
				Address: "a", Share: v, Load: v, Capacity: v, Slots: v, RelativeSpeed: v, Ramp: v, Unproxied: v,
				Inputs: []weighting.Input{{Field: "queue", Value: v, Age: math.MaxInt64,
					State: weighting.StateNeutral}},
				CompletionRate: v, MeanQueueTime: v, BusyFraction: v, Latency: v,
			}},
		}
		decision, endpoints := FromDecision(d, noon)
		if _, err := json.Marshal(Cluster{Decision: decision, Endpoints: endpoints}); err != nil {
			t.Errorf("%v: %v", v, err)
		}
	}
}
