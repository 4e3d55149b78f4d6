package main

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

func TestQuantiles(t *testing.T) {
	var hundred []time.Duration
	for i := range 100 {
		hundred = append(hundred, time.Duration(100-i)*time.Second)
	}
	for name, c := range map[string]struct {
		times []time.Duration
		want  Quantiles
	}{
		"none":    {nil, Quantiles{}},
		"one":     {[]time.Duration{time.Second}, Quantiles{1, 1, 1, 1}},
		"two":     {[]time.Duration{3 * time.Second, time.Second}, Quantiles{2, 1, 3, 3}},
		"hundred": {hundred, Quantiles{100, 50, 99, 100}},
	} {
		if got := quantiles(c.times); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestSlope(t *testing.T) {
	for name, c := range map[string]struct {
		points []point
		want   float64
	}{
		"none": {nil, 0}, "one": {[]point{{1, 5}}, 0}, "at one time": {[]point{{1, 5}, {1, 9}}, 0},
		"flat": {[]point{{0, 5}, {1, 5}, {2, 5}}, 0}, "up": {[]point{{0, 1}, {1, 3}, {2, 5}}, 2},
		"down, with noise": {[]point{{0, 10}, {1, 7}, {2, 7}, {3, 4}}, -1.8},
	} {
		if got := slope(c.points); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestMedian(t *testing.T) {
	for want, values := range map[float64][]float64{0: nil, 2: {2}, 2.5: {3, 2}, 3: {9, 1, 3}} {
		if got := median(values); got != want {
			t.Errorf("of %v: %v, want %v", values, got, want)
		}
	}
}

// TestTrafficIsAsConfigured runs a server for half an hour of its own time.
func TestTrafficIsAsConfigured(t *testing.T) {
	b := busy{rand.New(rand.NewPCG(1, 1))}
	r := atStart(1, b)
	began, mean, n := r.completed, 0.0, 0
	for seconds := 0.0; seconds < 1800; seconds += 0.25 {
		b.advance(&r, 0.25)
		if r.running < 0 || r.running > slots || r.waiting < 0 || r.waiting > 0 && r.running < slots {
			t.Fatalf("%+v", r)
		}
		mean, n = mean+r.running, n+1
	}
	if mean /= float64(n); math.Abs(mean-slots*utilization) > 1 {
		t.Errorf("%v slots busy in the mean, want %v", mean, slots*utilization)
	}
	if rate := (r.completed - began) / 1800; math.Abs(rate-slots*utilization/meanService) > 0.2 {
		t.Errorf("%v completions a second, want %v", rate, slots*utilization/meanService)
	}
}

func TestTargetsAreJudgedByTheMedianOfTheirRuns(t *testing.T) {
	row := func(name, binary string, cores, seconds float64) Row {
		return Row{Setting: Setting{Name: name}, Binary: binary, Cores: cores, Seconds: seconds, Growth: 5 << 20}
	}
	met := map[string]bool{}
	for _, target := range judge([]Row{
		row("endpoints-100", "", 0.1, 20), row("endpoints-100", "", 0.3, 20), row("endpoints-100", "", 0.12, 20),
		row("endpoints-100", "other", 9, 20), row("streams-1000", "", 1.5, 20),
	}) {
		met[target.Name] = target.Met
	}
	for _, p := range promises() {
		got, judged := met[p.name]
		wantJudged, want := p.least == 0, p.setting == "endpoints-100" || p.unit != "cores"
		if judged != wantJudged || judged && got != want {
			t.Errorf("%s: judged %v, met %v; want %v, %v", p.name, judged, got, wantJudged, want)
		}
	}
}

func TestTimesOfAStarvedMachineAreNoResult(t *testing.T) {
	row := func(seconds, late float64) Row {
		return Row{Setting: Setting{Name: "streams-1000"}, Seconds: 20, Acks: Acks{Last: Quantiles{P99: seconds}},
			Lateness: Quantiles{P99: late}}
	}
	const free, starved = 0.002, 0.1
	for name, c := range map[string]struct {
		rows []Row
		want Target
	}{
		"free":              {[]Row{row(0.5, free), row(0.7, free), row(3, free)}, Target{Got: 0.7, Met: true}},
		"free and late":     {[]Row{row(2, free)}, Target{Got: 2}},
		"starved":           {[]Row{row(2, starved)}, Target{Got: 2, Starved: true}},
		"starved, but fast": {[]Row{row(0.9, starved)}, Target{Got: 0.9, Met: true, Starved: true}},
		"one of two":        {[]Row{row(2, starved), row(0.6, free)}, Target{Got: 0.6, Met: true}},
	} {
		for _, got := range judge(c.rows) {
			if got.Unit == "s" && (got.Got != c.want.Got || got.Met != c.want.Met || got.Starved != c.want.Starved) {
				t.Errorf("%s: %+v, want %+v", name, got, c.want)
			}
		}
	}
}
