package simulate

import (
	"bytes"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"steelyard/internal/api"
	"steelyard/sim"
)

// exponential are quantiles of times of service with a mean of about 1.
func exponential() (out []api.Number) {
	const steps = 500
	for i := range steps {
		out = append(out, api.Num(-math.Log(1-(float64(i)+0.5)/steps)))
	}
	return out
}

// unequal is a recording of ten minutes: a server that is 2.5 times slower than its three others, and gets as much.
func unequal() *api.Shadow {
	v := &api.Shadow{Cluster: "llama", Began: api.At(time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)),
		Seconds: api.Num(600), Requests: 24_000, AnswerP50: api.Num(0.1), AnswerP99: api.Num(1), Service: exponential(),
		Envoys: []api.ShadowEnvoy{{NodeID: "a", Requests: 16_000}, {NodeID: "b", Requests: 8_000}}}
	for range 60 {
		v.Arrivals = append(v.Arrivals, 400)
	}
	for i, service := range []float64{0.15, 0.06, 0.06, 0.06} {
		v.Endpoints = append(v.Endpoints, api.ShadowEndpoint{Address: string(rune('a' + i)), Requests: 6_000,
			Slots: api.Num(1), ServiceSeconds: api.Num(service), InFlight: api.Num(1), AnswerP99: api.Num(1)})
	}
	return v
}

func TestAShadowTakesTrafficOffTheServerThatCannotCarryItsShare(t *testing.T) {
	r, err := RunShadow(t.Context(), unequal(), string(sim.LeastRequest), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	own, steelyard := r.Own.P99.Or(0), r.Steelyard.P99.Or(math.Inf(1))
	if r.NotSimulated != "" || steelyard >= own || r.Steelyard.P50.Or(own) >= own || r.Own.P50.Or(own) >= own {
		t.Errorf("p99 %v, without weights %v: %s", steelyard, own, r.NotSimulated)
	}
	var shares float64
	for i, e := range r.Endpoints {
		share := e.ShareWeighted.Or(0)
		shares += share
		if e.Share != 0.25 || (share < e.Share) != (i == 0) || !(e.InFlightWeighted.Or(0) > 0) {
			t.Errorf("%+v", e)
		}
	}
	if math.Abs(shares-1) > 1e-9 {
		t.Errorf("the shares add up to %v", shares)
	}
	var out bytes.Buffer
	r.Print(&out)
	for _, want := range []string{"llama: 24000 requests in 10m from 2026-03-14 12:00:00Z, of 2 Envoys to 4 endpoints",
		"simulated: least_request", "simulated: Steelyard", "\na ", ">WEIGHTED is"[1:]} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
}

func TestTheArrivalsOfARecordingAreSimulated(t *testing.T) {
	v := unequal()
	for i := range v.Arrivals {
		v.Arrivals[i] = 800 * uint32(i%2)
	}
	s, err := recordedSlots(v)
	if err != nil {
		t.Fatal(err)
	}
	factors := []float64{s.Events[0].Factor, s.Events[1].Factor}
	if s.Rate != 40 || !slices.Equal(factors, []float64{0.01, 2}) || !slices.Equal(s.EnvoyShares,
		[]float64{16_000, 8_000}) || s.Duration != 10*time.Minute {
		t.Errorf("%v requests a second, factors %v, shares %v, %v", s.Rate, factors, s.EnvoyShares, s.Duration)
	}
}

func TestWhatCannotBeSimulatedIsShownAsMeasuredWithTheReason(t *testing.T) {
	for want, change := range map[string]func(*api.Shadow){
		"Not simulated: 999 requests are few":   func(v *api.Shadow) { v.Requests = 999 },
		"Not simulated: no endpoint has known":  func(v *api.Shadow) { v.Service = nil },
		"Not simulated: the slots of b are not": func(v *api.Shadow) { v.Endpoints[1].Slots = api.Number{} },
	} {
		v := unequal()
		change(v)
		r, err := RunShadow(t.Context(), v, string(sim.LeastRequest), io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		r.Print(&out)
		if !strings.Contains(out.String(), want) || strings.Contains(out.String(), "WEIGHTED") ||
			r.Steelyard.P99 != (api.Number{}) || r.Endpoints[0].ShareWeighted != (api.Number{}) {
			t.Errorf("want %q in\n%s", want, out.String())
		}
	}
	r, err := RunShadow(t.Context(), &api.Shadow{Cluster: "llama"}, string(sim.LeastRequest), io.Discard)
	if err == nil || !strings.Contains(err.Error(), "no Envoy reports without following") {
		t.Errorf("nothing was recorded, and yet %+v, %v", r, err)
	}
	r, err = RunShadow(t.Context(), &api.Shadow{Cluster: "llama", Recording: true}, string(sim.LeastRequest),
		io.Discard)
	if err == nil || !strings.Contains(err.Error(), "ClusterIP") || strings.Contains(err.Error(), "no Envoy") {
		t.Errorf("Envoys report of other addresses, and yet %+v, %v", r, err)
	}
}

func TestASimulationThatIsFarFromWhatWasMeasuredSaysSo(t *testing.T) {
	for measured, far := range map[float64]bool{1: false, 1.2: false, 2: true, math.NaN(): true} {
		times := func(p99 float64) ShadowTimes { return ShadowTimes{api.Num(1), api.Num(p99)} }
		var out bytes.Buffer
		(&Shadow{Cluster: "llama", Policy: "random", Measured: times(measured), Own: times(1),
			Steelyard: times(1)}).Print(&out)
		if strings.Contains(out.String(), "is far from what was measured") != far {
			t.Errorf("measured %v:\n%s", measured, out.String())
		}
	}
}

// unequalEngines is a recording of engines, one of which is half as fast as the others.
func unequalEngines() *api.Shadow {
	v := unequal()
	v.Service, v.PromptTokens, v.OutputTokens = nil, api.Num(1000), api.Num(200)
	v.Seconds, v.Requests, v.Arrivals = api.Num(200), 2_400, nil
	for range 20 {
		v.Arrivals = append(v.Arrivals, 120)
	}
	for i, speed := range []float64{0.5, 1, 1, 1} {
		e := &v.Endpoints[i]
		e.Requests, e.Slots, e.ServiceSeconds, e.RelativeSpeed = 600, api.Number{}, api.Number{}, api.Num(speed)
	}
	v.AnswerP50, v.AnswerP99 = api.Num(9), api.Num(40)
	return v
}

func TestEnginesThatBatchAreAsFastAsTheMeasuredMedianSays(t *testing.T) {
	r, err := RunShadow(t.Context(), unequalEngines(), string(sim.LeastRequest), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if r.NotSimulated != "" || !r.Fitted || math.Abs(r.Own.P50.Or(0)/9-1) > 0.1 {
		t.Errorf("p50 %v, want about 9 s: %s", r.Own.P50, r.NotSimulated)
	}
	if slow := r.Endpoints[0]; slow.ShareWeighted.Or(1) >= slow.Share {
		t.Errorf("the slow engine has %v of the requests, and would have %v", slow.Share, slow.ShareWeighted)
	}
	var out bytes.Buffer
	r.Print(&out)
	if !strings.Contains(out.String(), "by which its P50 is the measured one") {
		t.Error(out.String())
	}
	t.Logf("%s", out.String())
}
