package picking

import (
	"math"
	"testing"
	"time"

	"steelyard/weighting"
)

func TestWorkBecomesTheCostOfARequest(t *testing.T) {
	w := &weighting.Work{PromptTokens: 900, OutputTokens: 200, TokensPerByte: 0.25, BySize: true, Cached: 0.4}
	c := CostOf(w) // the decode of a mean request is 150 prompt tokens
	for what, pair := range map[string][2]float64{
		"base": {c.Base, 150.0 / 1050}, "per byte": {c.PerByte, 0.25 / 1050}, "mean": {c.Mean, 1},
		"most": {c.Most, mostCost}, "cached": {c.Cached, 0.4},
		"a prompt that is not cached": {c.uncached(1), (150 + 900/0.6) / 1050},
	} {
		if math.Abs(pair[0]-pair[1]) > 1e-12 {
			t.Errorf("%s is %v, want %v", what, pair[0], pair[1])
		}
	}
	w.BySize, w.TokensPerByte, w.Cached = false, math.NaN(), 1
	if got := CostOf(w); got.PerByte != 0 || got.Cached != MostCached {
		t.Errorf("without a size that says something, with everything cached: %+v", got)
	}
	if got := CostOf(nil); got != Requests() {
		t.Errorf("where a request is the unit: %+v", got)
	}
}

// TestAnUpdateSaysWhoseServerRestarted: counters that rose by more than is possible are not a restart.
func TestAnUpdateSaysWhoseServerRestarted(t *testing.T) {
	report := weighting.ServerReport{Restarts: 5, Implausible: 2}
	report.BlockTokens = weighting.Reading{Value: 128, At: time.Unix(999, 0)}
	d := weighting.NewLaw(weighting.DefaultParams()).Step(time.Unix(1000, 0), weighting.Snapshot{
		Endpoints: []weighting.Endpoint{{Address: "10.0.0.1:80", Capacity: 1, Server: report},
			{Address: "10.0.0.2:80", Capacity: 1}}})
	u := UpdateOf(&d)
	if u.Endpoints[0].Restarts != 5 || u.Endpoints[1].Restarts != 0 {
		t.Errorf("restarts %d and %d, want 5 and 0", u.Endpoints[0].Restarts, u.Endpoints[1].Restarts)
	}
	if u.BlockTokens != 128 || u.TokensPerByte != 0 {
		t.Errorf("blocks of %d tokens, %v tokens in a byte; want those of the one that reports them, and unknown",
			u.BlockTokens, u.TokensPerByte)
	}
	d.Work, d.DropFraction = &weighting.Work{TokensPerByte: 0.075, Cached: 0.75}, 0.2 // computed
	if u = UpdateOf(&d); u.TokensPerByte != 0.3 || u.Drop != 0.2 {
		t.Errorf("%v tokens in a byte of text, and %v refused; want 0.3 and 0.2", u.TokensPerByte, u.Drop)
	}
}

// TestADrainedEndpointIsAvoidedAndAPinnedOneIsNot, also by the longest match in a pool of two, of which the other one
// is flagged.
func TestADrainedEndpointIsAvoidedAndAPinnedOneIsNot(t *testing.T) {
	d := weighting.NewLaw(weighting.DefaultParams()).Step(time.Unix(1000, 0), weighting.Snapshot{
		Endpoints: []weighting.Endpoint{{Address: "10.0.0.1:80", Capacity: 1},
			{Address: "10.0.0.2:80", Capacity: 1, Override: weighting.Override{Drained: true}},
			{Address: "10.0.0.3:80", Capacity: 1, Override: weighting.Override{Share: 0.25}}}})
	u := UpdateOf(&d)
	for i, want := range []struct {
		avoid Avoidance
		share float64
	}{{AvoidNone, 0}, {AvoidDrained, 0}, {AvoidNone, 0.25}} {
		if e := u.Endpoints[i]; e.Avoid != want.avoid || e.Share != want.share {
			t.Errorf("%s: avoid %v, share %v; want %+v", e.Address, e.Avoid, e.Share, want)
		}
	}
	var p Picker
	u.LongestMatch = true
	r := Request{Size: -1, Cached: []Cached{{"10.0.0.2:80", 1}}}
	for _, flag := range []bool{false, true} {
		d.Endpoints[0].Overloaded = flag
		u.Endpoints = UpdateOf(&d).Endpoints[:2]
		p.Update(u, start)
		if got := p.Choose(start, r, 0.5); got.Address != "10.0.0.1:80" {
			t.Errorf("a prompt that the drained one has answered: %+v, want the other, flagged %v", got, flag)
		}
	}
}

// TestAPickerFollowsThePolicyOfTheCluster: the emptier endpoint answers in 2 s, the other one in 0.5 s. The next
// request takes 2 s there and 0.5 s · (1 request in flight + 1) here.
func TestAPickerFollowsThePolicyOfTheCluster(t *testing.T) {
	for _, tt := range []struct {
		leastLatency bool
		want         string
	}{
		{false, "10.0.0.1:80"},
		{true, "10.0.0.2:80"},
	} {
		params := weighting.DefaultParams()
		params.LeastLatency.Enabled = tt.leastLatency
		law := weighting.NewLaw(params)
		var d weighting.Decision
		now := time.Unix(1000, 0)
		for answers := range 2 {
			now = now.Add(100 * time.Millisecond)
			read := func(v float64) weighting.Reading { return weighting.Reading{Value: v, At: now} }
			endpoint := func(address string, inFlight, latency float64) weighting.Endpoint {
				n := float64(answers)
				return weighting.Endpoint{Address: address, Capacity: 1, InFlight: read(inFlight), Exact: true,
					Proxies: weighting.ProxyReport{LatencySeconds: read(latency * n), Answered: read(n)}}
			}
			d = law.Step(now, weighting.Snapshot{Endpoints: []weighting.Endpoint{
				endpoint("10.0.0.1:80", 0, 2), endpoint("10.0.0.2:80", 1, 0.5)}})
		}
		var p Picker
		p.Update(UpdateOf(&d), now)
		if got := p.Choose(now, unknown, 0.5); got.Address != tt.want {
			t.Errorf("least latency %v: %+v, want %s", tt.leastLatency, got, tt.want)
		}
	}
}
