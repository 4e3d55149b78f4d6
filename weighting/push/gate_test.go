package push

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"steelyard/weighting"
)

// decision is one endpoint for each share.
func decision(shares ...float64) weighting.Decision {
	var d weighting.Decision
	for i, v := range shares {
		d.Endpoints = append(d.Endpoints, weighting.EndpointDecision{Address: fmt.Sprintf("10.0.0.%d:80", i), Share: v})
	}
	return d
}

func change(d weighting.Decision, f func(*weighting.Decision)) weighting.Decision {
	d.Endpoints = append([]weighting.EndpointDecision(nil), d.Endpoints...)
	f(&d)
	return d
}

// judge steps a gate to the judgement of a decision that the test has made up, and pushes if the gate
// says so.
func (g *Gate) judgeAndPush(now time.Time, d weighting.Decision) Verdict {
	v := g.verdict(now, d, true)
	g.Finish(now, Outcome{Pushed: v.Push})
	return v
}

func TestWhenADecisionIsPushed(t *testing.T) {
	base := decision(0.5, 0.3, 0.2)
	base.DropFraction = 0.1
	options := Options{Deadband: 0.01, Heartbeat: time.Second}
	set := func(f func(*weighting.Decision)) weighting.Decision { return change(base, f) }
	shift := func(first, second float64) weighting.Decision {
		return set(func(d *weighting.Decision) { d.Endpoints[0].Share, d.Endpoints[1].Share = first, second })
	}
	far := func(horizon time.Duration, first float64) weighting.Decision {
		return set(func(d *weighting.Decision) {
			d.Horizon, d.Endpoints[0].Share, d.Endpoints[1].Share = horizon, first, 0.8-first
		})
	}
	for _, c := range []struct {
		name     string
		decision weighting.Decision
		options  Options
		after    time.Duration
		push     bool
		reason   string
	}{
		{"nothing changed", base, options, 999 * time.Millisecond, false, ReasonDeadband},
		{"nothing changed for a heartbeat", base, options, time.Second, true, ReasonHeartbeat},
		{"no heartbeat is asked for", base, Options{Deadband: 0.01}, time.Hour, false, ReasonDeadband},
		{"shares within the deadband", shift(0.4901, 0.3099), options, 0, false, ReasonDeadband},
		{"shares beyond the deadband", shift(0.4899, 0.3101), options, 0, true, ReasonChanged},
		{"no deadband", shift(0.4999, 0.3001), Options{}, 0, true, ReasonChanged},
		{"a share that is no number, for the builder to refuse by name", shift(math.NaN(), 0.3), options, 0, true,
			ReasonChanged},
		{"an endpoint is drained", set(func(d *weighting.Decision) {
			d.Endpoints[0].Override.Drained = true
		}), options, 0, true, ReasonOverride},
		{"a pinned share moves by less than the deadband", set(func(d *weighting.Decision) {
			d.Endpoints[0].Override.Share = 0.501
		}), options, 0, true, ReasonOverride},
		{"an endpoint came", set(func(d *weighting.Decision) {
			d.Endpoints = append(d.Endpoints, weighting.EndpointDecision{Address: "10.9.9.9:1", Share: 0.001})
		}), options, 0, true, ReasonMembership},
		{"an endpoint went", set(func(d *weighting.Decision) { d.Endpoints = d.Endpoints[:2] }), options, 0, true,
			ReasonMembership},
		{"an endpoint changed its address", set(func(d *weighting.Decision) { d.Endpoints[2].Address = "10.9.9.9:1" }),
			options, 0, true, ReasonMembership},
		{"an endpoint changed its zone", set(func(d *weighting.Decision) { d.Endpoints[2].Zone = "b" }), options, 0,
			true, ReasonMembership},
		{"all endpoints went", set(func(d *weighting.Decision) { d.Endpoints = nil }), options, 0, true,
			ReasonMembership},
		{"a flag was raised", set(func(d *weighting.Decision) { d.Endpoints[2].Overloaded = true }), options, 0, true,
			ReasonOverload},
		{"only the reason of a flag", set(func(d *weighting.Decision) { d.Endpoints[2].OverloadReason = "x" }), options,
			0, false, ReasonDeadband},
		{"the drop moved a little", set(func(d *weighting.Decision) { d.DropFraction = 0.1009 }), options, 0, false,
			ReasonDeadband},
		{"the drop moved", set(func(d *weighting.Decision) { d.DropFraction = 0.1011 }), options, 0, true, ReasonDrop},
		{"the drop ended", set(func(d *weighting.Decision) { d.DropFraction = 0 }), options, 0, true, ReasonDrop},
		{"the stale time changed", base, Options{Deadband: 0.01, StaleAfter: time.Second}, 0, true, ReasonChanged},
		{"the shares of a horizon of seconds, too soon", far(2500*time.Millisecond, 0.4), options,
			999 * time.Millisecond, false, ReasonRecent},
		{"the shares of a horizon of seconds", far(2500*time.Millisecond, 0.4), options, time.Second, true,
			ReasonChanged},
		{"a horizon that is little above a second", far(1200*time.Millisecond, 0.4), options, 200 * time.Millisecond,
			true, ReasonChanged},
		{"half of the traffic would go elsewhere, too soon", far(2500*time.Millisecond, 0.01), options,
			999 * time.Millisecond, false, ReasonRecent},
		{"most of the traffic moves", change(far(2500*time.Millisecond, 0.01), func(d *weighting.Decision) {
			d.Endpoints[1].Share, d.Endpoints[2].Share = 0.2, 0.79
		}), options, 0, true, ReasonChanged},
		{"a heartbeat within a horizon of seconds", far(2500*time.Millisecond, 0.5),
			Options{Heartbeat: time.Second / 2}, 999 * time.Millisecond, false, ReasonRecent},
		{"a flag within a horizon of seconds", change(far(2500*time.Millisecond, 0.4), func(d *weighting.Decision) {
			d.Endpoints[2].Overloaded = true
		}), options, 0, true, ReasonOverload},
		{"a flag goes before the shares", set(func(d *weighting.Decision) {
			d.Endpoints[2].Overloaded = true
			d.Endpoints[0].Share, d.Endpoints[1].Share = 0.3, 0.5
		}), options, time.Minute, true, ReasonOverload},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := NewGate(options)
			if first := g.judgeAndPush(epoch, base); !first.Push || first.Reason != ReasonMembership {
				t.Fatalf("first verdict: push %v for %q", first.Push, first.Reason)
			}
			g.SetOptions(c.options)
			if v := g.judgeAndPush(epoch.Add(c.after), c.decision); v.Push != c.push || v.Reason != c.reason {
				t.Errorf("push %v for %q, want %v for %q", v.Push, v.Reason, c.push, c.reason)
			}
		})
	}
}

// Two of three pushes may be late before an assignment is stale.
func TestSharesOfALongHorizonDoNotLetAssignmentsGoStale(t *testing.T) {
	for _, c := range []struct{ horizon, staleAfter, want time.Duration }{
		{300 * time.Millisecond, 0, 0}, {time.Minute, 0, time.Second}, {time.Minute, 3 * time.Second, time.Second},
		{time.Minute, 1500 * time.Millisecond, 500 * time.Millisecond},
	} {
		if got := lasting(c.horizon, c.staleAfter); got != c.want {
			t.Errorf("horizon %v, stale after %v: %v, want %v", c.horizon, c.staleAfter, got, c.want)
		}
	}
}

func TestNothingIsPushedBeforeThereIsAnything(t *testing.T) {
	g := NewGate(Options{Heartbeat: time.Second})
	for _, c := range []struct {
		name     string
		decision weighting.Decision
		ready    bool
		push     bool
		reason   string
	}{
		{"not ready", decision(1), false, false, ReasonNotReady},
		{"ready, and no endpoints yet", decision(), true, false, ReasonNotReady},
		{"the first endpoints", decision(1), true, true, ReasonMembership},
		{"all of them gone", decision(), true, true, ReasonMembership},
	} {
		v := g.verdict(epoch, c.decision, c.ready)
		g.Finish(epoch, Outcome{Pushed: v.Push})
		if v.Push != c.push || v.Reason != c.reason {
			t.Errorf("%s: push %v for %q, want %v for %q", c.name, v.Push, v.Reason, c.push, c.reason)
		}
	}
}

// twoEndpoints of one slot, of which the first has so many requests.
func twoEndpoints(now time.Time, first float64) Input {
	in := Input{Ready: true}
	for i, n := range []float64{first, 0} {
		in.Endpoints = append(in.Endpoints, weighting.Endpoint{
			Address: fmt.Sprintf("10.0.0.%d:80", i+1), Capacity: 1, Exact: true,
			InFlight: weighting.Reading{Value: n, At: now},
		})
	}
	return in
}

// A change that gains too little waits for the heartbeat; with half of the budget left none does.
func TestAChangeThatGainsTooLittleWaitsForTheHeartbeat(t *testing.T) {
	options := Options{Budget: Budget{ProxyCPU: 0.02, Cost: cost}, Deadband: 0.01, Heartbeat: time.Second}
	for _, c := range []struct {
		name   string
		pushes int // before, at once
		after  time.Duration
		push   bool
		reason string
	}{
		{"the budget is full", 0, time.Millisecond, true, ReasonChanged},
		{"half of it is left", 18, time.Millisecond, true, ReasonChanged},
		{"nearly nothing is left", 38, time.Millisecond, false, ReasonBudget},
		{"it is spent", 60, time.Millisecond, false, ReasonBudget},
		{"it has filled up again", 38, 900 * time.Millisecond, true, ReasonChanged},
		{"the heartbeat has come, however long the debt", 60, time.Second, true, ReasonHeartbeat},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := NewGate(options)
			g.Step(epoch, twoEndpoints(epoch, 0))
			g.Finish(epoch, Outcome{Pushed: true})
			for range c.pushes {
				g.bucket.pushed(epoch, g.terms)
			}
			if c.reason == ReasonHeartbeat {
				g.bucket.Use(epoch, time.Hour)
			}
			now := epoch.Add(c.after)
			if v := g.Step(now, twoEndpoints(now, 1)); v.Push != c.push || v.Reason != c.reason {
				t.Errorf("push %v for %q, want %v for %q", v.Push, v.Reason, c.push, c.reason)
			}
		})
	}
}

func TestADropThatBeginsOrEndsIsPushedHoweverSmall(t *testing.T) {
	for _, c := range []struct {
		was, is float64
		push    bool
		reason  string
	}{
		{0, 1e-6, true, ReasonDrop},
		{1e-6, 0, true, ReasonDrop},
		{1e-6, 2e-6, false, ReasonDeadband},
		{0, 0, false, ReasonDeadband},
	} {
		g, d := NewGate(Options{}), decision(1)
		d.DropFraction = c.was
		g.judgeAndPush(epoch, d)
		d.DropFraction = c.is
		if v := g.judgeAndPush(epoch, d); v.Push != c.push || v.Reason != c.reason {
			t.Errorf("from %v to %v: push %v for %q, want %v for %q", c.was, c.is, v.Push, v.Reason, c.push, c.reason)
		}
	}
}

func TestSmallStepsAddUpToAPush(t *testing.T) {
	g := NewGate(Options{Deadband: 0.01})
	g.judgeAndPush(epoch, decision(0.5, 0.5))
	pushes := 0
	for i := range 20 {
		v := 0.5 + 0.003*float64(i+1)
		if g.judgeAndPush(epoch, decision(v, 1-v)).Push {
			pushes++
		}
	}
	// 0.06 in steps of 0.003: a push at every fourth, when 0.012 have added up.
	want(t, "pushes: the distance counts from what is in force, not from the last decision", pushes, 5)
}

func TestWhatCouldNotBePushedIsTriedAgain(t *testing.T) {
	g := NewGate(Options{Deadband: 0.01})
	g.judgeAndPush(epoch, decision(0.5, 0.5))
	for range 3 {
		v := g.verdict(epoch, decision(0.8, 0.2), true)
		if !v.Push || v.Reason != ReasonChanged {
			t.Fatalf("push %v for %q, want %q", v.Push, v.Reason, ReasonChanged)
		}
		g.Finish(epoch, Outcome{})
	}
	g.judgeAndPush(epoch, decision(0.8, 0.2))
	want(t, "reason after it was pushed", g.judgeAndPush(epoch, decision(0.8, 0.2)).Reason, ReasonDeadband)
}

func TestLeavingIsNeutral(t *testing.T) {
	g := NewGate(Options{Deadband: 0.01})
	if v := g.Neutral(epoch); v.Push {
		t.Errorf("pushed %+v before anything was in force", v.Decision)
	}
	in := twoEndpoints(epoch, 5)
	in.Endpoints[1].Capacity = 3
	g.Step(epoch, in)
	g.Finish(epoch, Outcome{Pushed: true})
	v := g.Neutral(epoch)
	if !v.Push || v.Decision.DropFraction != 0 {
		t.Fatalf("push %v, drop %v", v.Push, v.Decision.DropFraction)
	}
	for i, share := range []float64{0.25, 0.75} {
		if e := v.Decision.Endpoints[i]; e.Share != share || e.Overloaded || e.OverloadReason != "" {
			t.Errorf("%s: share %v, overloaded %v (%s), want its part of the capacity, %v", e.Address, e.Share,
				e.Overloaded, e.OverloadReason, share)
		}
	}
	g.Finish(epoch, Outcome{Pushed: true})
	if v := g.Neutral(epoch); !v.Push || v.Reason != ReasonHeartbeat {
		t.Errorf("push %v for %q of what is in force, want a heartbeat", v.Push, v.Reason)
	}
}

func TestThePauseAfterAStep(t *testing.T) {
	const ms = time.Millisecond
	budget := Budget{MinInterval: 5 * ms, BytesPerSecond: 10 << 20, ProxyCPU: 0.02, Cost: cost}
	for _, c := range []struct {
		name     string
		fleet    Subscribers
		scrapes  time.Duration // interval, where loads come from scrapes only
		n        int           // endpoints
		spent    time.Duration
		took     time.Duration
		pushed   bool
		rest     time.Duration
		idleRest time.Duration
	}{
		{"no push", Subscribers{Proxies: 10}, 0, 20, 0, 0, false, 5 * ms, 0},
		{"a step is at most a tenth of a core", Subscribers{Proxies: 10}, 0, 20, 0, 2 * ms, false, 18 * ms, 0},
		{"a push", Subscribers{Proxies: 10}, 0, 20, 0, 0, true, 5 * ms, 0},
		{"a push of many bytes", Subscribers{Proxies: 1000}, 0, 100, 0, 0, true, 286 * ms, 0},
		{"a push that empties the bucket", Subscribers{Proxies: 10}, 0, 20, time.Second, 0, true, 28 * ms, 0},
		{"the same for hundreds of clusters", Subscribers{Proxies: 10, Clusters: 200, BusyClusters: 200}, 0, 20,
			time.Second, 0, true, time.Second, 0},
		{"the same without traffic", Subscribers{Proxies: 10, Clusters: 200, BusyClusters: 1, Idle: true}, 0, 20,
			time.Second, 0, true, 5 * ms, 995 * ms},
		{"scrapes of many endpoints", Subscribers{Proxies: 10}, time.Second, 100, 0, 0, false, 50 * ms, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := NewGate(Options{Budget: budget})
			in := Input{Subscribers: c.fleet, Ready: true}
			in.ScrapeInterval = c.scrapes
			for i := range c.n {
				in.Endpoints = append(in.Endpoints, weighting.Endpoint{Address: fmt.Sprintf("10.0.0.%d:80", i)})
			}
			g.bucket.Use(epoch, c.spent)
			g.Step(epoch, in)
			pause := g.Finish(epoch, Outcome{Pushed: c.pushed, Took: c.took})
			if (pause.Rest-c.rest).Abs() > ms || (pause.IdleRest-c.idleRest).Abs() > ms {
				t.Errorf("rest %v and %v more without traffic, want %v and %v", pause.Rest, pause.IdleRest, c.rest,
					c.idleRest)
			}
		})
	}
}

func TestTheLawGetsThePushPeriod(t *testing.T) {
	g := NewGate(Options{Budget: Budget{MinInterval: 50 * time.Millisecond}})
	in := twoEndpoints(epoch, 0)
	in.PushDelay = 30 * time.Millisecond
	v := g.Step(epoch, in)
	want(t, "horizon", v.Decision.Horizon, 80*time.Millisecond)
	g.Finish(epoch, Outcome{})
	in.PushPeriod = time.Second
	want(t, "horizon with a period of its own", g.Step(epoch, in).Decision.Horizon, 1030*time.Millisecond)
}

// Proxies that get the endpoints without their weights do not need each push.
func TestEndpointsWithoutWeightsAreDueWhenTheyChange(t *testing.T) {
	const second = time.Second
	type decision = weighting.EndpointDecision
	start := weighting.Decision{Endpoints: []weighting.EndpointDecision{
		{Address: "10.0.0.1:80", Zone: "a", Share: 0.5}, {Address: "10.0.0.2:80", Zone: "a", Share: 0.5},
	}}
	for name, c := range map[string]struct {
		change func(*decision)
		after  time.Duration
		due    bool
	}{
		"nothing":            {func(*decision) {}, second, false},
		"the load":           {func(e *decision) { e.Share, e.Overloaded = 0.9, true }, second, false},
		"a pin":              {func(e *decision) { e.Override.Share = 0.5 }, second, false},
		"an address":         {func(e *decision) { e.Address = "10.0.0.3:80" }, second, true},
		"a zone":             {func(e *decision) { e.Zone = "b" }, second, true},
		"a failure":          {func(e *decision) { e.Failing = true }, second, true},
		"a drain":            {func(e *decision) { e.Override.Drained = true }, second, true},
		"less than a minute": {func(*decision) {}, time.Minute - 1, false},
		"a minute":           {func(*decision) {}, time.Minute, true},
	} {
		g := NewGate(Options{Heartbeat: time.Millisecond})
		first := g.verdict(epoch, start, true)
		want(t, name+": due with the first push", first.Members, true)
		g.Finish(epoch, Outcome{Pushed: true})
		next := weighting.Decision{Endpoints: slices.Clone(start.Endpoints)}
		c.change(&next.Endpoints[1])
		v := g.verdict(epoch.Add(c.after), next, true)
		want(t, name+": pushed", v.Push, true)
		want(t, name+": due", v.Members, c.due)
		g.Finish(epoch.Add(c.after), Outcome{}) // it could not be pushed
		want(t, name+": still due", g.verdict(epoch.Add(c.after), next, true).Members, c.due)
	}
}
