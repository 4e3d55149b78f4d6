package api

import (
	"fmt"
	"math"
	"strings"
	"time"

	"steelyard/weighting"
)

// explain says in one sentence why the endpoint at that index of d.Endpoints has its share, with the numbers that it
// follows from and their units. It is for people: programs read the fields.
func explain(d *weighting.Decision, i int) string {
	e := &d.Endpoints[i]
	var capacity float64
	for k := range d.Endpoints {
		capacity += d.Endpoints[k].Capacity
	}
	share := fmt.Sprintf("It gets %s of this decision's requests, and is %s of the capacity",
		percentText(e.Share), percentText(e.Capacity/capacity))
	_, _, ofLaw := d.Level(i)
	switch {
	case e.Override.Drained:
		return "An operator drained it: it gets no new requests, and keeps the ones that it has."
	case e.Override.Share > 0:
		return fmt.Sprintf("%s: an operator pinned its share.", share)
	case e.Reason == weighting.ReasonAsleep:
		return share + ": its engine sleeps, by its own metrics, and the proxies prefer others until it is awake."
	case !ofLaw:
		return share + "."
	case e.Failing:
		return fmt.Sprintf("%s, its floor while it counts as failing: %s.", share, flagText(e))
	case e.Overloaded:
		return fmt.Sprintf("%s, but the proxies prefer endpoints without a flag, and it has one: %s; besides, %s.",
			share, flagText(e), because(d, i))
	}
	if e.Tried != "" {
		return fmt.Sprintf("%s: it was flagged (%s), and is given a request, to see what it does.", share, e.Tried)
	}
	if e.Probed != "" {
		return fmt.Sprintf("%s: it was %s, and is tried with few requests until one is answered.", share, e.Probed)
	}
	return fmt.Sprintf("%s: %s.", share, because(d, i))
}

// flagText is why the endpoint is flagged.
func flagText(e *weighting.EndpointDecision) string {
	if e.OverloadReason == "" {
		return "it has no flag, because as much of the pool as max_share allows has one"
	}
	return e.OverloadReason
}

// because is the cause of the share.
func because(d *weighting.Decision, i int) string {
	e := &d.Endpoints[i]
	switch e.Reason {
	case weighting.ReasonBlackout:
		return fmt.Sprintf("it is new, its reports do not count yet, and it is trusted with %s of its capacity",
			percentText(e.Ramp))
	case weighting.ReasonUnused:
		return "the proxies send it nothing whatever its share, which is its part of the capacity, or less where " +
			"only scrapes show the loads"
	case weighting.ReasonNeutral:
		return "no report of its load is usable" + oldest(e) + ", so it counts as a median endpoint; " + filled(d, i)
	case weighting.ReasonDecay:
		return "its load fades into the median one, as its reports are late" + oldest(e) + "; " + filled(d, i)
	case weighting.ReasonRamp:
		return fmt.Sprintf("it is new and trusted with %s of its capacity; %s", percentText(e.Ramp), filled(d, i))
	case weighting.ReasonSlow:
		return fmt.Sprintf("its answers take %s on average, longer than least latency allows", secondsText(e.Latency))
	}
	return filled(d, i)
}

// filled is how the fill made the share.
func filled(d *weighting.Decision, i int) string {
	e := &d.Endpoints[i]
	level, isFilled, _ := d.Level(i)
	load, unit := fmt.Sprintf("it has a load of %.3g (requests waiting and running)", e.Load), "for each slot"
	if e.Work != nil {
		load = fmt.Sprintf("it has %s of work (%.0f prompt tokens outstanding, %s, at %s, and %.3g requests in flight)",
			secondsText(e.Work.Seconds), e.Work.PromptTokens, guessedBy[e.Work.Source], rateText(e.Work), e.Load)
	}
	switch {
	case !isFilled:
		return load + ", and until it is shown to be healthy it gets a small part of its capacity"
	case d.ByLatency():
		load += fmt.Sprintf(" and takes %s for an answer", secondsText(e.Latency))
		unit = "times the median latency"
	case e.Work != nil:
		unit = "mean requests"
	}
	fill := fmt.Sprintf("%s the pool up to %.3g", coming(d), d.WaterLevel)
	if e.Reason == weighting.ReasonFloor {
		return fmt.Sprintf("%s, a level of %.3g %s; %s, so it gets its floor", load, level, unit, fill)
	}
	return fmt.Sprintf("%s, a level of %.3g %s; %s", load, level, unit, fill)
}

// coming is what is filled in, with its reason and the verb that follows.
func coming(d *weighting.Decision) string {
	switch expected := d.ArrivalRate * d.Horizon.Seconds(); {
	case d.ArrivalRateSource == weighting.RateUnknown:
		return fmt.Sprintf("%.3g more, one for each endpoint until arrivals are known, fill", d.Arrivals)
	case d.Arrivals <= expected:
		return fmt.Sprintf("%.3g more, expected within %s, fill", d.Arrivals, secondsText(d.Horizon.Seconds()))
	case d.Arrivals <= 1:
		return "the next request fills"
	}
	return fmt.Sprintf("%.3g more, as many as come together, fill", d.Arrivals)
}

// guessedBy is how the prompts of the requests that began are guessed.
var guessedBy = map[weighting.WorkSource]string{
	weighting.WorkSizes:    "guessed by the sizes of requests",
	weighting.WorkRequests: "each request guessed to be a mean one",
	weighting.WorkInFlight: "each rise of the in-flight count guessed to be mean requests",
	weighting.WorkExpected: "guessed by its share of the arrivals",
}

// rateText is the prefill rate with its source.
func rateText(w *weighting.EndpointWork) string {
	if math.IsNaN(w.PrefillRate) {
		return "a prefill rate that is not known yet"
	}
	return fmt.Sprintf("%.0f tokens/s (%s)", w.PrefillRate, w.PrefillSource)
}

// oldest names the field of the load that was read longest ago, with its age.
func oldest(e *weighting.EndpointDecision) string {
	var found *weighting.Input
	for i := range e.Inputs {
		in := &e.Inputs[i]
		if in.Field != weighting.FieldUtilization && in.State != weighting.StateUnknown &&
			(found == nil || in.Age > found.Age) {
			found = in
		}
	}
	if found == nil {
		return " (none was ever read)"
	}
	return fmt.Sprintf(" (%s is %s old)", strings.ReplaceAll(string(found.Field), "_", " "),
		secondsText(found.Age.Seconds()))
}

// percentText rounds halves up, as the page and the terminal do: 1/16 is 6.3 % everywhere.
func percentText(part float64) string {
	switch {
	case math.IsNaN(part):
		return "an unknown part"
	case part > 0 && part < 0.0005:
		return "less than 0.1 %"
	}
	return fmt.Sprintf("%.1f %%", math.Round(1000*part)/10)
}

func secondsText(s float64) string {
	const ms = float64(time.Millisecond) / float64(time.Second)
	switch {
	case math.IsNaN(s):
		return "an unknown time"
	case s < 1:
		return fmt.Sprintf("%.0f ms", s/ms)
	}
	return fmt.Sprintf("%.3g s", s)
}
