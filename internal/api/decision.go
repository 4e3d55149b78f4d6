package api

import (
	"math"
	"time"

	"steelyard/weighting"
)

// FromDecision turns a decision into its view. Ages are at the time now, not at the time of the decision: if the loop
// has stopped, they grow. The caller adds what a decision does not have: engine, weight and last scrape. The zero
// decision, before the first step, gives unknown values only.
func FromDecision(d weighting.Decision, now time.Time) (Decision, []Endpoint) {
	if d.At.IsZero() {
		return Decision{}, []Endpoint{}
	}
	since := max(0, now.Sub(d.At))
	endpoints := make([]Endpoint, 0, len(d.Endpoints))
	for _, e := range d.Endpoints {
		endpoints = append(endpoints, fromEndpoint(e, since, now))
	}
	at := At(d.At)
	unit, work := fromWork(d.Work, now)
	rate := Num(d.ArrivalRate)
	if d.ArrivalRateSource == weighting.RateUnknown {
		rate = Number{}
	}
	return Decision{
		At:                at,
		AgeSeconds:        at.Age(now),
		ArrivalRate:       rate,
		ArrivalRateSource: string(d.ArrivalRateSource),
		HorizonSeconds:    Seconds(d.Horizon),
		Arrivals:          Num(d.Arrivals),
		WaterLevel:        Num(d.WaterLevel),
		MedianLoad:        Num(d.MedianLoad),
		DropFraction:      Num(d.DropFraction),
		ExpectedWait:      Num(d.ExpectedWait),
		Unit:              unit,
		Work:              work,
	}, endpoints
}

// The units of load.
const (
	UnitRequests = "requests"
	UnitWork     = "work"
)

func fromWork(w *weighting.Work, now time.Time) (unit string, out Work) {
	if w == nil {
		return UnitRequests, Work{}
	}
	cached := Number{} // engines that do not count them are not told from those without any
	if w.Cached > 0 {
		cached = Num(w.Cached)
	}
	return UnitWork, Work{
		PromptTokens: Num(w.PromptTokens), OutputTokens: Num(w.OutputTokens), CachedShare: cached,
		Requests: Num(w.Requests),
		Engines:  w.Engines, CountedAgeSeconds: At(w.CountedAt).Age(now),
		TokensPerByte: Num(w.TokensPerByte), TokensPerByteAgeSeconds: At(w.SizedAt).Age(now), BySize: w.BySize,
		PrefillRate: Num(w.PrefillRate), IterationSeconds: Num(w.Iteration),
		PrefillRateAgeSeconds: At(w.RatedAt).Age(now),
	}
}

func fromEndpointWork(w *weighting.EndpointWork, now time.Time) EndpointWork {
	if w == nil {
		return EndpointWork{}
	}
	return EndpointWork{
		PromptTokens: Num(w.PromptTokens), Requests: Num(w.Requests), Seconds: Num(w.Seconds),
		Source: string(w.Source), AgeSeconds: At(w.ReportedAt).Age(now), CountedAgeSeconds: At(w.CountedAt).Age(now),
		PrefillRate: Num(w.PrefillRate), PrefillRateSource: string(w.PrefillSource),
		PrefillRateAgeSeconds: At(w.RatedAt).Age(now),
	}
}

func fromEndpoint(e weighting.EndpointDecision, since time.Duration, now time.Time) Endpoint {
	var latencyAge Number
	if !math.IsNaN(e.Latency) {
		latencyAge = Seconds(e.LatencyAge + since)
	}
	load, unproxied, work := Num(e.Load), Num(e.Unproxied), fromEndpointWork(e.Work, now)
	if e.LoadSource == weighting.LoadMedian { // what it is taken to have is not what it has
		load, unproxied = Number{}, Number{}
		work.PromptTokens, work.Requests, work.Seconds = Number{}, Number{}, Number{}
	}
	return Endpoint{
		Address:              e.Address,
		Zone:                 e.Zone,
		Share:                Num(e.Share),
		Overloaded:           e.Overloaded,
		OverloadReason:       e.OverloadReason,
		Outlier:              e.Failing,
		Probed:               e.Probed,
		OutlierSince:         At(e.OutlierSince),
		WorkedAt:             At(e.Worked),
		Tried:                e.Tried,
		DoubtedSince:         At(e.Doubted),
		Reason:               string(e.Reason),
		Load:                 load,
		LoadSource:           string(e.LoadSource),
		Capacity:             Num(e.Capacity),
		Slots:                Num(e.Slots),
		SlotsSource:          string(e.SlotsSource),
		RelativeSpeed:        Num(e.RelativeSpeed),
		CountersGoBack:       e.CountersGoBack,
		Ramp:                 Num(e.Ramp),
		Unproxied:            unproxied,
		Work:                 work,
		Inputs:               fromInputs(e.Inputs, since),
		CompletionRate:       Num(e.CompletionRate),
		MeanQueueTimeSeconds: Num(e.MeanQueueTime),
		BusyFraction:         Num(e.BusyFraction),
		LatencySeconds:       Num(e.Latency),
		LatencyAgeSeconds:    latencyAge,
	}
}

func fromInputs(inputs []weighting.Input, since time.Duration) []Input {
	out := make([]Input, 0, len(inputs))
	for _, in := range inputs {
		input := Input{Field: string(in.Field), Value: Num(in.Value), State: string(in.State)}
		if in.State != weighting.StateUnknown {
			input.AgeSeconds = Seconds(in.Age + since)
		}
		out = append(out, input)
	}
	return out
}
